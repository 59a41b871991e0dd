"""Gives the engine a clock, a mailbox and hands: one file for each kind of worker."""

"""Looks at a run and never touches it."""

"""The engine on a virtual clock: an event heap instead of workers, so a run takes no time and repeats exactly."""

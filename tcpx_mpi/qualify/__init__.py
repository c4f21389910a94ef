"""Is this set of nodes fit, now: the commands that tell, one after the other, within a time."""

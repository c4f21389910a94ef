"""Schedules: which rank sends which bytes to which, as a table of steps; `interpreter` proves what
they promise."""

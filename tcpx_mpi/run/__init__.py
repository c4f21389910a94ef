"""The stories of a run: agree, load, place, connect, measure, record. Read `benchmark` first."""

"""Who sends what to whom, as a table of steps; `interpreter` proves what it promises."""

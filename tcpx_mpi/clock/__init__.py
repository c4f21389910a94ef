"""How the clocks of several nodes stand to each other, with a bound on the error. Pure, but for
`source`; docs/reference/clock.md has the method.
"""

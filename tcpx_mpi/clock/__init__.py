"""The clocks of several nodes against each other, with a bound on the error. Pure, but for
`source`; docs/reference/clock.md has the method.
"""

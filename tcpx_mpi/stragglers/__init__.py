"""Which rank is slow: outlier test, detection, re-test, arrival times. Pure."""

"""Whether a job is on the fast path, by what it logged or by what this machine is.

lines.py reads a log, ranks.py what each rank said of its network, signatures.py the known causes
(signatures.toml), versions.py what belongs together, here.py this machine; judge.py says the
verdict and text.py prints it.
"""

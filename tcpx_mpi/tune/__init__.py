"""The best settings for a machine, by launches in turns: a space, a race over it, an answer.

Pure but for reading files: `tcpx_mpi.run.tuning` makes the launches.
"""

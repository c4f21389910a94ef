"""`python -m tcpx_mpi`, the same as `tcpx-mpi`."""

import sys


def main() -> int:
    """The exit code of this process's command line."""
    try:  # also while modules are read, which takes a tenth of a second
        from tcpx_mpi.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

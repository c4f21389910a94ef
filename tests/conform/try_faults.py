"""Tries a plugin with one fault after another: python try_faults.py PLUGIN DEADLINE_S FAULT...

A line of JSON a fault: its name, and of each clause the verdict and the reason. A fault is FAULT,
or FAULT:CLAUSE for that clause alone, costly or not.
"""

from __future__ import annotations

import json
import os
import sys

from tcpx_mpi.conform.child import Target
from tcpx_mpi.conform.suite import Result, try_all
from tcpx_mpi.conform.table import CLAUSES, with_needs

ABI = 11


def main(plugin: str, deadline_s: str, *faults: str) -> None:
    target = Target(plugin, ABI, "host", float(deadline_s))
    for fault in faults:
        os.environ["FAULT"], _, only = fault.partition(":")  # each clause's process reads it
        clauses = with_needs(only) if only else CLAUSES
        results = try_all(target, clauses, {}, quick=not only, show=_nothing)
        found = {
            one.clause.name: (one.outcome.verdict.value, one.outcome.reason) for one in results
        }
        print(json.dumps([os.environ["FAULT"], found]), flush=True)


def _nothing(_: Result) -> None:
    pass


if __name__ == "__main__":
    main(*sys.argv[1:])

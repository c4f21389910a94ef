"""The output of nccl-tests: packed or not, from a file or a pipe, in any encoding."""

from __future__ import annotations

import os
import re

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.document import parse_document
from tcpx_mpi.exchange.nccl_tests.model import Log
from tcpx_mpi.exchange.nccl_tests.text import parse_lines
from tcpx_mpi.inputs import STDIN
from tcpx_mpi.inputs import Log as LogInput

_REMEDY = "give what nccl-tests printed, or wrote by -J"
#: Of the JSON: a value takes up to 25 times its letters as an object of Python.
_DOCUMENT_LETTERS = 16 << 20
#: Its JSON, an object a line, and its CSV.
_OF_RCCL_TESTS = re.compile(r'\s*(?:\[\s*)?\{"name": ?|\s*collective, ')


def read_log(path: str) -> Log:
    """The run of nccl-tests in a file, as far as it is whole: its output, or its JSON.

    Raises UsageError for a file that is missing, is neither, or holds several runs.
    """
    found = LogInput(path, remedy=_REMEDY)
    if _OF_RCCL_TESTS.match(found.start):
        raise UsageError(
            f"{path} is what rccl-tests wrote by -Z, which has neither the ranks nor what was "
            "asked for: give what it printed"
        )
    if found.start.lstrip().startswith("{"):
        log = parse_document(path, found.text(_DOCUMENT_LETTERS))
    else:
        log = parse_lines(path, found.lines())
    log.name = "standard input" if path == STDIN else os.path.basename(path)
    log.sha256 = found.source.digest.hexdigest()
    return log

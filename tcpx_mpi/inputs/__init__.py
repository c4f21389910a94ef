"""Every file, pipe and archive that a user gives to read: opened here, and nowhere else, by limits.

What an input says of itself (a size, a count, how it is packed) is held against what it can hold
before it becomes memory, and reading takes time in proportion to its bytes. An input that is not
what it should be is a UsageError of one line.
"""

from tcpx_mpi.inputs.documents import parse_json, read_json, read_toml
from tcpx_mpi.inputs.opening import (
    STDIN,
    Input,
    Limits,
    is_stream,
    open_regular,
    read_bytes,
    read_text,
)
from tcpx_mpi.inputs.text import Log, clean_line

__all__ = [
    "STDIN",
    "Input",
    "Limits",
    "Log",
    "clean_line",
    "is_stream",
    "open_regular",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_text",
    "read_toml",
]

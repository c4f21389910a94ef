"""Fuzzes every reader of a file: no traceback, no hang, no gibibyte, no half file.

    python tests/fuzz/readers/fuzz_readers.py [RUNS] [READER...]    (`make test SUITE=fuzz-readers`)
    python tests/fuzz/readers/fuzz_readers.py quick [READER...]     as many as half a second has
    python tests/fuzz/readers/fuzz_readers.py READER:NUMBER         one mutant, with its traceback

A mutant is a function of its reader and its number.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import readers

from tcpx_mpi.errors import TcpxError
from tcpx_mpi.printable import printable

LIMIT_MIB = 500
_ROOM_BYTES = 8 << 30
#: A child has so many mutants, and dies with one that HDF5 itself does not survive.
_BATCH = 500
_SHOWN = 20
#: Halves of characters stand for the bytes of a name, which no terminal obeys.
_MAY_BE_SHOWN = {"\n", "\t", *map(chr, range(0xDCA0, 0xDD00))}


class TooLong(BaseException):
    """Of a mutant: no reader catches it."""


def fault_of(reader: readers.Reader, name: str, number: int) -> str:
    """What is wrong with how a mutant is read; "" for nothing."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    random_ = random.Random(f"{name} {number}")
    before = os.getcwd()
    try:
        asked = reader.make(place, random_)
        given = set(os.listdir(place))
        os.chdir(place)
        out, error = io.StringIO(), io.StringIO()
        _forget_peak()
        signal.setitimer(signal.ITIMER_PROF, reader.limit_s)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                code = _ended(asked)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        made = set(os.listdir(place)) - given
    except TooLong:
        return f"takes more than {reader.limit_s:g} s:\n{traceback.format_exc()}"
    except Exception:
        return traceback.format_exc()
    finally:
        os.chdir(before)
        shutil.rmtree(place, ignore_errors=True)
    if (peak := _peak_mib()) > LIMIT_MIB:
        return f"takes {peak} MiB"
    return _judged(reader, code, out.getvalue(), error.getvalue(), made)


def _ended(asked: readers.Callable[[], object] | list[str]) -> int:
    if isinstance(asked, list):
        return readers.command(asked)
    try:
        asked()
    except TcpxError as refused:
        print(f"tcpx-mpi: error: {printable(str(refused))}", file=sys.stderr)
        return int(refused.exit_code)
    return 0


def _judged(reader: readers.Reader, code: int, out: str, error: str, made: set[str]) -> str:
    if code not in reader.codes:
        return f"ends with {code}: {error}"
    if code == 2 and made:
        return f"leaves {sorted(made)}: {error}"
    if code == 2 and (error.count("tcpx-mpi: error: ") != 1 or len(error) > 1 << 20):
        return f"says no one line: {error[:1000]!r}"
    shown = {each for each in out + error if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")}
    if shown - _MAY_BE_SHOWN:
        return f"prints {sorted(shown)!a}"
    return ""


def _peak_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _too_long(number: int, frame: object) -> None:
    raise TooLong


def findings(reader: readers.Reader, name: str, numbers: range) -> Iterator[tuple[int, str]]:
    """(number, what is wrong) of the mutants of a reader, which run in children of this process."""
    begin = numbers.start
    while begin < numbers.stop:
        end = min(begin + _BATCH, numbers.stop)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _run_child(reader, name, range(begin, end), write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            told = pipe.read().decode("utf-8", "replace").split("\0")
        _, status = os.waitpid(child, 0)
        last = begin - 1
        for each in filter(None, told):
            number, _, fault = each.partition(" ")
            last = int(number)
            if fault:
                yield last, fault
        if status:
            yield last + 1, f"ended its process (status {status})"
            begin = last + 2
        else:
            begin = end


def _run_child(reader: readers.Reader, name: str, numbers: range, write: int) -> None:
    try:
        signal.signal(signal.SIGPROF, _too_long)
        resource.setrlimit(resource.RLIMIT_AS, (_ROOM_BYTES, _ROOM_BYTES))
        for number in numbers:
            # A loop within a library never comes back to the handler.
            spent = int(time.process_time() + reader.limit_s) + 20
            resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.RLIM_INFINITY))
            os.write(
                write, f"{number} {fault_of(reader, name, number)}\0".encode("utf-8", "replace")
            )
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(99)


def main(arguments: list[str]) -> int:
    """Prints a line a reader, and the findings; 1 where there are any, 2 for an unknown reader."""
    quick = "quick" in arguments
    runs = next((int(each) for each in arguments if each.isdecimal()), 10_000)
    asked = [each for each in arguments if not each.isdecimal() and each != "quick"]
    found_any = False
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as place:
        known = readers.readers(Path(place))
        if unknown := {each.partition(":")[0] for each in asked} - set(known):
            print(f"no reader {', '.join(sorted(unknown))}: use {', '.join(known)}",
                  file=sys.stderr)  # fmt: skip
            return 2
        for name in asked or known:
            name, _, number = name.partition(":")
            numbers = range(known[name].quick if quick else runs)
            if number:
                numbers = range(int(number), int(number) + 1)
            began = time.monotonic()
            count = 0
            for at, fault in findings(known[name], name, numbers):
                count += 1
                if count <= _SHOWN:
                    print(f"{name}:{at} {fault}", flush=True)
            took = time.monotonic() - began
            print(f"{name:<20} {len(numbers)} mutants, {count} findings, {took:.0f} s", flush=True)
            found_any = found_any or count > 0
    return int(found_any)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Inputs of every kind are opened in one place, and bounded there; a bad one is one line."""

from __future__ import annotations

import ast
import bz2
import gzip
import hashlib
import io
import lzma
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tcpx_mpi import inputs
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Limits, Log, documents, opening, text

SMALL = Limits(bytes=1000, lines=10, archives=True)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as refused:
        call()
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --- What is opened -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/no/such", "no such file"),
        ("/", "is a directory"),
        ("/dev/zero", "is a device"),
        ("/dev/urandom", "is a device"),
        ("a\0b", "is no path"),
    ],
)
@pytest.mark.parametrize("opened", [inputs.read_bytes, inputs.read_text])
def test_what_is_no_input_is_refused_at_once(
    path: str, says: str, opened: Callable[..., object]
) -> None:
    found = refusal(lambda: opened(path, SMALL, f"--it ({path})", "give a file"))
    assert found.startswith(f"--it ({path}): {says}")
    assert found.endswith("; give a file")


def test_a_link_to_a_device_is_a_device(tmp_path: Path) -> None:
    (tmp_path / "a.toml").symlink_to("/dev/zero")
    assert "is a device" in refusal(lambda: inputs.read_bytes(str(tmp_path / "a.toml"), SMALL))


def test_nothing_is_an_empty_input() -> None:
    assert inputs.read_bytes("/dev/null", SMALL) == b""


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/no/such"])
def test_only_a_file_is_read_in_parts(path: str) -> None:
    refusal(lambda: inputs.open_regular(path))


def test_a_pipe_that_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "o.h5")
    assert "is a pipe" in refusal(lambda: inputs.open_regular(str(tmp_path / "o.h5")))


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2000))
    before = os.listdir("/proc/self/fd")
    for path in (str(tmp_path / "large"), "/", "/dev/zero"):
        refusal(lambda path=path: inputs.read_bytes(path, SMALL))  # type: ignore[misc]
        refusal(lambda: inputs.open_regular("/dev/zero"))
    assert os.listdir("/proc/self/fd") == before


# --- How much -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "good"), [(1000, True), (1001, False)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_the_limit_is_of_the_bytes_unpacked(
    count: int, good: bool, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(pack(b"x" * count))
    if good:
        assert inputs.read_bytes(str(tmp_path / "a"), SMALL) == b"x" * count
    else:
        found = refusal(lambda: inputs.read_bytes(str(tmp_path / "a"), SMALL))
        assert found == f"{tmp_path}/a: is larger than 1000 bytes"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_archives_after_one_another_are_one(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [b"a" * 100, b"", b"b" * 70]
    (tmp_path / "a").write_bytes(b"".join(map(pack, parts)) + b"what follows is none")
    monkeypatch.setattr(opening, "PIECE_BYTES", 7)
    assert inputs.read_bytes(str(tmp_path / "a"), SMALL) == b"".join(parts)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_of_an_archive_that_was_cut_off_there_is_a_beginning(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    whole = bytes(range(256)) * 3
    (tmp_path / "a").write_bytes(pack(whole)[:-12])
    assert whole.startswith(inputs.read_bytes(str(tmp_path / "a"), SMALL))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_broken_archive_is_refused(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = bytearray(pack(bytes(range(256)) * 3))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a").write_bytes(packed)
    found = refusal(lambda: inputs.read_bytes(str(tmp_path / "a"), SMALL))
    assert "cannot be unpacked" in found


def test_archives_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_MOST_MEMBERS", 20)
    (tmp_path / "a").write_bytes(gzip.compress(b"") * 21)
    assert "more than 20 archives" in refusal(lambda: inputs.read_bytes(str(tmp_path / "a"), SMALL))


_UNPACK = """
import sys
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Log
try:
    for line in Log(sys.argv[1]).lines():
        pass
except UsageError as error:
    print(error)
# Not ru_maxrss, which begins with that of the process that started this one.
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_a_gibibyte_in_an_archive_never_becomes_memory(ending: str, tmp_path: Path) -> None:
    packer = (
        zlib.compressobj(wbits=31, level=1) if ending == "gz" else lzma.LZMACompressor(preset=0)
    )
    with open(tmp_path / "a", "wb") as file:
        for _ in range(300):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.flush())
    done = subprocess.run(
        [sys.executable, "-c", _UNPACK, str(tmp_path / "a")], capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    said, peak = done.stdout.splitlines()
    assert said == f"{tmp_path}/a: is larger than 256 MiB"
    assert int(peak) < 100 << 10


def test_a_dictionary_that_an_archive_asks_for_is_bounded(tmp_path: Path) -> None:
    huge = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"x", filters=huge))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = refusal(lambda: inputs.read_bytes(str(tmp_path / "a.xz"), SMALL))
    assert "cannot be unpacked: Memory usage limit" in found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_the_hash_is_of_the_bytes_as_they_lie_there(tmp_path: Path) -> None:
    packed = gzip.compress(b"some lines\n")
    (tmp_path / "a.gz").write_bytes(packed)
    log = Log(str(tmp_path / "a.gz"))
    assert list(log.lines()) == ["some lines", ""]
    assert log.source.digest.hexdigest() == hashlib.sha256(packed).hexdigest()


def test_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\n" * 9)
    assert inputs.read_text(str(tmp_path / "a"), SMALL) == "\n" * 9
    (tmp_path / "a").write_bytes(b"\n" * 10)
    found = refusal(lambda: inputs.read_text(str(tmp_path / "a"), SMALL))
    assert "has more than 10 lines" in found


def test_text_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc\xff")
    assert "byte 3 is no UTF-8" in refusal(lambda: inputs.read_text(str(tmp_path / "a"), SMALL))


# --- Logs -----------------------------------------------------------------------------------------


def lines_of(content: bytes, place: Path, letters: int = text.LINE_LETTERS) -> list[str]:
    (place / "log").write_bytes(content)
    return list(Log(str(place / "log")).lines(letters))


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 1 << 16])
def test_lines_are_alike_wherever_the_pieces_end(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "PIECE_BYTES", piece)
    monkeypatch.setattr(text, "_GUESSED_BY", 1)
    content = "one\r\ntwo\r\r\n\rthree\n\näöü \U0001f600\x1b[31m\tfive\rsix\r".encode()
    assert lines_of(content, tmp_path) == [
        "one", "two", "", "three", "", "äöü \U0001f600 five", "six", "",
    ]  # fmt: skip


def test_what_a_line_has_beyond_its_limit_is_passed_over(tmp_path: Path) -> None:
    content = b"a" * 300_000 + b"\nb\n" + b"c" * 9 + b"\n" + b"d" * 10 + b"\n" + b"e" * 11
    assert lines_of(content, tmp_path, 10) == ["a" * 10, "b", "c" * 9, "d" * 10, "e" * 10]


def test_lines_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LOG", Limits(1000, 5, archives=True))
    assert len(lines_of(b"\n" * 4, tmp_path)) == 5
    assert "more than 5 lines" in refusal(lambda: lines_of(b"\n" * 5, tmp_path))


def test_the_standard_input_is_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    assert list(Log("-").lines()) == ["a", "b"]


# --- Documents ------------------------------------------------------------------------------------


def toml(content: str, place: Path) -> object:
    (place / "a.toml").write_text(content)
    return inputs.read_toml("--it", str(place / "a.toml"), "see --help")


TOML_BEYOND = {
    "lists": "a = " + "[" * 500_000,
    "tables": "a = " + "{b = " * 100_000,
    "parts of a key": ".".join("a" * 400_000) + " = 1",
    "a table's name": "[" + ".".join("a" * 400_000) + "]",
    "parts in quotes": '"a"' + '."b"' * 100_000 + " = 1",
    "parts in a table": "a = {" + "a." * 100_000 + "a = 1}",
    "digits": "a = " + "1" * 4301,
    "hexadecimal digits": "a = 0x" + "f" * 5000,
    "quotes": 'a = "' + '\\"' * 500_000,
}


@pytest.mark.parametrize("content", TOML_BEYOND.values(), ids=TOML_BEYOND)
def test_toml_that_is_too_deep_or_too_large_is_one_line(content: str, tmp_path: Path) -> None:
    found = refusal(lambda: toml(content, tmp_path))
    assert found.startswith(f"{tmp_path}/a.toml is no TOML: ")
    assert found.endswith("; see --help")
    assert len(found) < 400


def test_dots_and_brackets_in_texts_and_comments_are_no_depth(tmp_path: Path) -> None:
    many = "." * 100 + "[" * 100
    content = f"""a = "{many} \\" {many}"  # {many}
b = '{many} \\'
c = \"\"\"{many}
"{many}" \\\"\"\"\"
d = '''{many}'{many}'''
[e.f.g]
h = ["10.0.0.1", 1.5]
"""
    found = toml(content, tmp_path)
    assert isinstance(found, dict)
    assert list(found) == ["a", "b", "c", "d", "e"]


JSON_BEYOND = {
    "unclosed": "[" * 1_000_000,
    "deep": "[" * 33 + "]" * 33,
    "digits": "1" * 4301,
    "objects": '{"a":' * 500_000,
    "no JSON": "[],",
    "values": "[" + "[]," * (1 << 20),
}


@pytest.mark.parametrize("content", JSON_BEYOND.values(), ids=JSON_BEYOND)
def test_json_that_is_too_deep_or_too_large_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    found = refusal(lambda: inputs.read_json(str(tmp_path / "a.json"), remedy="give another"))
    assert found.startswith(f"{tmp_path}/a.json: no JSON (")
    assert found.endswith("; give another")
    assert len(found) < 400


def test_documents_of_a_usual_depth_are_read() -> None:
    assert inputs.parse_json("[" * 31 + "1" + "]" * 31)
    documents._refuse_depth("a.b.c.d = [[[[1]]]]")


# --- And nowhere else -----------------------------------------------------------------------------

PACKAGE = Path(inputs.__file__).parents[1]
#: Modules that unpack or parse, as a whole, and calls by which a file is opened or read.
PARSERS = {"bz2", "csv", "gzip", "json", "lzma", "pickle", "tarfile", "tomli", "tomllib", "zipfile"}
OPENING = {"open", "os.open", "os.fdopen", "io.open", "h5py.File", "np.load", "np.fromfile"}
READING = {"read_text", "read_bytes", "fromfile", "memmap", "loadtxt"}
#: What else is opened, or parsed: nothing that a user gives to read.
KERNEL, OWN, CREATED = "of the kernel", "between processes of a run", "made here, to be written"
ELSEWHERE = {
    "_version.py": "the metadata of this package",
    "baselines/nccl/channel.py": OWN,
    "cli/__init__.py": "the null device",
    "cli/output.py": "the null device",
    "conform/child.py": OWN,
    "conform/memory.py": OWN,
    "doctor/here.py": KERNEL,
    "exchange/junit.py": CREATED,
    "exchange/prometheus.py": CREATED,
    "launch/mpirun.py": KERNEL,
    "launch/setup_deadline.py": KERNEL,
    "launch/setup_table.py": OWN,
    "launch/terminal.py": KERNEL,
    "machine/congestion.py": KERNEL,
    "machine/disciplined_clock.py": KERNEL,
    "machine/topology/gpus.py": KERNEL,
    "machine/topology/host.py": KERNEL,
    "machine/topology/tree.py": KERNEL,
    "plugin/nccl_choice.py": "the list of the loader",
    "plugin/trial.py": OWN,
    "preflight/facts.py": KERNEL,
    "preflight/findings.py": OWN,
    "qualify/launch.py": OWN,
    "records/journal.py": CREATED,
    "records/launches.py": "HDF5 within what was opened",
    "records/names.py": CREATED,
    "records/new_file.py": CREATED,
    "records/reader.py": "HDF5 within what was opened",
    "records/tap.py": CREATED,
    "records/writer.py": CREATED,
    "report/html/page.py": "a part of this package",
    "transport/memory_marks.py": KERNEL,
    "transport/observed_placement.py": KERNEL,
    "transport/time_limit.py": KERNEL,
    "world/collectives.py": OWN,
    "world/liveness.py": OWN,
    "world/processes.py": KERNEL,
}


def opens(path: Path) -> bool:
    """Whether a module opens a file, or parses what a file holds."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            module, _, function = called.rpartition(".")
            if called in OPENING or (module and function in READING):
                return True
            if module in PARSERS and function in ("load", "loads", "open"):
                return True
    return False


def test_no_other_module_opens_what_a_user_gives() -> None:
    """A new one reads through `tcpx_mpi.inputs`, or says in ELSEWHERE what it opens."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE / "inputs" and opens(path)
    }
    assert sorted(found) == sorted(ELSEWHERE)

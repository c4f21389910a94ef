"""What cannot be: one line from one rank, its exit code, and not a file left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import h5py
import pytest
from jobs import Result, mpirun, mpmd, run, tcpx_mpi
from variants import variant, variants_where

from tcpx_mpi import __version__ as tcpx_mpi_version
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.plugin.find import TCPX_PLACES

pytestmark = pytest.mark.multirank

PARENT, RANKS = "tcpx-mpi run --ranks", "mpirun"


@pytest.fixture
def elsewhere(place: Path) -> Iterator[Path]:
    """The place, watched: what a refused run is given may lie there, what it makes may not."""
    yield place
    left = {path.name for path in place.rglob("*")} - {"spool", "given"}
    left -= {path.name for path in (place / "given").rglob("*")}
    assert not left, f"a refused run left {left}"


@pytest.fixture
def given(elsewhere: Path) -> Path:
    """A directory for what a test gives to a run."""
    (elsewhere / "given").mkdir()
    return elsewhere / "given"


def code_of(mistake: str) -> int:
    return 3 if mistake == "missing plugin" else 2


def refused(
    command: Sequence[str],
    cwd: Path,
    *says: str,
    code: int = 2,
    environ: Mapping[str, str] | None = None,
) -> Result:
    """A run that must end with one line of ours that has all of `says`, and no table."""
    # A machine with a GPU must refuse what one without it does.
    surroundings = {"TMPDIR": str(cwd), "CUDA_VISIBLE_DEVICES": ""}
    result = run(command, cwd, {**surroundings, **(environ or {})})
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    for words in says:
        assert words in result.errors[0], result.text
    assert "Traceback" not in result.err, result.text
    assert not result.rows, result.text
    return result


def start(how: str, ranks: int, *arguments: str) -> list[str]:
    if how == PARENT:
        return tcpx_mpi("run", *arguments, "--ranks", str(ranks))
    return mpirun(ranks, "run", *arguments)


# --- The command line ----------------------------------------------------------------------------

#: arguments, ranks -> what the line says: what, found, limit, what to do
COMMAND_LINES: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "unknown pattern": (("rign",), 2, ("rign", "ring", "pair, pingpong, ring, mesh")),
    "unknown option": (("ring", "--chanels", "3"), 2, ("--chanels", "--channels", "--help")),
    "ambiguous size": (("ring", "-b", "64MB"), 2, ("--minbytes", "64MB", "64M", "64MiB")),
    "sizes turned round": (("ring", "-b", "2M", "-e", "1M"), 2, ("-b", "2M", "-e", "1M")),
    "chunk of nothing": (("ring", "--chunk", "0"), 2, ("--chunk", "0", "1 or more")),
    "chunk above 2 MiB": (("ring", "--chunk", "3M"), 2, ("--chunk", "3M", "2M or less")),
    "send window": (("ring", "--window-send", "17"), 2, ("--window-send", "17", "16 or less")),
    "receive window": (("ring", "--window-recv", "17"), 2, ("--window-recv", "17", "16 or less")),
    "odd pair": (("pair",), 3, ("pair", "even number of ranks", "3", "2 or 4")),
    "one rank": (("ring",), 1, ("ring", "at least 2 ranks", "1", "mpirun -n 2")),
    "missing plugin": (
        ("ring", "--plugin", "/nosuch/libnccl-net-x.so"), 3,
        ("--plugin", "/nosuch/libnccl-net-x.so", "no such file", "tcpx-mpi plugins")),
    "missing directory": (("ring", "--hdf5", "nosuch/o.h5"), 2, ("--hdf5", "nosuch")),
    "a directory as the file": (("ring", "--hdf5", "spool"), 2, ("--hdf5", "spool", "directory")),
    "missing directory of JSON": (("ring", "-J", "nosuch/o.json"), 2, ("-J", "nosuch")),
    "missing directory of CSV": (("ring", "--csv", "nosuch/o.csv"), 2, ("--csv", "nosuch")),
    "missing directory of events": (
        ("ring", "--json-stream", "nosuch/o"), 2, ("--json-stream", "nosuch")),
    "missing spool": (("ring", "--spool", "nosuch"), 2, ("--spool", "nosuch")),
    "missing configuration": (
        ("ring", "--config", "nosuch.toml"), 2, ("--config", "nosuch.toml", "no such file")),
}  # fmt: skip


#: Ranks under a user's own mpirun take other ways to the same line: these are all the ways.
BY_RANKS_TOO = ("unknown pattern", "unknown option", "ambiguous size", "odd pair", "one rank",
                "missing plugin", "missing directory", "missing spool",
                "missing configuration")  # fmt: skip


@pytest.mark.parametrize("mistake", COMMAND_LINES)
def test_a_mistake_is_found_before_mpirun_is_started(mistake: str, elsewhere: Path) -> None:
    arguments, ranks, says = COMMAND_LINES[mistake]
    result = refused(start(PARENT, ranks, *arguments), elsewhere, *says, code=code_of(mistake))
    assert result.err.count("\n") == 1, "mpirun has a banner of its own"


@pytest.mark.parametrize(
    "mistake",
    variants_where(lambda m: m not in ("unknown option", "missing plugin"), BY_RANKS_TOO),
)
def test_a_mistake_that_all_ranks_make_is_said_by_one(mistake: str, elsewhere: Path) -> None:
    arguments, ranks, says = COMMAND_LINES[mistake]
    refused(start(RANKS, ranks, *arguments), elsewhere, *says, code=code_of(mistake))


def test_a_mistake_found_after_the_outputs_were_opened_leaves_neither_file_nor_journal(
    elsewhere: Path, given: Path
) -> None:
    # More memory than any machine of these tests has: known when the plugin is up.
    command = start(PARENT, 2, "pair", "--sizes", "900G", "--spool", str(given))
    refused(command, elsewhere, "available on", "use a smaller -e or --check-memory")
    assert list(given.iterdir()) == []


def test_a_gpus_memory_is_refused_where_no_gpu_is_visible(elsewhere: Path) -> None:
    command = start(PARENT, 2, "ring", "--memory", "cuda")
    said = refused(command, elsewhere, "--memory cuda", "has no usable GPU", "use --memory host")
    assert said.err.count("\n") == 1, "found before mpirun, which has a banner, was started"
    # Where ranks may be elsewhere, they look.
    elsewhere_too = {"PRTE_MCA_prte_default_hostfile": "/dev/null"}
    assert not launch.ranks_are_here(elsewhere_too)
    refused(start(RANKS, 2, "ring", "--memory", "cuda"), elsewhere, "has no usable GPU")


@pytest.mark.parametrize(
    ("cpus", "says"),
    [
        ("99", ("--cpus has 1 CPU for 2 ranks of", "name at least one for each")),
        ("98,99", ("--cpus: CPU 98 is outside of the affinity mask of local rank 0 on",)),
    ],
)
def test_cpus_that_no_rank_here_can_have_are_refused_before_mpirun(
    cpus: str, says: tuple[str, ...], elsewhere: Path
) -> None:
    command = start(PARENT, 2, "ring", "--cpus", cpus)
    assert refused(command, elsewhere, *says).err.count("\n") == 1, "mpirun has a banner"


def test_no_ranks_at_all_says_how_to_start_some(elsewhere: Path) -> None:
    refused(tcpx_mpi("run", "ring"), elsewhere, "at least 2 ranks", "mpirun -n 4", "--ranks 4")


@pytest.mark.parametrize(
    "option", ["--hdf5", "-J", variant("--csv"), variant("--json-stream"), "--save-config"]
)
def test_a_directory_that_takes_no_file_is_found_before_anything_is_measured(
    option: str, elsewhere: Path
) -> None:
    # Permission bits do not stop root, the kernel does: nobody makes files in /proc.
    # Beside the file of HDF5, one that can be made.
    other = ("--json-stream", "s.jsonl") if option == "--hdf5" else ("--hdf5", "none")
    command = start(PARENT, 2, "ring", option, "/proc/o", *other)
    said = refused(command, elsewhere, "/proc/o", "create")
    assert said.err.count("\n") == 1, "found before mpirun, which has a banner, was started"


# --- Ranks that differ ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (("ring", "-n", "3"), ("ring", "-n", "4"), ("iters", "3", "4", "same arguments")),
        variant(("ring",), ("mesh",), ("pattern", "ring", "mesh", "same arguments")),
        variant(("ring", "--channels", "2"), ("ring", "--channels", "3"), ("channels", "2", "3")),
        (("ring",), ("ring", "-n", "many"), ("--iters", "many", "whole number")),
        (
            ("ring", "--plugin", "softtcpx"),
            ("ring", "--plugin", "null"),
            ("plugin", "softtcpx", "null"),
        ),
    ],
    ids=["iterations", "pattern", "channels", "a mistake on one", "plugin"],
)
def test_a_rank_that_was_started_differently_is_named(
    first: tuple[str, ...], second: tuple[str, ...], says: tuple[str, ...], elsewhere: Path
) -> None:
    # Rank 2 differs: neither the one that speaks nor the last that could be.
    command = mpmd(mpirun(2, "run", *first), mpirun(1, "run", *second), mpirun(1, "run", *first))
    refused(command, elsewhere, "rank 2", *says)


def test_a_plugin_of_other_content_under_the_same_name_is_refused(
    elsewhere: Path, given: Path
) -> None:
    from tcpx_mpi.plugin.find import bundled_dir

    library = Path(bundled_dir()) / "libnccl-net-softtcpx.so"
    for node, more in (("a", b""), ("b", b"\0")):
        (given / node).mkdir()
        copy = given / node / "libnccl-net-mine.so"
        copy.write_bytes(library.read_bytes() + more)
    commands = [
        mpirun(1, "run", "ring", "--plugin", "mine", LD_LIBRARY_PATH=str(given / node))
        for node in ("a", "b")
    ]
    refused(mpmd(*commands), elsewhere, "rank 1", "plugin_sha256")


def test_a_chunk_size_of_the_plugin_that_differs_between_ranks_is_refused(elsewhere: Path) -> None:
    commands = [
        mpirun(1, "run", "ring", NCCL_DYNAMIC_CHUNK_SIZE=str(size)) for size in (1 << 20, 2 << 20)
    ]
    says = ("rank 1", "NCCL_DYNAMIC_CHUNK_SIZE", "1048576", "2097152")
    refused(mpmd(*commands), elsewhere, *says)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        variant("NCCL_NSOCKS_PERTHREAD", ("not set", "2")),
        ("NCCL_GPUDIRECTTCPX_RECV_SYNC", ("0", "1")),
        ("SOFTTCPX_FRAGMENTS", ("page", "mss")),
    ],
)
def test_a_variable_of_the_plugin_that_differs_between_ranks_names_rank_host_and_values(
    name: str, values: tuple[str, ...], elsewhere: Path
) -> None:
    # A named plugin: a variable of TCPX would ask for TCPX on one rank alone.
    commands = [
        mpirun(ranks, "run", "ring", "--plugin", "softtcpx",
               **({} if value == "not set" else {name: value}))
        for ranks, value in zip((2, 1), values, strict=True)
    ]  # fmt: skip
    host = socket.gethostname()
    says = (f"rank 2 on {host} differs from rank 0 on {host}", f"{name} ({values[0]}, {values[1]})",
            "same environment")  # fmt: skip
    refused(mpmd(*commands), elsewhere, *says)


def test_a_variable_that_names_a_place_of_a_node_may_differ(place: Path) -> None:
    options = ("run", "ring", "--plugin", "softtcpx", "--sizes", "8", "--hdf5", "none")
    commands = [
        mpirun(1, *options, NCCL_SOCKET_IFNAME=name, NCCL_DEBUG=level)
        for name, level in (("lo", "WARN"), ("=lo", "INFO"))
    ]
    result = run(mpmd(*commands), place)
    assert result.code == 0, result.text


#: A rank of a package that says another version of itself, as on a node that was not updated.
OTHER_VERSION = """
import sys, tcpx_mpi
tcpx_mpi.__version__ = "9.9.9"
from tcpx_mpi import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def test_ranks_of_different_versions_of_this_package_are_refused(elsewhere: Path) -> None:
    ours = mpirun(1, "run", "ring")
    theirs = [*ours[:3], sys.executable, "-c", OTHER_VERSION, "run", "ring"]
    says = ("rank 1 on", f"tcpx-mpi ({tcpx_mpi_version}, 9.9.9)", "same version of tcpx-mpi")
    refused(mpmd(ours, theirs), elsewhere, *says)


@pytest.mark.parametrize("how", [PARENT, variant(RANKS)])
def test_a_chunk_size_of_the_plugin_below_chunk_is_refused(how: str, elsewhere: Path) -> None:
    says = ("NCCL_DYNAMIC_CHUNK_SIZE (4096)", "--chunk (512K)", "--chunk 4096 or less")
    environ = {"NCCL_DYNAMIC_CHUNK_SIZE": "4096"}
    refused(start(how, 2, "ring"), elsewhere, *says, environ=environ)


# --- Plugins -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [PARENT, variant(RANKS)])
def test_a_text_file_is_no_plugin(how: str, elsewhere: Path, given: Path) -> None:
    path = given / "libnccl-net-text.so"
    path.write_text("#!/bin/sh\n" * 100)
    says = ("--plugin", str(path), "tcpx-mpi plugins")
    refused(start(how, 2, "ring", "--plugin", str(path)), elsewhere, *says)


def compiled(given: Path, source: str) -> Path:
    """A shared library of some C. Skips where nothing compiles it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs compiler: no cc, gcc or clang in PATH")
    library = given / "libnccl-net-made.so"
    (given / "made.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(given / "made.c")]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.mark.parametrize("how", [variant(PARENT), RANKS])
def test_a_library_without_a_plugins_symbol_is_no_plugin(
    how: str, elsewhere: Path, given: Path
) -> None:
    library = compiled(given, "int nothing_of_the_kind;")
    says = ("--plugin", str(library), "no NCCL network plugin", "ncclNetPlugin_v")
    refused(start(how, 2, "ring", "--plugin", str(library)), elsewhere, *says)


@pytest.mark.parametrize("how", [PARENT, variant(RANKS)])
def test_a_plugin_of_unknown_abi_versions_is_refused_with_those_that_it_has(
    how: str, elsewhere: Path, given: Path
) -> None:
    # v5 is older and v99 newer than anything that has been published for long.
    library = compiled(given, "void *ncclNetPlugin_v5[32]; void *ncclNetPlugin_v99[32];")
    says = ("--plugin", str(library), "v5", "supported")
    refused(start(how, 2, "ring", "--plugin", str(library)), elsewhere, *says)


NOEXEC = """
mount -t tmpfs -o noexec none "$1" || exit 77
cp "$2" "$1/libnccl-net-x.so" && shift 2 && exec "$@"
"""


@pytest.mark.parametrize("by_option", [variant(True), False])
def test_a_plugin_on_a_noexec_mount_is_refused_with_the_way_out(
    by_option: bool, elsewhere: Path, given: Path
) -> None:
    from tcpx_mpi.plugin.find import bundled_dir

    library = given / "libnccl-net-x.so"
    mounted = [shutil.which("unshare") or "unshare", "-m", "sh", "-c", NOEXEC, "sh", str(given),
               f"{bundled_dir()}/libnccl-net-null.so"]  # fmt: skip
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"]).returncode:
        pytest.skip("needs mounts: root must be able to mount a tmpfs in a namespace of its own")
    says = (str(library), "noexec: copy the file to an executable mount", "UCCL_TCPX_PLUGIN_PATH")
    named = ("--plugin", str(library)) if by_option else ()
    environ = {} if by_option else {"UCCL_TCPX_PLUGIN_PATH": str(library)}
    command = [*mounted, *start(PARENT, 2, "ring", *named)]
    refused(command, elsewhere, *says, code=2 if by_option else 3, environ=environ)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nosuch0", ("NCCL_SOCKET_IFNAME names nosuch0, which is none of ", "correct the name")),
        ("^", ("NCCL_SOCKET_IFNAME (^", ") leaves none of ", "exclude fewer")),
    ],
)
def test_a_plugin_without_devices_is_refused(
    spec: str, says: Sequence[str], elsewhere: Path
) -> None:
    every = ",".join(name for _, name in socket.if_nameindex())
    environ = {"NCCL_SOCKET_IFNAME": spec + every if spec == "^" else spec}
    says = ("finds 0 devices, ", *says)
    refused(start(PARENT, 2, "ring", "--plugin", "softtcpx"), elsewhere, *says, environ=environ)


@pytest.mark.parametrize(
    ("name", "value", "how"),
    [
        ("NCCL_GPUDIRECTTCPX_CTRL_DEV", "eth0", RANKS),
        variant("NCCL_GPUDIRECTTCPX_CTRL_DEV", "eth0", PARENT),
        ("UCCL_TCPX_PLUGIN_PATH", "/nosuch/libnccl-net-tcpx.so", PARENT),
        variant("UCCL_TCPX_PLUGIN_PATH", "/nosuch/libnccl-net-tcpx.so", RANKS),
    ],
)
def test_tcpx_that_is_asked_for_and_missing_is_not_replaced_by_another_plugin(
    name: str, value: str, how: str, elsewhere: Path
) -> None:
    if any(map(os.path.exists, TCPX_PLACES)):
        pytest.skip("needs no-tcpx: TCPX is installed here")
    says = (name, "--plugin softtcpx")
    refused(start(how, 2, "ring"), elsewhere, *says, code=3, environ={name: value})


# --- Files given to report -----------------------------------------------------------------------


def foreign(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["somebody"] = "else"


def truncated(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["data"] = list(range(10000))
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.touch(), "empty"),
        (lambda path: path.write_text("# a table\n" * 50), "no HDF5 file"),
        (foreign, "another program"),
        (truncated, "truncated or damaged"),
        (lambda path: path.mkdir(), "is a directory"),
    ],
    ids=["missing", "empty", "text", "foreign", "truncated", "directory"],
)
def test_a_file_that_is_no_run_is_refused_by_report(
    make: Callable[[Path], None], says: str, elsewhere: Path, given: Path
) -> None:
    make(given / "o.h5")
    refused(tcpx_mpi("report", "given/o.h5"), elsewhere, "given/o.h5", says)

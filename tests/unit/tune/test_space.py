"""The space of `tune`: files and what is wrong with them, kinds of plugins, whose a variable is."""

from __future__ import annotations

from pathlib import Path

import invented
import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.find import PluginFile, bundled_dir
from tcpx_mpi.tune.point import Change
from tcpx_mpi.tune.space import Space, read_space, reads_variable, space_of_kind


def space(tmp_path: Path, text: str) -> Space:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return read_space(str(path))


def plugin(name: str, path: str = "/nowhere.so") -> PluginFile:
    return PluginFile(path, "", 7, (7,), name)


def softtcpx() -> PluginFile:
    return plugin("softtcpx_v7", f"{bundled_dir()}/libnccl-net-softtcpx.so")


def test_values_and_ranges_of_options_and_variables(tmp_path: Path) -> None:
    found = space(
        tmp_path,
        'channels = [1, 4]\nchunk = ["256K", 262144, "1M"]\n[environment]\nA = [0, "x y"]\n'
        "B = { from = 1, to = 8, factor = 2 }\nC = { from = 0, to = 6, step = 3 }\n",
    )
    assert found.values == {
        "channels": ("1", "4"), "chunk": ("256K", "1M"), "A": ("0", "x y"),
        "B": ("1", "2", "4", "8"), "C": ("0", "3", "6"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "an empty space: name settings and values, like channels = [1, 4]"),
        ("[environment]\n", "an empty space"),
        ("channels = []", "channels has no values"),
        ("channels = 4", "channels has no values: write a list"),
        ("channels = [0]", "channels (0) is too small"),
        ("channels = [1.5]", "channels (1.5) is neither a whole number nor a text"),
        ("channels = [true]", "(True) is neither a whole number nor a text"),
        ('chunk = ["1MB"]', "1MB is ambiguous"),
        ("chanels = [1]", "chanels is no setting of a space (did you mean channels?)"),
        ("NCCL_NSOCKS_PERTHREAD = [1]", "variables stand below [environment]"),
        ("iters = [1]", "iters is no setting of a space"),
        ("environment = 3", "environment is no table of variables"),
        ("[environment]\nPATH = ['/tmp']", "is what a shell or the loader runs programs by"),
        ('[environment]\n"A;rm" = [1]', "is no name of a variable"),
        ("[environment]\nA = ['\\u0000']".replace("'", '"'), "is no name of a variable with a te"),
        ("[environment]\nUCCL_TCPX_NUM_CHANNELS = [1]", "is --channels of `run`: write channels ="),
        ("[environment]\nNCCL_P2P_NET_CHUNKSIZE = [1]", "is --chunk of `run`: write chunk ="),
        ("[environment]\nUCCL_TCPX_PERF_SIZE = [1]", "is -"),
        ("[environment]\nTCPX_MPI_LAUNCH_FILE = [1]", "TCPX_MPI_LAUNCH_FILE is no plugin's"),
        ("[environment]\nA = { from = 1 }", "is no range: write { from = 1, to = 8, factor = 2 }"),
        ("[environment]\nA = { from = 1, to = 2 }", "is no range"),
        ("[environment]\nA = { from = 0, to = 2, factor = 2 }", "is no range"),
        ("[environment]\nA = { from = 1, to = 2, step = 1, factor = 2 }", "is no range"),
        ("[environment]\nA = { from = 1, to = 100, step = 1 }", "has 65 values: use 64 or fewer"),
        ("[environment]\nA = { from = 3, to = 2, step = 1 }", "has no values"),
        ("[environment]\nA = { till = 3 }", "A.till is no part of a range"),
        ("channels = [1", "is no TOML"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        space(tmp_path, text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_values_of_today_are_left_out_and_settings_take_turns() -> None:
    header = invented.run_header(
        settings=[
            ("channels", "4", "default by cores left"), ("chunk_bytes", "524288", "default"),
            ("NCCL_DYNAMIC_CHUNK_SIZE", "524288", "derived from --chunk"),
        ],
        environment={"B": "2"},
    )  # fmt: skip
    values = {
        "channels": ("2", "4", "8"), "chunk": ("512K", "1M"), "B": ("2", "3"),
        "NCCL_DYNAMIC_CHUNK_SIZE": ("524288", "1048576"),
    }  # fmt: skip
    assert Space(values).singles(header) == [
        (Change("channels", "2", True),),
        (Change("chunk", "1M", True),),
        (Change("B", "3"),),
        (Change("NCCL_DYNAMIC_CHUNK_SIZE", "1048576"),),
        (Change("channels", "8", True),),
    ]


@pytest.mark.parametrize(
    ("name", "memory", "has", "lacks"),
    [
        ("softtcpx_v7", "host", {"SOFTTCPX_WORKERS", "progress_threads"}, {"SOFTTCPX_COPIES"}),
        ("softtcpx_v7", "cuda", {"SOFTTCPX_COPIES"}, {"progress_threads"}),
        ("GPUDirectTCPX_v7", "cuda", {"NCCL_SOCKET_NTHREADS"}, {"SOFTTCPX_WORKERS"}),
        ("null", "host", {"channels", "chunk", "window_recv"}, {"NCCL_NSOCKS_PERTHREAD"}),
    ],
)
def test_the_space_is_that_of_the_plugin_s_kind(
    name: str, memory: str, has: set[str], lacks: set[str]
) -> None:
    values = space_of_kind(name, memory, cores=4).values
    assert has <= values.keys()
    assert not lacks & values.keys()
    if memory == "host":
        assert all(each in ("2", "4", "1") for each in values.get("SOFTTCPX_WORKERS", ()))
    else:
        assert values["channels"][0] == "8"


def test_every_variable_of_softtcpx_s_space_is_its_own() -> None:
    for memory in ("host", "cuda"):
        assert space_of_kind("softtcpx_v7", memory, 16).require_known(softtcpx()) == []


def test_a_variable_that_only_nccl_reads_is_refused_and_a_strange_one_named() -> None:
    with pytest.raises(UsageError, match="NCCL_BUFFSIZE is none of softtcpx_v7's own: NCCL alone"):
        Space({"NCCL_BUFFSIZE": ("1",)}).require_known(softtcpx())
    assert Space({"SOFTTCPX_NOBODYS": ("1",)}).require_known(softtcpx()) == ["SOFTTCPX_NOBODYS"]


def test_a_name_is_found_across_the_pieces_that_a_file_is_read_in(tmp_path: Path) -> None:
    path = tmp_path / "p.so"
    path.write_bytes(b"-" * 65530 + b"NCCL_MINE_IS_LONG" + b"-" * 9)
    assert reads_variable(plugin("mine", str(path)), "NCCL_MINE_IS_LONG")
    assert not reads_variable(plugin("mine", str(path)), "NCCL_MINE_IS_LONGER")


def test_tcpx_s_variables_are_known_without_its_file() -> None:
    tcpx = plugin("GPUDirectTCPX_v7")
    assert reads_variable(tcpx, "NCCL_GPUDIRECTTCPX_SCHED_ALG")
    assert reads_variable(tcpx, "NCCL_NSOCKS_PERTHREAD")
    assert not reads_variable(tcpx, "NCCL_ALGO")

"""The file of --config: what it may say, what wins over it, and that --save-config makes it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.config.file import read_config
from tcpx_mpi.config.option import Option
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.softtcpx_defaults import with_channels, with_even_chunks

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def settings(file: Path, text: str, environ: dict[str, str] | None = None, **cli: str) -> Settings:
    file.write_text(text)
    return load_settings({"config": str(file), **cli}, environ or {})


def refusal(file: Path, text: str, **cli: str) -> str:
    with pytest.raises(UsageError) as caught:
        settings(file, text, **cli)
    said = str(caught.value)
    assert "\n" not in said
    return said


# --- What wins -----------------------------------------------------------------------------------


def test_the_file_wins_over_defaults_and_gives_way_to_the_environment_and_the_command_line(
    file: Path,
) -> None:
    text = 'pattern = "mesh"\nchannels = 3\niters = 7\nwindow_send = 5\n'
    found = settings(file, text, {"UCCL_TCPX_PERF_ITERS": "9"}, channels="4")
    assert (found.pattern, found.channels, found.iters, found.window_send) == ("mesh", 4, 9, 5)
    assert found.window_recv == 16
    assert found.sources["pattern"] == f"file {file}: pattern"
    assert found.sources["channels"] == "command line --channels"
    assert found.sources["iters"] == "environment UCCL_TCPX_PERF_ITERS"
    assert found.sources["window_send"] == f"file {file}: window_send"
    assert found.sources["window_recv"] == "default"
    assert found.sources["config_path"] == "command line --config"


def test_a_pattern_on_the_command_line_wins(file: Path) -> None:
    assert settings(file, 'pattern = "mesh"', pattern="ring").pattern == "ring"


def test_values_are_written_as_toml_has_them_or_as_they_are_typed(file: Path) -> None:
    found = settings(
        file,
        'maxbytes = "1.5M"\nminbytes = 1024\nstepfactor = 2\nper_iter_timing = true\n'
        'stall_timeout = "500ms"\ntimeout = 1.5\nconnect_timeout = 3\ndebug = true\n',
    )
    assert found.sizes == tuple(1024 << n for n in range(11))
    assert (found.per_iter_timing, found.debug) == (True, True)
    assert (found.stall_timeout_s, found.timeout_s, found.connect_timeout_s) == (0.5, 1.5, 3.0)


def test_one_end_of_the_sizes_on_the_command_line_goes_with_the_other_in_the_file(
    file: Path,
) -> None:
    text = "minbytes = 1024\nmaxbytes = 16384\nstepfactor = 2\n"
    assert settings(file, text, minbytes="8K").sizes == (8192, 16384)
    assert settings(file, text, sizes="7").sizes == (7,)
    assert settings(file, text, {"UCCL_TCPX_PERF_SIZE": "64"}).sizes == (64,)


def test_a_list_in_the_file_is_replaced_as_a_whole(file: Path) -> None:
    text = 'sizes = [1, "4K"]'
    assert settings(file, text).sizes == (1, 4096)
    assert settings(file, text, maxbytes="33M").sizes == (32 * MIB, 33 * MIB)
    assert settings(file, text, {"UCCL_TCPX_PERF_SIZE": "64"}).sizes == (64,)
    assert settings(file, text, sizes="7").sizes == (7,)
    # A step alone says neither where sizes begin nor where they end.
    assert "exclude each other" in refusal(file, text, stepfactor="2")
    assert "exclude each other" in refusal(file, text + "\nminbytes = 1")


# --- Bad files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("chanels = 3", ["chanels", "did you mean channels?", "--help"]),
        ("window-send = 3", ["window-send", "did you mean window_send?"]),
        ("[run]\niters = 3", ["run", "is no setting"]),
        ("config = 'other.toml'", ["config is no setting"]),
        ("save_config = 'other.toml'", ["save_config is no setting"]),
        ("iters = '3'", ["iters (3) is a text", "expected a whole number"]),
        ("iters = 3.5", ["iters (3.5) is a number", "expected a whole number"]),
        ("iters = true", ["iters (True) is a switch", "expected a whole number"]),
        ("iters = 0", ["iters (0) is too small", "use 1 or more"]),
        ("iters = 2026-11-21", ["iters (2026-11-21) is a date", "expected a whole number"]),
        ("per_iter_timing = 1", ["per_iter_timing (1)", "expected true or false"]),
        ("plugin = 3", ["plugin (3)", "expected a text in quotes"]),
        ("plugin = ['a']", ["plugin (['a']) is a list", "expected a text in quotes"]),
        ("chunk = [4]", ["chunk ([4]) is a list", 'expected a size such as 4096 or "4K"']),
        ('chunk = "64KB"', ["chunk", "64K or 64KiB"]),
        ("sizes = [4, true]", ["sizes (True)", "expected a list"]),
        ("against = 3", ["against (3)", 'expected a list such as ["raw", "mpi"]']),
        ("against = ['row']", ["against", "row is unknown", "raw, mpi"]),
        ("sizes = 4", ["sizes (4)", "expected a list"]),
        ("stall_timeout = 'soon'", ["stall_timeout", "soon"]),
        ("stall_timeout = nan", ["stall_timeout", "nan"]),
        ("ranks = 'two'", ["ranks (two)", "expected a whole number"]),
        ("pattern = 3", ["pattern (3)", "expected a text in quotes"]),
        ("iters = 3\niters = 4", ["no TOML", "line 2"]),
        ("iters = 3\nring", ["no TOML", "line 2", "--save-config"]),
    ],
)
def test_a_bad_file_is_one_line_with_the_file_the_place_and_what_was_expected(
    file: Path, text: str, parts: list[str]
) -> None:
    said = refusal(file, text)
    assert str(file) in said
    assert all(part in said for part in parts), said


def test_a_file_that_cannot_be_read_is_one_line(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_config(str(file))
    with pytest.raises(UsageError, match="is a directory"):
        read_config(str(tmp_path))
    file.write_bytes(b'plugin = "\xff"')
    with pytest.raises(UsageError, match="byte 10 is no UTF-8"):
        read_config(str(file))


def test_a_value_of_the_file_names_it_where_sizes_cannot_be(file: Path) -> None:
    said = refusal(file, "maxbytes = 1024", minbytes="1M")
    assert f"-e/--maxbytes (1K, file {file}: maxbytes)" in said


# --- Saving --------------------------------------------------------------------------------------

#: Letters that TOML must escape within quotes, and some that it must not.
TEXTS = st.text("\"\\\n\r\t\0\x01\x7f\x85 #'=[{aé\u2028\U0001f600", min_size=1).filter(str.strip)


def values_of(option: Option) -> st.SearchStrategy[str]:
    """What may be typed for an option."""
    special = {
        "sizes": st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50).map(
            lambda sizes: ",".join(map(str, sizes))
        ),
        "against": st.sampled_from(["none", "raw", "mpi", "raw,mpi,nccl"]),
        "nccl_preset": st.sampled_from(["tuned", "default,tuned"]),
        "nccl_env": st.sampled_from(["none", "NCCL_ALGO=Ring,Tree,NCCL_BUFFSIZE=1"]),
        # Fewer are refused beside a peer.
        "iters": st.integers(8, 64).map(str),
        "ci": st.decimals(min_value=0, max_value="0.999", places=3).map(str),
        "sample_space": st.integers(1 << 20, 1 << 30).map(str),
        "average": st.sampled_from("0123"),
        "gpu": st.sampled_from(["none", "0", "3,1, 2"]),
        "cpus": st.sampled_from(["0", "4-7,12", "9,8"]),
        "blocking": st.sampled_from("013"),
        "op": st.sampled_from(["sum", "avg"]),
        "datatype": st.sampled_from(["double", "bfloat16"]),
        "root": st.sampled_from(["all", "0", "3"]),
        "algo": st.sampled_from(["auto", "tree"]),
        "rate": st.sampled_from(["none", "0.5", "1000", "2.5e6,1,20"]),
        "skew": st.sampled_from(["balanced", "zipf"]),
        "moe": st.sampled_from(["mixtral", "deepseek-v3-small", "batch=128,hidden=4096"]),
        "sequence": st.sampled_from(["none", "a.txt", "a.txt,b.txt"]),
        "sequence_by": st.sampled_from(["iteration", "row"]),
        "gaps": st.sampled_from(["keep", "0", "2.5"]),
        "spread": st.sampled_from(["0", "0.25", "1"]),
        "seed": st.integers(0, (1 << 63) - 1).map(str),
        "multi_recv": st.integers(1, 8).map(str),
        "abi": st.sampled_from(["0", "6", "12"]),
        "memory": st.sampled_from(["host", "auto", "emulated"]),
        "unpack": st.sampled_from(["kernel", "launch", "d2d", "host", "none"]),
        "flush": st.sampled_from(["auto", "always", "never"]),
        "registration": st.sampled_from(["auto", "regmr", "dmabuf"]),
        "send_memory": st.sampled_from(["auto", "host"]),
        "recv_memory": st.sampled_from(["auto", "host"]),
        "screen": st.sampled_from(["auto", "always", "never"]),
    }
    if option.name in special:
        return special[option.name]
    if isinstance(option.default, bool):
        return st.sampled_from("01")
    if isinstance(option.default, float):
        return st.decimals(min_value="0.001", max_value=10**6, places=3).map(str)
    if isinstance(option.default, int) or option.metavar == "N":
        return st.integers(1, 16).map(str)
    return TEXTS


_SIZES = ("minbytes", "maxbytes", "stepbytes", "stepfactor")
SAVED = [option for option in OPTIONS if option.in_file and option.name not in _SIZES]


def saved(found: Settings, file: Path) -> Settings:
    """The settings that --config makes of what --save-config writes."""
    file.write_text(found.to_toml(), encoding="utf-8")
    return load_settings({"config": str(file)}, {})


def comparable(found: Settings) -> dict[str, Any]:
    values = dataclasses.asdict(found)
    return {k: v for k, v in values.items() if k not in ("sources", "config_path")}


@given(data=st.data())
def test_saved_settings_are_read_back_the_same(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(SAVED)))
    cli = {option.name: data.draw(values_of(option), option.name) for option in chosen}
    if "duration" in cli:
        cli.pop("ci", None)  # they exclude each other
    debug = {"TCPX_DEBUG": cli.pop("debug")} if "debug" in cli else {}
    before = load_settings({"pattern": "ring", **cli}, debug)
    assert comparable(saved(before, tmp_path_factory.mktemp("f") / "c.toml")) == comparable(before)


def test_every_option_has_its_line_with_its_source(file: Path) -> None:
    found = settings(file, "iters = 3", {"UCCL_TCPX_NUM_CHANNELS": "4"}, pattern="ring")
    lines = found.to_toml().splitlines()
    assert f"iters = 3  # file {file}: iters" in lines
    assert "channels = 4  # environment UCCL_TCPX_NUM_CHANNELS" in lines
    assert "# output_file: not set" in lines
    names = {line.removeprefix("# ").split(" = ")[0].split(":")[0] for line in lines}
    assert {option.name for option in SAVED} <= names


def test_the_temporary_directory_of_one_machine_is_not_saved_for_others(file: Path) -> None:
    assert "# spool: not set" in settings(file, "").to_toml()
    assert "\nspool = " in settings(file, 'spool = "/x"').to_toml()


def test_channels_and_chunks_by_the_cores_of_a_machine_are_not_saved_for_others(
    file: Path,
) -> None:
    made = with_even_chunks(with_channels(settings(file, ""), 14, 1))
    assert (made.channels, made.chunk_bytes) == (14, 483328)
    text = made.to_toml()
    assert "# channels: not set\n" in text
    assert "# chunk: not set\n" in text
    asked = settings(file, "channels = 3")
    assert "\nchannels = 3 " in with_even_chunks(with_channels(asked, 14, 1)).to_toml()


def test_what_a_machine_made_of_auto_is_not_saved_for_others(file: Path) -> None:
    found = settings(file, "")
    made = dataclasses.replace(
        found, memory="host", sources={**found.sources, "memory": "auto: no GPU here"}
    )
    assert 'memory = "auto"  # auto: no GPU here' in made.to_toml().splitlines()


def test_a_path_that_toml_cannot_hold_is_one_line(file: Path) -> None:
    with pytest.raises(UsageError, match="no UTF-8"):
        settings(file, "", spool="/x/\udcff").to_toml()


@pytest.mark.parametrize(
    "given",
    [
        {"against": "nccl", "nccl_env": "NCCL_AUTH_TOKEN=s3cret"},
        {"against": "nccl", "nccl_env": "NCCL_PROTO=Simple,NCCL_KEY=s3cret"},
        {"plugin": "https://me:s3cret@host/libnccl-net.so"},
        {"hdf5": "ghp_s3cretAAAAAAAAAAAAAAAAAAAAAA.h5"},
    ],
    ids=["variable", "second", "url", "shape"],
)
def test_a_secret_is_not_saved(file: Path, given: dict[str, str]) -> None:
    found = load_settings({"pattern": "ring", **given}, {})
    assert "s3cret" not in found.to_toml()
    file.write_text(found.to_toml())
    load_settings({"config": str(file)}, {})


def test_what_is_no_secret_beside_it_is_saved() -> None:
    found = load_settings({"pattern": "ring", "against": "nccl", "nccl_env": "NCCL_PROTO=LL"}, {})
    assert "NCCL_PROTO=LL" in found.to_toml()

"""Settings: what wins over what, where every value says it is from, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from tcpx_mpi.config.option import CHECKS, LAUNCH, TRANSPORT
from tcpx_mpi.config.options import IGNORED, OPTIONS
from tcpx_mpi.config.settings import MAX_SIZES, Settings, fingerprint_difference, load_settings
from tcpx_mpi.errors import UsageError

MIB = 1 << 20


def settings(environ: Mapping[str, str] | None = None, /, **cli: object) -> Settings:
    return load_settings({"pattern": "ring", **cli}, environ or {})


def refusal(environ: Mapping[str, str] | None = None, /, **cli: object) -> str:
    with pytest.raises(UsageError) as caught:
        settings(environ, **cli)
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- Defaults and precedence -------------------------------------------------------------------


def test_every_field_has_a_source_and_a_description() -> None:
    found = settings()
    names = {field.name for field in dataclasses.fields(found)} - {"sources"}
    assert set(found.sources) == names
    described = [name for name, _, _ in found.describe()]
    assert set(described) == names
    assert len(described) == len(names)
    assert all(source == "default" for name, _, source in found.describe() if name != "pattern")


def test_settings_are_described_in_the_order_that_results_have_them_in() -> None:
    # What a field stands behind, for those that the class has in another order.
    described = [name for name, _, _ in settings().describe()]
    assert described[:7] == ["pattern", "sizes", "iters", "warmup_iters", "agg_iters",
                             "run_cycles", "ci"]  # fmt: skip
    assert described[-1] == "debug"
    after = dict(zip(described[1:], described, strict=False))
    assert {name: after[name] for name in ("average", "op", "blocking", "timeout_s", "json_path",
                                           "per_iter_timing", "trace", "plugin", "channels",
                                           "profile")} == {
        "average": "most_pairs",
        "op": "check",
        "blocking": "unalign",
        "timeout_s": "blocking",
        "json_path": "report_cputime",
        "per_iter_timing": "prom_path",
        "trace": "one_way",
        "plugin": "wide",
        "channels": "recv_memory",
        "profile": "multi_recv",
    }  # fmt: skip


def test_the_command_line_wins_over_the_environment_which_wins_over_the_default() -> None:
    environ = {"UCCL_TCPX_NUM_CHANNELS": "4", "UCCL_TCPX_PERF_ITERS": "10"}
    found = settings(environ, channels="8")
    assert (found.channels, found.iters, found.window_send) == (8, 10, 12)
    assert found.sources["channels"] == "command line --channels"
    assert found.sources["iters"] == "environment UCCL_TCPX_PERF_ITERS"
    assert found.sources["window_send"] == "default"


def test_the_chunk_comes_from_its_own_variable_before_that_of_nccl() -> None:
    both = {"UCCL_TCPX_CHUNK_BYTES": "65536", "NCCL_P2P_NET_CHUNKSIZE": "131072"}
    assert settings(both).chunk_bytes == 65536
    found = settings({"NCCL_P2P_NET_CHUNKSIZE": "131072"})
    assert found.chunk_bytes == 131072
    assert found.sources["chunk_bytes"] == "environment NCCL_P2P_NET_CHUNKSIZE"


@pytest.mark.parametrize("name", ["UCCL_TCPX_DEBUG", "TCPX_DEBUG", "TCPX_PERF"])
def test_each_debug_variable_of_the_earlier_system_switches_debug_on(name: str) -> None:
    assert settings({name: "1"}).debug
    assert not settings({name: "0"}).debug


def test_a_variable_set_to_nothing_counts_as_not_set() -> None:
    assert settings({"UCCL_TCPX_NUM_CHANNELS": ""}).sources["channels"] == "default"


def test_the_plugin_path_of_the_earlier_system_is_kept_with_its_source() -> None:
    found = settings({"UCCL_TCPX_PLUGIN_PATH": "/x/libnccl-net-tcpx.so"})
    assert found.plugin == "/x/libnccl-net-tcpx.so"
    assert found.sources["plugin"] == "environment UCCL_TCPX_PLUGIN_PATH"


def test_the_unpack_mode_is_recorded_from_its_variable() -> None:
    assert settings({"UCCL_TCPX_UNPACK_IMPL": "d2d"}).unpack == "d2d"
    assert "UCCL_TCPX_UNPACK_IMPL (dma)" in refusal({"UCCL_TCPX_UNPACK_IMPL": "dma"})


def test_a_setting_nobody_declared_is_a_defect_not_a_default() -> None:
    with pytest.raises(TypeError, match="chunk_size"):
        settings(chunk_size="4K")


# --- Sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"minbytes": "4", "maxbytes": "32", "stepfactor": "2"}, (4, 8, 16, 32)),
        ({"minbytes": "4", "maxbytes": "33", "stepfactor": "3"}, (4, 12)),
        ({"minbytes": "1M", "maxbytes": "3M"}, (1 * MIB, 2 * MIB, 3 * MIB)),
        ({"minbytes": "0", "maxbytes": "8", "stepbytes": "4"}, (0, 4, 8)),
        ({"minbytes": "0", "maxbytes": "8", "stepfactor": "2"}, (0, 1, 2, 4, 8)),
        # As in nccl-tests: a factor above 1 wins over a step.
        ({"minbytes": "1", "maxbytes": "4", "stepbytes": "1", "stepfactor": "2"}, (1, 2, 4)),
        ({"minbytes": "7", "maxbytes": "7", "stepfactor": "2"}, (7,)),
        ({"sizes": "64K, 4k,1.5M"}, (65536, 4096, MIB + MIB // 2)),
        ({"maxbytes": "33M", "stepfactor": "1"}, (32 * MIB, 33 * MIB)),
    ],
)
def test_sizes_run_as_in_nccl_tests(given: dict[str, str], expected: tuple[int, ...]) -> None:
    assert settings(**given).sizes == expected


def test_the_size_variable_is_one_size_and_gives_way_to_either_end_on_the_command_line() -> None:
    environ = {"UCCL_TCPX_PERF_SIZE": "64M"}
    assert settings(environ).sizes == (64 * MIB,)
    assert settings(environ).sources["sizes"] == "environment UCCL_TCPX_PERF_SIZE"
    # Not 31M to 64M: the variable never meant a range.
    assert settings(environ, minbytes="31M").sizes == (31 * MIB, 32 * MIB)
    assert settings(environ, sizes="4K").sizes == (4096,)
    assert settings(environ, stepfactor="2").sizes == (64 * MIB,)


def test_the_source_of_the_sizes_names_every_option_that_made_them() -> None:
    found = settings(minbytes="1M", maxbytes="2M")
    assert found.sources["sizes"] == "command line --minbytes, command line --maxbytes"


def test_sizes_that_cannot_be_are_refused() -> None:
    text = refusal(minbytes="64M")
    assert "-b/--minbytes (64M)" in text
    assert "-e/--maxbytes (32M, the default)" in text
    assert "exclude each other" in refusal(sizes="4K", minbytes="1")
    assert f"{MAX_SIZES} sizes" in refusal(minbytes="0", maxbytes="1G", stepbytes="1")
    assert "64M or 64MiB" in refusal(minbytes="64MB")
    assert "too small" in refusal(stepbytes="0")
    assert "too small" in refusal(stepfactor="0")
    assert "lists no size" in refusal(sizes=",")
    assert "larger than" in refusal(maxbytes="2T")


# --- Limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"chunk": "0"}, ["--chunk (0)", "use 1 or more"]),
        ({"chunk": "2049K"}, ["--chunk (2049K)", "the largest chunk (2M)", "use 2M or less"]),
        ({"window_send": "17"}, ["--window-send (17)", "request limit (16)", "use 16 or less"]),
        ({"window_recv": "0"}, ["--window-recv (0)", "use 1 or more"]),
        ({"channels": "0"}, ["--channels (0)", "use 1 or more"]),
        ({"channels": "two"}, ["--channels (two)", "whole number"]),
        ({"iters": "0"}, ["-n/--iters (0)", "use 1 or more"]),
        ({"warmup_iters": "-1"}, ["-w/--warmup_iters (-1)", "use 0 or more"]),
        ({"agg_iters": "0"}, ["-m/--agg_iters (0)", "use 1 or more"]),
        ({"average": "4"}, ["-a/--average (4)", "0, 1, 2, 3"]),
        ({"blocking": "2"}, ["-z/--blocking (2)", "0, 1, 3"]),
        ({"memory": "disk"}, ["--memory (disk)", "auto, host, emulated, cuda"]),
        ({"stall_timeout": "0"}, ["--stall-timeout (0)", "30s"]),
        ({"connect_timeout": "soon"}, ["--connect-timeout", "soon"]),
        ({"per_iter_timing": "ring"}, ["-I/--per_iter_timing (ring)", "use 0 or 1"]),
        ({"seed": str(1 << 63)}, ["--seed", "63 bits"]),
        ({"ranks": "0"}, ["--ranks (0)", "use 1 or more"]),
        ({"plugin": ""}, ["--plugin is empty"]),
    ],
)
def test_a_value_out_of_bounds_is_one_line_that_says_what_to_do(
    given: dict[str, str], parts: list[str]
) -> None:
    text = refusal(**given)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UCCL_TCPX_NUM_CHANNELS", "0"),
        ("UCCL_TCPX_PERF_SIZE", "64MB"),
        ("UCCL_TCPX_PERF_ITERS", "many"),
        ("UCCL_TCPX_CHUNK_BYTES", "4194304"),
        ("NCCL_P2P_NET_CHUNKSIZE", "0"),
        ("UCCL_TCPX_DEBUG", "perhaps"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    assert refusal({name: value}).startswith(name)


def test_a_variable_that_an_option_overrides_need_not_be_one_we_take() -> None:
    # NCCL itself takes larger ones; unsetting NCCL's variable must not be the only way out.
    assert settings({"NCCL_P2P_NET_CHUNKSIZE": "4194304"}, chunk="1M").chunk_bytes == MIB
    assert settings({"UCCL_TCPX_PERF_SIZE": "64MB"}, sizes="4K").sizes == (4096,)


def test_the_limits_themselves_are_allowed() -> None:
    found = settings(chunk="2M", window_send="16", window_recv="1", warmup_iters="0", minbytes="0")
    assert (found.chunk_bytes, found.window_send, found.window_recv) == (2 * MIB, 16, 1)
    assert settings(chunk="1", run_cycles="0", timeout="0").chunk_bytes == 1


def test_times_take_units() -> None:
    assert settings(stall_timeout="500ms").stall_timeout_s == 0.5
    assert settings(timeout="2m").timeout_s == 120.0


def test_what_is_unpacked_depends_on_the_memory() -> None:
    assert settings(memory="host").unpack_mode() == "in place"
    assert settings(memory="cuda").unpack_mode() == "kernel"
    assert settings(memory="emulated", unpack="d2d").unpack_mode() == "d2d"
    assert not settings(memory="cuda", unpack="none").checks()


# --- Equality between ranks --------------------------------------------------------------------


def test_fingerprints_differ_in_what_must_be_equal_and_name_it() -> None:
    ours, theirs = settings().fingerprint(), settings(channels="4", seed="7").fingerprint()
    assert fingerprint_difference(ours, theirs) == "channels (2, 4), seed (1, 7)"
    assert fingerprint_difference(ours, settings().fingerprint()) == ""


def test_fingerprints_do_not_differ_in_what_belongs_to_one_node_or_to_the_source() -> None:
    here = settings(spool="/a", ranks="2").fingerprint()
    assert here == settings({"TCPX_DEBUG": "1"}, spool="/b").fingerprint()
    assert settings(channels="2").fingerprint() == settings().fingerprint()


def test_a_fingerprint_of_nothing_differs_in_all_that_the_other_has() -> None:
    one = "NCCL_NSOCKS_PERTHREAD=4\nSOFTTCPX_SNDBUF=1M"
    named = "NCCL_NSOCKS_PERTHREAD (not set, 4), SOFTTCPX_SNDBUF (not set, 1M)"
    assert fingerprint_difference("", one) == named
    assert fingerprint_difference(one, "").startswith("NCCL_NSOCKS_PERTHREAD (4, not set)")
    assert fingerprint_difference("", "") == ""


def test_a_fingerprint_takes_more_pairs_and_line_breaks() -> None:
    one = settings(hdf5="a\nb.h5").fingerprint([("plugin", "x")])
    other = settings(hdf5="a\nb.h5").fingerprint([("plugin", "y")])
    assert fingerprint_difference(one, other) == "plugin (x, y)"


# --- The table of options ------------------------------------------------------------------------


def test_letters_are_those_of_nccl_tests_and_ours_have_none_but_v() -> None:
    letters = [option.letter[1:] for option in OPTIONS if option.letter]
    # -v is nobody's in nccl-tests, and means the same in all programs.
    assert sorted(letters) == sorted("beifodrnwmNaczTSCIKJuM" + "v")
    assert sorted(letter[1:] for letter in IGNORED) == sorted("tgpGRxDV")
    ours = (TRANSPORT, CHECKS, LAUNCH)
    assert all(
        not option.letter and "_" not in option.option for option in OPTIONS if option.group in ours
    )


def test_every_default_passes_its_own_limits() -> None:
    for option in OPTIONS:
        if option.default_text:
            assert option.parse(option.label, option.default_text) == option.default, option.name


# --- Peers beside the plugin ----------------------------------------------------------------------


def test_beside_a_peer_iterations_are_160_and_say_why() -> None:
    assert settings(against="none").against == ()
    found = settings(against="raw,mpi")
    assert found.against == ("raw", "mpi")
    assert found.iters == 160
    assert ("iters", "160", "default with --against") in found.describe()
    assert settings().iters == 20


def test_iterations_that_were_asked_for_stay_beside_a_peer() -> None:
    found = settings(against="raw", iters="8")
    assert (found.iters, found.sources["iters"]) == (8, "command line --iters")
    found = settings({"UCCL_TCPX_PERF_ITERS": "40"}, against="raw")
    assert found.iters == 40


@pytest.mark.parametrize("iters", ["1", "7"])
def test_too_few_iterations_for_8_blocks_are_refused(iters: str) -> None:
    text = refusal(against="raw", iters=iters)
    assert text == (
        f"-n/--iters ({iters}) is too small with --against, which compares at least 8 blocks of "
        "iterations; use 8 or more"
    )
    assert settings(iters=iters).iters == int(iters)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("nosuch", "nosuch is unknown"),
        ("raw,nosuch", "nosuch is unknown"),
        ("RAW", "RAW is unknown"),
        ("raw,raw", "raw is there twice"),
        (",", "(,) has no name"),
        ("", "() has no name"),
    ],
)
def test_peers_that_are_not_are_refused_with_those_that_are(names: str, words: str) -> None:
    text = refusal(against=names)
    assert text.startswith("--against")
    assert words in text
    assert text.endswith("; use one or more of raw, mpi, nccl")


def test_nccl_has_all_presets_unless_asked_for_otherwise() -> None:
    found = settings(against="nccl")
    assert (found.nccl_presets, found.nccl_env) == (("tuned", "default"), ())
    assert settings(against="nccl", nccl_preset="tuned").nccl_presets == ("tuned",)
    found = settings(against="nccl", nccl_preset="default,tuned",
                     nccl_env="NCCL_ALGO=Ring,Tree, NCCL_BUFFSIZE=4194304")  # fmt: skip
    assert found.nccl_presets == ("default", "tuned")
    assert found.nccl_env == ("NCCL_ALGO=Ring,Tree", "NCCL_BUFFSIZE=4194304")
    assert settings(nccl_env="none").nccl_env == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nccl_preset": "none"}, "--nccl-preset: none is unknown; use one or more of tuned, def"),
        ({"nccl_env": "BUFFSIZE=1"}, "--nccl-env (BUFFSIZE=1) sets no variable of that kind"),
        ({"nccl_env": "NCCL_ALGO"}, "--nccl-env (NCCL_ALGO) sets no variable of that kind"),
        ({"nccl_env": "NCCL_ALGO="}, "--nccl-env (NCCL_ALGO=) sets no variable of that kind"),
        ({"nccl_env": ""}, "--nccl-env () sets no variable of that kind"),
        ({"nccl_env": "NCCL_=1"}, "--nccl-env (NCCL_=1) sets no variable of that kind"),
        ({"nccl_env": "NCCL_A=1,,NCCL_B=2"}, "--nccl-env () sets no variable of that kind"),
        ({"nccl_env": "NCCL_A=1,NCCL_A=2"}, "--nccl-env: NCCL_A is there twice; give it once"),
        ({"nccl_env": "NCCL_ALGO=Ring,NCCL_P2P_DISABLE=0"}, "--nccl-env: NCCL_P2P_DISABLE keeps it "
         "on its own TCP sockets"),
    ],
)  # fmt: skip
def test_settings_of_nccl_that_cannot_be_are_one_line(options: dict[str, str], words: str) -> None:
    assert refusal(against="nccl", **options).startswith(words)


def test_ranks_with_other_peers_differ() -> None:
    ours, theirs = settings(against="raw").fingerprint(), settings(against="mpi").fingerprint()
    assert fingerprint_difference(ours, theirs) == "against (raw, mpi)"

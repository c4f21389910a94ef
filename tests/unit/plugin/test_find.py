"""Which plugin a run uses: on a file system and in an environment given as arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.options import ABI_VERSIONS
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import PluginMissing, UsageError
from tcpx_mpi.plugin import find as plugins
from tcpx_mpi.plugin.find import (
    TCPX_PLACES,
    PluginChoice,
    candidates,
    find_plugin,
    interface_choice,
)

BUNDLED = "/opt/tcpx_mpi"
SOFTTCPX = f"{BUNDLED}/libnccl-net-softtcpx.so"
NULL = f"{BUNDLED}/libnccl-net-null.so"


def only(*paths: str) -> Callable[[str], bool]:
    """A file system that has these and the bundled plugins."""
    return {SOFTTCPX, NULL, *paths}.__contains__


def find(spec: str, exists: Callable[[str], bool] | None = None, **environ: str) -> PluginChoice:
    return find_plugin(spec, environ, BUNDLED, exists or only())


# --- By default --------------------------------------------------------------------------------


def test_with_nothing_that_asks_for_tcpx_the_default_is_softtcpx_and_says_so() -> None:
    choice = find("auto")
    assert choice.path == SOFTTCPX
    assert "nothing asks for TCPX" in choice.how
    assert not choice.asked


def test_a_plugin_of_a_file_of_settings_is_taken_and_not_silently_another(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    for plugin, said in (("null", "null"), ("softtcpx", "softtcpx")):
        config.write_text(f'pattern = "ring"\nplugin = "{plugin}"\n')
        settings = load_settings({"config": str(config)}, {})
        assert plugins.choose_plugin(settings, {}).path.endswith(f"libnccl-net-{said}.so")
    config.write_text('pattern = "ring"\nplugin = "/nowhere/libnccl-net.so"\n')
    settings = load_settings({"config": str(config)}, {})
    with pytest.raises(PluginMissing, match=r"/nowhere/libnccl-net\.so"):
        plugins.choose_plugin(settings, {})


@pytest.mark.parametrize("place", TCPX_PLACES)
def test_tcpx_in_any_of_its_places_is_the_default(place: str) -> None:
    assert find("auto", only(place)).path == place


def test_the_first_of_several_tcpx_places_is_taken() -> None:
    assert find("auto", only(*TCPX_PLACES)).path == TCPX_PLACES[0]


def test_the_path_variable_wins_over_an_installed_tcpx() -> None:
    choice = find("auto", only("/x/net.so", *TCPX_PLACES), UCCL_TCPX_PLUGIN_PATH="/x/net.so")
    assert choice.path == "/x/net.so"
    assert choice.how == "UCCL_TCPX_PLUGIN_PATH"


def test_a_path_variable_without_its_file_is_a_missing_plugin_never_softtcpx() -> None:
    with pytest.raises(PluginMissing, match=r"UCCL_TCPX_PLUGIN_PATH \(/x/net.so\)"):
        find("auto", only(*TCPX_PLACES), UCCL_TCPX_PLUGIN_PATH="/x/net.so")


@pytest.mark.parametrize(
    ("environ", "extra", "reason"),
    [
        (
            {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1"},
            (),
            "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
        ),
        (
            {"NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/tmp"},
            (),
            "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX",
        ),
        ({}, ("/run/tcpx",), "/run/tcpx"),
    ],
)
def test_a_missing_tcpx_that_something_asks_for_is_refused_with_the_way_out(
    environ: dict[str, str], extra: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(PluginMissing) as caught:
        find_plugin("auto", environ, BUNDLED, only(*extra))
    text = str(caught.value)
    assert reason in text
    assert TCPX_PLACES[0] in text
    assert TCPX_PLACES[-1] in text
    assert "--plugin softtcpx" in text
    assert "\n" not in text


def test_what_asks_for_tcpx_is_said_where_it_is_found() -> None:
    choice = find("auto", only(TCPX_PLACES[2]), NCCL_GPUDIRECTTCPX_CTRL_DEV="eth0")
    assert choice.path == TCPX_PLACES[2]
    assert "NCCL_GPUDIRECTTCPX_CTRL_DEV" in choice.how


# --- By name or path ---------------------------------------------------------------------------


def test_softtcpx_by_name_is_taken_even_where_tcpx_is_asked_for() -> None:
    choice = find("softtcpx", only(*TCPX_PLACES), NCCL_GPUDIRECTTCPX_SOCKET_IFNAME="lo")
    assert (choice.path, choice.asked) == (SOFTTCPX, True)
    assert find("null").path == NULL


def test_a_bundled_plugin_that_was_not_built_is_missing() -> None:
    with pytest.raises(PluginMissing, match="install"):
        find_plugin("softtcpx", {}, "/elsewhere", only())


def test_tcpx_by_name_is_found_in_its_places_or_missing() -> None:
    assert find("tcpx", only(TCPX_PLACES[3])).path == TCPX_PLACES[3]
    with pytest.raises(PluginMissing, match="--plugin tcpx"):
        find("tcpx")


def test_another_name_is_searched_in_the_library_path_then_left_to_dlopen() -> None:
    there = only("/b/libnccl-net-ofi.so")
    assert find("ofi", there, LD_LIBRARY_PATH="/a::/b").path == "/b/libnccl-net-ofi.so"
    assert find("ofi", there, LD_LIBRARY_PATH="/a").path == "libnccl-net-ofi.so"
    assert find("libnccl-net-ofi.so", there, LD_LIBRARY_PATH="/b").path == "/b/libnccl-net-ofi.so"


def test_a_path_that_is_not_there_is_a_missing_plugin() -> None:
    with pytest.raises(PluginMissing, match=r"--plugin \(/x/y.so\): no such file"):
        find("/x/y.so")


def test_a_relative_path_becomes_absolute() -> None:
    assert find("./y.so", only("./y.so")).path == os.path.abspath("y.so")
    assert find("y.so", only("y.so")).path == os.path.abspath("y.so")


def test_the_settings_choose_as_the_command_line_or_the_environment_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "bundled_dir", lambda: BUNDLED)
    environ = {"UCCL_TCPX_PLUGIN_PATH": "/x/gone.so"}
    by_variable = load_settings({"pattern": "ring"}, environ)
    with pytest.raises(PluginMissing):
        plugins.choose_plugin(by_variable, environ, only())
    by_option = load_settings({"pattern": "ring", "plugin": "/x/gone.so"}, environ)
    with pytest.raises(PluginMissing):
        plugins.choose_plugin(by_option, environ, only())
    past_the_variable = load_settings({"pattern": "ring", "plugin": "softtcpx"}, environ)
    assert plugins.choose_plugin(past_the_variable, environ, only()).path == SOFTTCPX


# --- What can be listed ------------------------------------------------------------------------


def test_candidates_are_listed_once_in_the_order_of_preference() -> None:
    files = {"/libs": ["libnccl-net-ofi.so", "libnccl.so", "libnccl-net.so.1"]}
    environ = {"UCCL_TCPX_PLUGIN_PATH": TCPX_PLACES[1], "LD_LIBRARY_PATH": "/libs:/gone"}
    found = candidates(environ, BUNDLED, only("/libs"), files.__getitem__)
    assert [(choice.how, choice.path) for choice in found] == [
        ("UCCL_TCPX_PLUGIN_PATH", TCPX_PLACES[1]),
        ("tcpx", TCPX_PLACES[0]),
        ("tcpx", TCPX_PLACES[2]),
        ("tcpx", TCPX_PLACES[3]),
        ("LD_LIBRARY_PATH", "/libs/libnccl-net-ofi.so"),
        ("softtcpx", SOFTTCPX),
        ("null", NULL),
        ("tap", f"{BUNDLED}/libnccl-net-tap.so"),
    ]


# --- Versions of the table -----------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["softtcpx", "auto"])
@pytest.mark.parametrize(("abi", "name"), [(0, ""), (7, ""), (6, "-v6"), (12, "-v12")])
def test_softtcpx_has_a_file_for_each_version(spec: str, abi: int, name: str) -> None:
    path = f"{BUNDLED}/libnccl-net-softtcpx{name}.so"
    choice = find_plugin(spec, {}, BUNDLED, only(path), abi)
    assert (choice.path, choice.abi) == (path, abi)


def test_the_tap_has_a_file_a_version_and_says_what_it_passes_calls_on_to() -> None:
    there = only(f"{BUNDLED}/libnccl-net-tap.so", f"{BUNDLED}/libnccl-net-tap-v9.so")
    newer = find_plugin("tap", {"TCPX_TAP_PLUGIN": "ofi"}, BUNDLED, there, 9)
    assert newer.path == f"{BUNDLED}/libnccl-net-tap-v9.so"
    assert newer.how.endswith("; it passes calls on to ofi (TCPX_TAP_PLUGIN)")
    assert find_plugin("tap", {}, BUNDLED, there).how.endswith("on to nothing (TCPX_TAP_PLUGIN)")


def test_any_other_plugin_has_all_its_versions_in_one_file() -> None:
    there = only("/x/net.so")
    assert find_plugin("/x/net.so", {}, BUNDLED, there, 9) == PluginChoice(
        "/x/net.so", "--plugin /x/net.so", asked=True, abi=9
    )
    assert find_plugin("null", {}, BUNDLED, there, 9).path == NULL


def test_a_version_that_the_file_does_not_offer_is_refused_with_those_that_it_does() -> None:
    path = os.path.join(plugins.bundled_dir(), "libnccl-net-null.so")
    with pytest.raises(UsageError, match=r"offers ABI v7, not the v9 .*--abi"):
        plugins.inspect(PluginChoice(path, "here", asked=True, abi=9))


def test_every_version_that_can_be_asked_for_can_be_driven() -> None:
    assert list(ABI_VERSIONS) == _native.KNOWN_ABI


# --- Loading -----------------------------------------------------------------------------------


def test_a_real_plugin_is_inspected_without_being_initialised() -> None:
    path = os.path.join(plugins.bundled_dir(), "libnccl-net-null.so")
    for _ in range(2):  # init would be refused the second time
        file = plugins.inspect(PluginChoice(path, "here", asked=True))
    assert file.path == os.path.realpath(path)
    assert (file.abi, file.abi_versions) == (7, (7,))
    assert file.sha256 == plugins.sha256_of(path)
    assert len(file.sha256) == 64


@pytest.mark.parametrize(("asked", "error"), [(True, UsageError), (False, PluginMissing)])
def test_a_file_that_is_no_plugin_is_a_mistake_of_whoever_named_it(
    tmp_path: Path, asked: bool, error: type[Exception]
) -> None:
    path = tmp_path / "libnccl-net-x.so"
    path.write_text("no library")
    with pytest.raises(error, match=r"libnccl-net-x\.so"):
        plugins.inspect(PluginChoice(str(path), "here", asked))


@pytest.mark.parametrize(("asked", "error"), [(True, UsageError), (False, PluginMissing)])
def test_a_file_that_cannot_be_mapped_is_to_be_copied_to_an_executable_mount(
    monkeypatch: pytest.MonkeyPatch, asked: bool, error: type[Exception]
) -> None:
    place = TCPX_PLACES[2]  # where a container-optimised system mounts it noexec

    class Native:
        LibraryError = OSError

        @staticmethod
        def probe(path: str, abi: int) -> None:
            raise OSError(
                f"cannot load {path}: {path}: failed to map segment from shared object: "
                "Operation not permitted"
            )

    monkeypatch.setattr(plugins, "_native", Native)
    with pytest.raises(error) as caught:
        plugins.inspect(PluginChoice(place, "TCPX is installed", asked), apart=False)
    text = str(caught.value)
    assert place in text
    assert "noexec: copy the file to an executable mount" in text
    assert "--plugin or UCCL_TCPX_PLUGIN_PATH" in text
    assert "\n" not in text


# --- NCCL_DYNAMIC_CHUNK_SIZE -------------------------------------------------------------------


def prepared(chunk: str, **environ: str) -> list[tuple[str, str, str]]:
    settings = load_settings({"pattern": "ring", "chunk": chunk}, environ)
    return plugins.prepare_environment(settings, environ)


def test_an_unset_dynamic_chunk_size_becomes_the_chunk() -> None:
    name = "NCCL_DYNAMIC_CHUNK_SIZE"
    assert prepared("64K") == [(name, "65536", "derived from --chunk")]
    assert prepared("64K", NCCL_DYNAMIC_CHUNK_SIZE="") == [(name, "65536", "derived from --chunk")]


def test_an_equal_or_larger_dynamic_chunk_size_is_kept_and_recorded() -> None:
    name = "NCCL_DYNAMIC_CHUNK_SIZE"
    for value in ("65536", "1048576"):
        found = prepared("64K", NCCL_DYNAMIC_CHUNK_SIZE=value)
        assert found == [(name, value, "environment")]


@pytest.mark.parametrize("value", ["65535", "0", "512K"])
def test_a_smaller_or_unreadable_dynamic_chunk_size_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=f"NCCL_DYNAMIC_CHUNK_SIZE \\({value}\\)"):
        prepared("64K", NCCL_DYNAMIC_CHUNK_SIZE=value)


def test_an_unset_answer_timeout_leaves_the_waiting_to_our_own() -> None:
    name = "SOFTTCPX_ANSWER_TIMEOUT_MS"
    assert plugins.answer_variables({name: ""}) == [
        (name, "0", "no limit but that of --connect-timeout")
    ]
    assert plugins.answer_variables({name: "90000"}) == []


def test_the_interfaces_of_tcpx_win_over_those_of_nccl() -> None:
    nccl = {"NCCL_SOCKET_IFNAME": " eth0 "}
    both = {**nccl, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1,eth2"}
    for plugin in ("softtcpx_v9", "GPUDirectTCPX_v7"):
        assert interface_choice(plugin, both) == ("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1,eth2")
        assert interface_choice(plugin, {**nccl, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": ""}) == (
            "NCCL_SOCKET_IFNAME", "eth0",
        )  # fmt: skip
        assert interface_choice(plugin, {}) == ("", "")
    assert interface_choice("a mesh", both) == ("NCCL_SOCKET_IFNAME", "eth0")


@pytest.mark.parametrize(
    ("value", "way_out"),
    [("32768", "use --chunk 32768 or less"), ("0", "unset it, or set 64K or more")],
)
def test_a_chunk_size_that_is_too_small_is_refused_with_a_way_out(value: str, way_out: str) -> None:
    with pytest.raises(UsageError, match=f"{way_out}$"):
        prepared("64K", NCCL_DYNAMIC_CHUNK_SIZE=value)

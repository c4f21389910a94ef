"""Plugins of others with something wrong before the first connection: one line, and a code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jobs import Result, mpirun, run, tcpx_mpi
from refplugin_build import build
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir

ODD = Path(__file__).parents[1] / "refplugin" / "oddplugin.cc"
SOFTTCPX = Path(bundled_dir(), "libnccl-net-softtcpx.so")
RUN = ("run", "ring", "-b", "8", "-e", "8", "-n", "2", "--hdf5", "none", "--ranks", "2")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("oddplugin"), ODD))


def ran(place: Path, mode: str, *command: str, **more: str) -> Result:
    return run(tcpx_mpi(*command), place, {"ODD_MODE": mode, "ODD_REAL": str(SOFTTCPX), **more})


def require_one_line(result: Result, code: int, said: str) -> None:
    """One line of ours says so, and nothing is a traceback."""
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    assert said in result.errors[0], result.text
    assert "Traceback" not in result.err, result.text


VARIANT_NAMES = [variant(mode) for mode in ("no name", "long name", "binary device")]


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("load aborts", 2, "loading the plugin crashed by SIGABRT"),
        ("init aborts", 4, "init of the plugin crashed by SIGABRT"),
        variant("init crashes", 4, "init of the plugin crashed by SIGSEGV"),
        variant("init is killed", 4, "init of the plugin ended its process by SIGKILL"),
        variant("init exits", 4, "init of the plugin ended this process by exit(0)"),
        ("properties fail", 4, "plugin call getProperties returned 2 (system error): device 0"),
        variant("properties crash", 4, "the devices of the plugin crashed by SIGABRT"),
        variant("no init", 4, "has no init"),
        variant("no isend", 4, "has no isend"),
        ("no test, close_recv", 4, "has no test, closeRecv"),
    ],
)
def test_a_plugin_that_does_not_come_up_is_one_line(
    mode: str, code: int, said: str, odd: str, place: Path
) -> None:
    require_one_line(ran(place, mode, *RUN, "--plugin", odd), code, said)


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("init aborts", "has crashed by SIGABRT"),
        variant("init crashes", "has crashed by SIGSEGV"),
        variant("init exits", "has ended this process by exit(0)"),
        variant("properties fail", "plugin call getProperties returned 2 (system error): device 0"),
    ],
)
def test_one_that_does_so_in_ranks_alone_is_named_by_a_rank(
    mode: str, said: str, odd: str, place: Path
) -> None:
    result = ran(place, mode, *RUN, "--plugin", odd, ODD_IN_RANKS="1")
    assert result.code == 4, result.text
    assert any(said in line and odd in line for line in result.errors), result.text


@pytest.mark.multirank
@pytest.mark.parametrize("mode", [variant(""), "binary name", *VARIANT_NAMES])
def test_a_plugin_may_call_itself_and_its_devices_what_it_likes(
    mode: str, odd: str, place: Path
) -> None:
    result = ran(place, mode, *RUN, "--plugin", odd)
    assert result.code == 0, result.text
    assert ("od\\xff\\x01\\x0ad" in result.out) == mode.startswith("binary"), result.text


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("device name changes", "device 0: its name changes from "),
        *(
            variant(mode, said)
            for mode, said in (
                ("device name=", "device 0: its name is empty or NULL: its number is used"),
                ("device name=NULL", "device 0: its name is empty or NULL: its number is used"),
                ("device name=long", "device 0: its name is none of an interface"),
                ("device name=a\x1b[2Jb", "device 0: its name is no printable text, "),
                ("pci path changes", "device 0: its pciPath changes from "),
                ("max_recvs=0", "device 0: its maxRecvs is 0, where 1 or more can be"),
                ("max_comms=-7", "device 0: its maxComms is -7, where 1 or more can be"),
                ("speed=-5", "device 0: its speed is -5 Mb/s"),
                ("latency", "device 0: its latency is nan us"),
            )
        ),
    ],
)
def test_what_cannot_be_of_a_device_is_told_and_the_run_goes_on(
    mode: str, said: str, odd: str, place: Path
) -> None:
    result = ran(place, mode, *RUN, "--plugin", odd)
    assert result.code == 0, result.text
    assert said in result.out, result.text
    assert ("NIC device0" in result.out) == mode.startswith("device name"), result.text


@pytest.mark.multirank
@pytest.mark.parametrize("count", [variant("-1"), "1000000000"])
def test_a_number_of_devices_that_cannot_be_is_one_line(count: str, odd: str, place: Path) -> None:
    result = ran(place, f"devices={count}", *RUN, "--plugin", odd)
    require_one_line(result, 4, f"says that it has {count} devices, where 0 to 1024 can be")


@pytest.fixture(
    params=[
        variant(100),
        variant(4096),
        60_000,
    ]
)
def cut_off(request: pytest.FixtureRequest, place: Path) -> Path:
    path = place / "libnccl-net-cut.so"
    path.write_bytes(SOFTTCPX.read_bytes()[: request.param])
    return path


def test_a_file_that_was_cut_off_is_a_line_of_plugins(cut_off: Path, place: Path) -> None:
    require_one_line(ran(place, "", "plugins", "--plugin", str(cut_off)), 2, str(cut_off))


@pytest.mark.multirank
def test_a_file_that_was_cut_off_is_a_line_of_a_run(cut_off: Path, place: Path) -> None:
    require_one_line(ran(place, "", *RUN, "--plugin", str(cut_off)), 2, str(cut_off))
    result = run(mpirun(2, *RUN[:-2], "--plugin", str(cut_off)), place)
    assert result.code == 2, result.text
    assert any(str(cut_off) in line for line in result.errors), result.text


def test_one_that_was_cut_off_among_others_hides_none_of_them(place: Path) -> None:
    (place / "libnccl-net-cut.so").write_bytes(SOFTTCPX.read_bytes()[:60_000])
    listed = ran(
        place, "", "plugins", LD_LIBRARY_PATH=f"{place}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    )
    assert listed.code == 0, listed.text
    assert "crashed by SIGBUS: the file ends at 60000 bytes" in listed.out
    assert "softtcpx_v7" in listed.out


@pytest.mark.multirank
@pytest.mark.parametrize(("mode", "said"), [("init aborts", "init crashed by SIGABRT")])
def test_preflight_says_it_too(mode: str, said: str, odd: str, place: Path) -> None:
    result = ran(place, mode, "preflight", "--plugin", odd)
    assert said in result.out, result.text

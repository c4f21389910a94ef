"""A call of the plugin that never returns ends a process with sessions, by their limit for it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from refplugin_build import build
from variants import variant

from tcpx_mpi import Session
from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.find import bundled_dir

HERE = Path(__file__).parent
VARIABLE = "TCPX_P2P_CALL_TIMEOUT_S"
LIMIT_S = 100
#: Longer than any call takes on a busy machine.
PATIENCE_S = 2


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("planted"), HERE.parents[1] / "refplugin" / "planted.cc")


def ended(
    planted: Path,
    call: str,
    what: str,
    patience: str | None,
    wait: str = "",
    end_s: float = 0,
    **options: object,
) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ, "PLANT_REAL": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "PLANT_CALL": call, "PLANT_DO": what, "PLANT_WAIT": wait,
        **({} if patience is None else {VARIABLE: patience}),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(HERE / "hanging_call.py"), str(planted), repr(options),
         str(end_s)],
        env=environ, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("connect", "hang"),
        ("test", "spin"),
        *(variant(call, "hang") for call in ("init", "listen", "accept", "closeListen", "regMr",
          "isend", "irecv", "test", "irecvConsumed", "deregMr", "closeSend", "closeRecv")),
        *(variant("load", what) for what in ("hang", "spin")),
    ],
)  # fmt: skip
def test_a_call_that_never_returns_ends_the_process_with_its_name(
    call: str, what: str, planted: Path
) -> None:
    found = ended(planted, call, what, str(PATIENCE_S))
    name = "isend or irecv" if call in ("isend", "irecv") else call
    assert found.returncode == 6, found.stderr
    assert found.stderr.startswith(f"tcpx-mpi: error: plugin call {name} "), found.stderr
    assert found.stderr.endswith(f"longer than {VARIABLE} ({PATIENCE_S} s)\n"), found.stderr


@pytest.mark.parametrize(
    ("what", "patience", "limit"),
    [
        ("spin", None, f"call_timeout_s ({PATIENCE_S} s)"),
        variant("hang", str(PATIENCE_S), f"{VARIABLE} ({PATIENCE_S} s)"),
    ],
)
def test_a_plugin_that_holds_the_end_of_the_process_ends_it_with_its_name(
    what: str, patience: str | None, limit: str, planted: Path
) -> None:
    found = ended(planted, "unload", what, patience, call_timeout_s=PATIENCE_S)
    assert (found.returncode, found.stdout) == (6, "right\n")
    assert found.stderr == (
        f"tcpx-mpi: error: this process did not end within {limit}: it is held by the plugin "
        f"{planted}\n"
    )


def test_an_end_that_others_hold_is_their_own_affair(planted: Path) -> None:
    found = ended(planted, "none", "hang", None, end_s=1.5, call_timeout_s=0.5)
    assert (found.returncode, found.stdout, found.stderr) == (0, "right\n", "")


@pytest.mark.parametrize(
    ("call", "options", "limit"),
    [
        variant("connect", {"call_timeout_s": PATIENCE_S}, f"call_timeout_s ({PATIENCE_S} s)"),
        ("test", {"call_timeout_s": PATIENCE_S}, f"call_timeout_s ({PATIENCE_S} s)"),
        variant("isend", {}, "call_timeout_s (30 s)"),
    ],
)
def test_without_the_variable_a_session_has_a_limit_of_its_own(
    call: str, options: dict[str, object], limit: str, planted: Path
) -> None:
    found = ended(planted, call, "hang", None, **options)
    assert found.returncode == 6, found.stderr
    assert found.stderr.startswith(f"tcpx-mpi: error: plugin call {call} "), found.stderr
    assert found.stderr.endswith(f"longer than {limit}\n"), found.stderr
    assert inspect.signature(Session).parameters["call_timeout_s"].default == 30


def test_the_variable_wins_over_a_session_and_is_the_limit_of_init_too(planted: Path) -> None:
    found = ended(planted, "init", "hang", str(PATIENCE_S), call_timeout_s=1000)
    assert found.returncode == 6, found.stderr
    assert found.stderr.endswith(f"longer than {VARIABLE} ({PATIENCE_S} s)\n"), found.stderr


def test_the_init_of_a_plugin_may_take_longer_than_a_call(planted: Path, tmp_path: Path) -> None:
    plant = tmp_path / "plant"
    let_go = threading.Timer(1.5, Path(f"{plant}.go").touch)  # what is tested is that time goes by
    let_go.start()
    found = ended(planted, "init", "wait", None, str(plant), call_timeout_s=0.5)
    let_go.join()
    assert (found.returncode, found.stdout, found.stderr) == (0, "right\n", "")


@pytest.mark.parametrize("none", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(none: float, planted: Path) -> None:
    with pytest.raises(UsageError, match="not a number of seconds above 0; use None for no limit"):
        Session(plugin=str(planted), call_timeout_s=none)


def test_sessions_whose_calls_return_are_not_ended(planted: Path) -> None:
    found = ended(planted, "none", "hang", "0.5")
    assert (found.returncode, found.stdout, found.stderr) == (0, "right\n", "")


@pytest.mark.parametrize("patience", ["soon", "0", variant("-1"), variant("nan"), variant("1 s")])
def test_a_patience_that_is_none_is_one_line(patience: str, planted: Path) -> None:
    found = ended(planted, "none", "hang", patience)
    assert found.stderr.splitlines()[-1] == (
        f"tcpx_mpi.errors.UsageError: {VARIABLE} ({patience}) is not a number of seconds above 0; "
        "unset it to wait for ever"
    )

"""A plugin that hangs, throws or stops its rank, in every one of its calls: named, in time, with
the right code. The fault is planted (`tests/refplugin/planted.cc`), so nothing waits for a moment.
Other faults, in every phase: `tests/faults`.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from jobs import Result, mpirun, mpirun_of, run, started, tcpx_mpi
from refplugin_build import build, crash_by_exception
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

PLANTED = Path(__file__).parents[1] / "refplugin" / "planted.cc"
#: Longer than ranks need between two steps on a busy machine.
HOOK = PLANTED.parents[1] / "faults" / "hook"
CONNECT_S, STALL_S, SETUP_S = 3, 2, 8
RUN = ("run", "ring", "--sizes", "64K", "-n", "40", "--check-memory", "16M",
       "--connect-timeout", str(CONNECT_S), "--stall-timeout", str(STALL_S),
       "--setup-timeout", str(SETUP_S), "--hdf5", "o.h5")  # fmt: skip
WORD = "a word of the plugin"
#: The calls of a run in its order: its phase, and from the how many-th on the fault is there.
CALLS = {
    "init": ("set-up", 1),
    "devices": ("set-up", 1),
    "getProperties": ("set-up", 1),
    "listen": ("connections", 1),
    "connect": ("connections", 1),
    "accept": ("connections", 1),
    "closeListen": ("connections", 1),
    "regMr": ("connections", 1),
    "isend": ("rows", 30),
    "irecv": ("rows", 30),
    "test": ("rows", 60),
    "irecvConsumed": ("rows", 30),
    "deregMr": ("end", 1),
    "closeSend": ("end", 1),
    "closeRecv": ("end", 1),
    "finalize": ("end", 1),
    "unload": ("exit", 1),
}
#: Codes of a call that does not return, and of a rank that does not come.
HANG = {"set-up": 4, "connections": 4, "rows": 6, "end": 6}
LOST = {"set-up": 4, "connections": 4, "rows": 7, "end": 7}
QUICK = ("test",)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("planted"), PLANTED))


def plant(call: str, what: str, rank: int | None = None) -> dict[str, str]:
    return {
        "PLANT_REAL": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "PLANT_CALL": call,
        "PLANT_AT": str(CALLS[call][1]),
        "PLANT_DO": what,
        "PLANT_SAYS": WORD,
        "NCCL_DEBUG": "WARN",
        **({"PLANT_RANK": str(rank)} if rank is not None else {}),
    }


def command(planted: str, call: str, how: str = "--ranks") -> list[str]:
    abi = "11" if call == "finalize" else "7"  # no version before has one
    arguments = (*RUN, "--plugin", planted, "--abi", abi)
    return mpirun(2, *arguments) if how == "mpirun" else tcpx_mpi(*arguments, "--ranks", "2")


def ended(
    planted: str, place: Path, call: str, what: str, rank: int | None = None, how: str = "--ranks"
) -> Result:
    with started(command(planted, call, how), place, plant(call, what, rank)) as job:
        return job.finish()


def calls(quick: tuple[str, ...]) -> list[object]:
    return [c if c in quick else variant(c) for c in CALLS if c != "unload"]


@pytest.mark.parametrize("call", calls(QUICK))
def test_a_call_that_never_returns_on_any_rank_is_named_with_the_plugins_words(
    call: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, "hang")
    phase = CALLS[call][0]
    assert result.code == HANG[phase], result.text
    if phase != "set-up":  # in which each rank says what it waits for
        assert len(result.errors) == 1, result.text
    error = result.errors[0]
    if phase == "set-up":
        assert "set-up did not end within --setup-timeout" in error, result.text
    else:
        assert re.match(rf"rank [01] on .*: plugin call {call}\b.* has not returned for", error)
    if phase in ("connections", "rows"):
        assert re.search(r"(from|to) rank [01] ?.*, lane 0, channel 0", error), error
    assert f"; the plugin said: {WORD}" in error, error
    if phase == "end":
        assert "# kept: 1 row in o.h5" in result.err
        assert len(read_run(str(place / "o.h5")).rows) == 1


@pytest.mark.parametrize("how", ["--ranks", variant("mpirun")])
@pytest.mark.parametrize("call", calls(()))
def test_a_call_that_spins_on_one_rank_ends_all_with_its_name(
    call: str, how: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, "spin", rank=1, how=how)
    assert result.code == HANG[CALLS[call][0]], result.text
    own = [error for error in result.errors if error.startswith("rank 1 on ")]
    named = "set-up did not end" if CALLS[call][0] == "set-up" else f"plugin call {call}"
    assert any(named in error for error in own), result.text


@pytest.mark.parametrize("call", calls(()))
def test_a_rank_that_was_stopped_in_a_call_is_named_within_the_deadline_of_its_phase(
    call: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, "stop", rank=1)
    assert result.code == LOST[CALLS[call][0]], result.text
    assert any("rank 1 " in error for error in result.errors), result.text
    if CALLS[call][0] != "set-up":
        limit = CONNECT_S if CALLS[call][0] == "connections" else STALL_S
        assert re.search(rf"within {limit}(\.\d+)? s|no progress for {limit} s", result.errors[0])


@pytest.mark.parametrize(
    ("call", "what", "how"),
    [
        ("closeRecv", "abort", "has crashed by SIGABRT in closeRecv"),
        variant("regMr", "abort", "crashed by SIGABRT in regMr"),
        variant(
            "closeSend", "exit", "ended this process by exit(0) in closeSend"
        ),
    ],
)  # fmt: skip
def test_a_plugin_that_ends_a_rank_outside_of_batches_is_named_with_the_call(
    call: str, what: str, how: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, what, rank=1)
    assert result.code == 4, result.text
    said = [error for error in result.errors if f"the plugin {planted} " in error]
    assert said, result.text
    assert any(how in error for error in said), result.text


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [("isend", 13, "crashed by SIGSEGV, in a batch"), variant("regMr", 4, "by SIGSEGV in regMr")],
)
def test_a_plugin_that_fills_its_stack_is_named(
    call: str, code: int, said: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, "recurse")
    assert result.code == code, result.text
    assert any(f"the plugin {planted} has " in e and said in e for e in result.errors), result.text


def test_a_plugin_that_holds_the_end_of_its_rank_is_named(planted: str, place: Path) -> None:
    result = ended(planted, place, "unload", "spin", rank=1)
    assert result.code == 0, result.text
    said = r"# rank 1 on .*: its end took longer than 20\.\d s: it is held by the plugin "
    said += re.escape(planted)
    assert re.search(said, result.err), result.text


def test_a_stop_that_mpirun_is_told_as_its_ranks_end_is_no_good_end(
    planted: str, place: Path
) -> None:
    """It hands on nothing from then on: the table may be cut."""
    hook = {"PLANT_PHASE": "finalize", "PLANT_DO": "wait", "PLANT_WAIT": str(place / "fault"),
            "PLANT_RANK": "1", "PYTHONPATH": str(HOOK)}  # fmt: skip
    with started(tcpx_mpi(*RUN, "--plugin", "softtcpx", "--ranks", "2"), place, hook) as job:
        job.wait_for("Collective test concluded")
        os.kill(mpirun_of(job), signal.SIGTERM)
        result = job.finish()
    assert result.code == 143, result.text


@pytest.mark.parametrize("what", ["child exits", variant("child aborts")])
def test_a_child_that_the_plugin_has_forked_does_not_speak_for_its_rank(
    what: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, "regMr", what, rank=1)
    assert result.code == 0, result.text
    assert result.errors == [], result.text


@pytest.mark.parametrize("call", calls(()))
def test_an_exception_of_the_plugins_is_named_and_no_defect_of_ours(
    call: str, planted: str, place: Path
) -> None:
    result = ended(planted, place, call, "throw")
    in_batch = CALLS[call][0] == "rows"
    assert result.code == (13 if in_batch else 4), result.text
    said = f"the plugin {planted} has {crash_by_exception(planted)}, in a batch"
    named = said if in_batch else rf"plugin call {call} threw an exception of C\+\+ \(int\)"
    assert any(re.search(named, error) for error in result.errors), result.text
    assert "Traceback" not in result.text


# --- Around the plugin ---------------------------------------------------------------------------


def softtcpx(*more: str) -> tuple[str, ...]:
    return (*RUN, "--plugin", "softtcpx", *more)


def test_what_mpirun_itself_fails_of_is_told_as_such(place: Path) -> None:
    result = run(tcpx_mpi(*softtcpx(), "--ranks", "2"), place, {"OMPI_MCA_pml": "ucx"})
    assert result.code == 4, result.text
    assert result.errors[-1].startswith("mpirun ended with exit code"), result.text


def test_ranks_of_one_machine_listen_on_no_interface_with_mpi(place: Path) -> None:
    """Their own ports are softtcpx's, on the interface that it was told; mpirun's are its own."""
    with started(tcpx_mpi(*softtcpx("--duration", "3s"), "--ranks", "2"), place) as job:
        own = set()
        for pid in job.ranks().values():
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                own.add(os.readlink(descriptor))
        listening = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        ]
        result = job.finish()
    assert result.code == 0, result.text
    anywhere = {
        entry[1]
        for entry in listening
        if entry[3] == "0A"
        and set(entry[1].split(":")[0]) == {"0"}
        and f"socket:[{entry[9]}]" in own
    }
    assert not anywhere

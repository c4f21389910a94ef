"""Gates and runs for tests: limits a little below what a run has, and what spoils a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import invented_runs

from tcpx_mpi.gates import Gate, Limit
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import Fault, Run


def run_of(rows: int = 3) -> Run:
    return invented_runs.sound(rows=rows)


def gate_for(run: Run, share: float = 0.9, **changes: Any) -> Gate:
    """Limits a little below what the run has."""
    limits = tuple(
        Limit(run.header.pattern, run.header.memory, row.size_bytes, "busbw_min",
              share * figures_of(run, row).busbw)
        for row in run.rows
    )  # fmt: skip
    gate = Gate(limits, run.header.plugin_name, run.header.world, "invented")
    return dataclasses.replace(gate, **changes)


# Each of these leaves every figure above its limit, and must fail all the same.
def lose_a_rank(run: Run) -> None:
    row = run.rows[1]
    row.samples = {phase: samples[:-1] for phase, samples in row.samples.items()}
    row.receives, row.checked = row.receives[:-1], row.checked[:-1]


def lose_a_row(run: Run) -> None:
    del run.rows[1]


def leave_unchecked(run: Run) -> None:
    run.rows[1].checked[2] = False


def deliver_wrong_bytes(run: Run) -> None:
    run.rows[1].wrong[0] = 1


def lose_a_time(run: Run) -> None:
    run.rows[1].samples["iteration"][0, 5] = -1


def have_no_iteration(run: Run) -> None:
    row = run.rows[1]
    row.iterations = 0
    row.samples = {phase: samples[:, :0] for phase, samples in row.samples.items()}


def receive_nowhere(run: Run) -> None:
    run.rows[1].receives[:] = False


def end_early(run: Run) -> None:
    run.complete = False


def end_with_a_fault(run: Run) -> None:
    run.fault = Fault("stall", 6, {0: "stalled"})


def change_header(**changes: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.header = dataclasses.replace(run.header, **changes)

    return change


#: What spoils a row -> why; then what spoils a run.
ROW_BREAKS: dict[Callable[[Run], None], str] = {
    leave_unchecked: "its bytes were not checked by every rank that receives",
    deliver_wrong_bytes: "1 wrong byte",
    lose_a_time: "an iteration has no time",
    have_no_iteration: "no timed iteration",
    receive_nowhere: "no rank receives",
}
BREAKS = {
    **{spoil: f"ring, host, 2 KiB: {why}" for spoil, why in ROW_BREAKS.items()},
    lose_a_rank: "the file lacks samples of row 1 (2 KiB), phase iteration: 3 x 300 of 4 ranks",
    lose_a_row: "the file lacks 1 of 3 rows: 2 KiB",
    end_early: "the file lacks the end of the run",
    end_with_a_fault: "the file lacks the end of the run: stall (exit code 6)",
    change_header(plugin_name="another"): "plugin is another, the gate holds for softtcpx",
    change_header(world=5): "ranks is 5, the gate holds for 4",
    change_header(pattern="mesh"): "the gate has no limit for mesh in host memory",
    change_header(memory="cuda"): "the gate has no limit for ring in cuda memory",
    change_header(unpack="none"): "nothing was unpacked (--unpack none)",
    change_header(mode="averages"): "the run was imported",
}


def in_two_cycles(slower: int) -> Run:
    """The second row is so many times as slow."""
    run = run_of(rows=1)
    slow = invented_runs.sound(rows=1).rows[0]
    slow.samples["iteration"][:] *= slower
    slow.index = slow.cycle = 1
    run.rows.append(slow)
    run.header.plan = dataclasses.replace(run.header.plan, run_cycles=2)
    return run

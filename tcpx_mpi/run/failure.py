"""Shut down all ranks after a failure; one rank reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tcpx_mpi import _native
from tcpx_mpi.errors import ExitCode, Interrupted, OutputFailed, TcpxError
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.run import last_words
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.world import AgreedError, Alarm, Answer, World, interrupted_by
from tcpx_mpi.world.disk_watch import DiskWatch

#: A rank that fails looks so long for a sign that it slept through a roll call.
WAKING_S = 0.05
#: A signal for all ranks has reached the one that speaks by then, and it has done so.
ALL_SIGNALLED_S = 2.0


def end(
    world: World,
    output: Output,
    error: TcpxError | Alarm | _native.Interrupt,
    report: Sequence[str],
) -> int:
    """End a run in the way that fits its error; returns only where all ranks agree on it."""
    output.erase_progress()
    if isinstance(error, _native.Interrupt):  # of a native wait that a signal ended
        error = interrupted_by(_native.stop_signal())
    code = error.exit_code if isinstance(error, TcpxError) else world.phase.lost
    _native.watch_ending(int(code))  # what follows has deadlines of its own, and this one
    if isinstance(error, AgreedError):
        return end_agreed(world, output, error)
    if isinstance(error, Interrupted):
        leave_interrupted(world, output, error)
    leave_after_failure(world, output, error, report, world.phase.lost)


def end_agreed(world: World, output: Output, error: AgreedError) -> int:
    """Collective: all ranks know of the error, rank 0 says it; the exit code for all."""
    launched = under_launcher(os.environ)
    if world.rank == 0 and (launched is None or launched.rank == 0):
        print(f"tcpx-mpi: error: {error}", file=sys.stderr, flush=True)
        output.keep_fault(int(error.exit_code), {error.rank: str(error)}, ())
    return int(error.exit_code)


def leave_interrupted(world: World, output: Output, error: Interrupted) -> NoReturn:
    """A signal ended this rank, and mostly all others, too.

    The one that speaks leaves first: soon after another one has left, the launcher kills it in
    mid-word. Where it does not leave it has got no signal, and hears of this one by a roll call.
    """
    _native.end_plugin_log()  # while what this rank prints still gets through
    # A launcher that ends a job wakes a stopped rank by the same signal as any other.
    _leave_if_missed(world, output, str(error), WAKING_S)
    if world.roll_call.alarmed():  # another rank is about to say what has happened
        leave_after_failure(world, output, Alarm(), ())
    there, text, code = [*range(world.size)], str(error), int(error.exit_code)
    if error.exit_code == ExitCode.TERMINATED:
        there, died = _who_is_there(world)
        silent = sorted(set(range(world.size)) - {*there, *died})
        if died:
            _leave_if_missed(world, output, str(error), WAKING_S)  # by one that spoke and left
            text = f"{_names(world, died)} has died, and the launcher ends the others (signal 15)"
            code = int(world.phase.lost)  # a signal is not what has ended this run
        elif silent:
            text = f"{_names(world, silent)} does not answer; {error}"
    speaks = world.rank == there[0]
    if speaks:
        last_words.say(f"tcpx-mpi: error: {text}")
    elif not world.roll_call.await_dismissal(0, ALL_SIGNALLED_S):
        leave_after_failure(world, output, _alone(error, world.name(world.rank)), ())
    output.keep_fault(code, {world.rank: text}, ())
    if speaks:
        world.roll_call.dismiss(code, there)
    world.roll_call.leave(code)


def _alone(error: Interrupted, name: str) -> Interrupted:
    """The error of a rank that got a signal where the one that speaks got none."""
    number = _native.stop_signal()
    told = Interrupted(
        f"{name}: ended by signal {number}, which came to this rank alone: it was sent to process "
        f"{os.getpid()} by process {_native.stop_sender()} of its node"
    )
    told.exit_code = error.exit_code
    return told


def _who_is_there(world: World) -> tuple[list[int], list[int]]:
    """Ranks that are there, and ranks that have died, of those that a launcher ends."""
    died, there = world.died(), world.living()
    if len(world.beside()) < world.size:  # those of other nodes are seen by others, or not at all
        heard = world.roll_call.present(died)
        died.update(*heard.values())
        there |= heard.keys()
    return sorted(there), sorted(died)


def _names(world: World, ranks: Sequence[int]) -> str:
    return ", ".join(world.name(rank) for rank in ranks)


def leave_after_failure(
    world: World,
    output: Output,
    failure: TcpxError | Alarm,
    report: Sequence[str],
    lost: ExitCode = ExitCode.LOST_RANK,
) -> NoReturn:
    """Call the roll, let the lowest rank that is there speak, and end all ranks alike.

    `report` says where this rank's requests stand; `lost` is the code where ranks are missing.
    """
    _native.end_plugin_log()
    code = int(failure.exit_code) if isinstance(failure, TcpxError) else int(ExitCode.OK)
    text = str(failure) or f"rank {world.rank}: waited for the others"
    second_hand = failure.second_hand if isinstance(failure, TcpxError) else 0
    if second_hand > 0:  # another rank's text will be the error
        report = (*report, text)
    _leave_if_missed(world, output, text, WAKING_S)
    answers = world.roll_call.call(
        Answer(world.rank, code, text, tuple(report), second_hand), world.absent
    )
    # Who has died may be one that has spoken, for all, and left.
    _leave_if_missed(world, output, text, WAKING_S if world.died() else 0.0)
    present = [rank for rank, answer in answers.items() if answer.present]
    # Whom the launcher ends meanwhile may have no time to answer, and is there all the same.
    there = {*present, *(world.living() if world.asked_to_stop() else ())}
    speaks = world.rank == min(there)
    if speaks:
        code = output.failure(answers, world.places, lost, world.died(), there)
        world.roll_call.dismiss(code, present)
    else:
        code = world.roll_call.await_dismissal(code or int(lost))
    world.roll_call.leave(code, speaks)


def _leave_if_missed(world: World, output: Output, text: str, patience_s: float = 0.0) -> None:
    """Leaves silently if a roll call is over: this rank slept through it and was named there, or
    was the last to hear what all others had said."""
    missed = world.roll_call.dismissal(patience_s)
    if missed is not None:
        output.keep_fault(missed, {world.rank: text}, (world.rank,))
        world.roll_call.linger()
        world.roll_call.leave(missed)


def watch_disk(world: World, output: Output) -> DiskWatch:
    """The watch over this rank's writes, which ends the run if its disk hangs."""

    def late(text: str) -> NoReturn:
        leave_after_failure(world, output, OutputFailed(text), ())

    return DiskWatch(
        world.roll_call,
        lambda: world.name(world.rank),
        lambda: _native.running_ns() / 1e9,
        lambda: world.limit_s,
        late,
    )

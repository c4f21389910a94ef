"""How ranks leave after a roll call: none before those that still listen to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jobs
import pytest
from exit_codes import codes_of, telling_code

from tcpx_mpi.launch import mpirun as launch

pytestmark = pytest.mark.multirank

#: Rank 2 is so slow that the roll call is over before it has heard every answer. Rank 1 says its
#: farewell only when rank 2 has ended, or stays: so rank 0 listens meanwhile.
PROGRAM = """
import os, time
from tcpx_mpi import _native, world as mpi
from tcpx_mpi.run import failure
from tcpx_mpi.errors import Stalled
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.world import liveness
_native.install_signal_handlers()
world = mpi.start(_native.stop_signal, os.environ)
pids = world.allgather(os.getpid(), "pids", 60.0)
if world.rank == 2:
    roll = world.roll_call
    take = roll._take_message
    roll._take_message = lambda tag: None if tag == liveness._ALARM_TAG else take(tag)
if world.rank == 1:
    wait = world.roll_call.await_dismissal
    def later(code):
        deadline = time.monotonic() + 0.5
        while os.path.exists(f"/proc/{pids[2]}") and time.monotonic() < deadline:
            time.sleep(0.01)  # without a call to MPI, as `wait` makes them
        return wait(code)
    world.roll_call.await_dismissal = later
failure.end(world, Output(active=False), Stalled("nothing moves"), ())
"""


def test_a_rank_that_hears_the_end_of_a_roll_call_first_breaks_no_others(place: Path) -> None:
    mpirun = launch.find_mpirun(os.environ)
    by_tcp = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}  # as between nodes
    ranks = telling_code("code", [sys.executable, "-c", PROGRAM])
    result = jobs.run([mpirun, "-n", "3", *ranks], place, by_tcp)
    assert result.errors == ["nothing moves"], result.text
    assert codes_of({rank: place / f"code.{rank}" for rank in range(3)}) == {
        0: 6,
        1: 6,
        2: 6,
    }


#: Every rank was told to end, and rank 0 takes more time over it than mpirun leaves a rank when
#: another one has ended.
INTERRUPTED = """
import os, time
from tcpx_mpi import _native, world as mpi
from tcpx_mpi.run import failure
from tcpx_mpi.run.recorder import Output
_native.install_signal_handlers()
world = mpi.start(_native.stop_signal, os.environ)
world.barrier("the others", 60.0)
class Slow(Output):
    def keep_fault(self, code, texts, missing):
        if world.rank == 0:
            time.sleep(2.0)  # mpirun's patience, which ends by no event that rank 0 could wait for
            open("kept", "w").close()
failure.end(world, Slow(active=False), mpi.interrupted_by(2), ())
"""


def test_an_interrupted_rank_0_has_its_time_to_keep_what_there_is(place: Path) -> None:
    mpirun = launch.find_mpirun(os.environ)
    result = jobs.run([mpirun, "-n", "3", sys.executable, "-c", INTERRUPTED], place)
    assert result.code == 130, result.text
    assert (place / "kept").exists(), result.text

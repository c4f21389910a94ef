"""Where the work was seen, in the file and the footer of a real run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import jobs
import pytest

from tcpx_mpi.records import SideKey, read_run

pytestmark = pytest.mark.multirank

ROW = r"^ +65536 +65536 +uint8 "
RUN = ("run", "pair", "--ranks", "2", "--plugin", "softtcpx", "--hdf5", "o.h5")


def test_every_row_says_where_it_was_seen(place: Path) -> None:
    variables = {"NCCL_SOCKET_NTHREADS": "1"}
    command = jobs.tcpx_mpi(*RUN, "-b", "1M", "-e", "1M", "-n", "50", "--against", "raw")
    result = jobs.run(command, place, variables)
    assert result.code == 0, result.text
    (row,) = read_run(str(place / "o.h5")).rows
    assert len(row.proof) == 2
    allowed = os.sched_getaffinity(0)
    for seen in [*row.proof, *row.sides[SideKey("raw")].proof]:
        assert seen.driver_cpus
        assert {int(cpu) for cpu in seen.driver_cpus.replace("-", ",").split(",")} <= allowed
        assert seen.remote_bytes == 0
        assert seen.rtt_us > 0
        assert 0 <= seen.node_stolen_ns <= seen.node_wanted_ns
    assert [seen.plugin_threads for seen in row.proof] == [1, 1]
    assert all(seen.plugin_cpus for seen in row.proof)
    assert [seen.plugin_threads for seen in row.sides[SideKey("raw")].proof] == [0, 0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs cpus: two of them to move to")
def test_of_several_progress_threads_the_pinned_one_alone_has_to_stay(place: Path) -> None:
    options = ("-b", "64K", "-e", "64K", "-n", "1000", "--channels", "2", "--progress-threads", "2")
    result = jobs.run(jobs.tcpx_mpi(*RUN, *options), place)
    assert result.code == 0, result.text
    (row,) = read_run(str(place / "o.h5")).rows
    cpus = {info.rank: info.progress_cpu for info in read_run(str(place / "o.h5")).header.ranks}
    assert [seen.driver_cpus for seen in row.proof] == [str(cpus[rank]) for rank in (0, 1)]
    assert "was seen on CPUs" not in result.out


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs cpus: two of them to move to")
def test_a_progress_thread_that_is_moved_is_in_the_footer(place: Path) -> None:
    options = ("-b", "64K", "-e", "64K", "-n", "1000", "-N", "0")
    with jobs.started(jobs.tcpx_mpi(*RUN, *options), place) as job:
        job.wait_for(ROW)
        first, second = sorted(os.sched_getaffinity(0))[:2]
        pid = job.ranks()[0]
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {second})
        job.wait_for_another(ROW, job.lines_like(ROW) + 1)  # the first that began after it
        job.send(signal.SIGINT)
        result = job.finish()
    assert result.code == 130, result.text
    report = jobs.run(jobs.tcpx_mpi("report", "o.h5"), place)
    warnings = [line for line in report.out.splitlines() if line.startswith("# WARNING")]
    assert any(
        f"not only on {first} as asked for" in line and "rank 0" in line for line in warnings
    )

"""What rank 0 keeps of a fault in the file of its run."""

from __future__ import annotations

from pathlib import Path

import invented
import pytest

from tcpx_mpi.records import Run, RunWriter, read_run
from tcpx_mpi.run.recorder import Output


@pytest.mark.parametrize("whole", [False, True])
def test_a_fault_is_kept_in_a_file_that_is_not_whole_and_in_no_other(
    whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = invented.run_header(4)
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(header)
    row = writer.append_row(invented.row())
    if whole:
        writer.finish()
    output = Output(active=True)
    output._writer = writer
    output._run = Run(writer.path, header, invented.setup_times(), [row], complete=whole)
    output.keep_fault(7, {0: "rank 1 has died"}, [1])
    found = read_run(writer.path)
    assert found.complete == whole
    assert (found.fault is None) == whole
    assert capsys.readouterr().err == f"# kept: 1 row in {writer.path}\n"

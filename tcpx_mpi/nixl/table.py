"""What the leader of a measurement prints, and the file for Prometheus."""

from __future__ import annotations

from tcpx_mpi.errors import ExitCode, LostRank, TcpxError
from tcpx_mpi.exchange.prometheus import metrics_of, write_prom
from tcpx_mpi.records import Row, Run
from tcpx_mpi.report import Screen, begin_lines, end_lines, line_of, show_lines, summarise_row
from tcpx_mpi.stats import RowSummary


class Table:
    """Lines as `run` has them; `active` on the rank that leads only."""

    def __init__(self, screen: Screen | None, prom_path: str | None, active: bool = True) -> None:
        self._screen, self._prom_path, self._active = screen, prom_path, active
        self._summaries: list[RowSummary] = []

    def begin(self, run: Run) -> None:
        show_lines(begin_lines(run.header, None, run.path, self._screen), self._screen)

    def row_done(self, run: Run, row: Row) -> None:
        summary = summarise_row(run.header, row)
        self._summaries.append(summary)
        show_lines([line_of(run.header, summary, self._screen)], self._screen)

    def lost(self, name: str, why: str) -> None:
        """A baseline that could not go on, or did not end in order."""
        if self._active:
            print(f"# Peer {name}: {why}", flush=True)

    def ended_early(self, run: Run, code: int) -> None:
        """The file for Prometheus says so, too."""
        if self._prom_path is not None:
            write_prom(self._prom_path, metrics_of(run, code, summaries=self._summaries))

    def end(self, run: Run, error: TcpxError | None, how: str) -> TcpxError | None:
        """The footer, and the error of the run: that, or how agents of ours ended."""
        files = [run.path] if run.path else []
        error = error or (LostRank(how) if how else None)
        if self._prom_path is not None:
            code = error.exit_code if error is not None else ExitCode.OK
            metrics = metrics_of(run, code, summaries=self._summaries)
            files.append(write_prom(self._prom_path, metrics))
        show_lines(end_lines(run, self._summaries, self._screen, files=files), self._screen)
        return error

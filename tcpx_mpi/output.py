"""What rank 0 says and keeps: the table as it grows, the HDF5 file, JSON. Silent elsewhere."""

from __future__ import annotations

import datetime
import os
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence

from tcpx_mpi import circumstances, report
from tcpx_mpi.config import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.patterns import Pattern
from tcpx_mpi.rank_setup import LoadedPlugin
from tcpx_mpi.records import (
    Fault,
    Plan,
    RankInfo,
    RankRow,
    RowFacts,
    Run,
    RunHeader,
    RunWriter,
    SetupTimes,
    default_run_name,
    filter_environment,
    join_row,
    require_writable,
    utc_now,
)
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth
from tcpx_mpi.world import Answer


class Output:
    """The results of a run on their way out; `active` on rank 0 only."""

    def __init__(self, active: bool) -> None:
        self._active = active
        self._writer: RunWriter | None = None
        self._run: Run | None = None
        self._summaries: list[RowSummary] = []
        self._settings: Settings | None = None
        self.run_id = secrets.token_hex(6) if active else ""

    def open(self, settings: Settings) -> None:
        """Create the files before anything is measured. Raises UsageError."""
        if not self._active:
            return
        self._settings = settings
        if settings.json_path is not None:
            require_writable(settings.json_path, "-J")
        if settings.hdf5_path != "none":
            now = datetime.datetime.now()
            self._writer = RunWriter(settings.hdf5_path or default_run_name(settings.pattern, now))

    def begin(
        self, settings: Settings, pattern: Pattern, argv: Sequence[str],
        ranks: Sequence[RankInfo], setup: SetupTimes, plugin: LoadedPlugin,
        facts: dict[str, str], plan: Plan, llc_bytes: int,
    ) -> RunHeader:  # fmt: skip
        """Write and print what is known before the first row."""
        memory, why = settings.memory_kind()
        header = RunHeader(
            run_id=self.run_id,
            pattern=pattern.name,
            start_time=utc_now(),
            command=list(argv),
            plan=plan,
            settings=[*settings.describe(), *plugin.derived],
            versions=circumstances.versions(),
            environment=filter_environment(os.environ),
            facts={**facts, "memory_chosen": f"{memory} ({why})"},
            ranks=list(ranks),
            world=len(ranks),
            busbw_factor=pattern.busbw_factor(len(ranks)),
            time_divisor=pattern.time_divisor,
            plugin_path=plugin.file.path,
            plugin_sha256=plugin.file.sha256,
            plugin_abi=plugin.file.abi,
            plugin_name=plugin.file.name,
            memory=memory,
            llc_bytes=llc_bytes,
            mode="synchronised" if settings.blocking else "back-to-back",
            notes=list(getattr(pattern, 'notes', ())),
        )
        path = self._writer.path if self._writer else ""
        self._run = Run(path, header, setup, [], complete=False)
        if self._writer is not None:
            self._writer.write_header(header)
            self._writer.write_setup(setup)
        _print(
            [*report.header_lines(header), *report.setup_lines(setup), *report.title_lines(header)]
        )
        return header

    def row(self, facts: RowFacts, parts: Sequence[RankRow]) -> None:
        """Join the parts of all ranks; on disk and on the screen when this returns."""
        assert self._run is not None
        row = join_row(facts, parts, utc_now())
        self._run.rows.append(row)
        if self._writer is not None:
            self._writer.append_row(row)
        self._summaries.append(report.summarise_row(self._run.header, row))
        _print([report.row_line(self._run.header, self._summaries[-1])])

    def end(self) -> ExitCode:
        """Close the files, print the footer; what the exit code of the run is."""
        assert self._run is not None
        self._run.complete = True
        self._run.end_time = utc_now()
        if self._writer is not None:
            self._writer.finish()
        run, files = self._run, self._write_json()
        _print(report.footer_lines(run.header, self._summaries, files=files))
        return _verdict(run, self._summaries)

    def fail(self, error: TcpxError, texts: Mapping[int, str]) -> None:
        """The run ends early: keep why, beside what was measured."""
        self._keep_fault(_name_of(error), int(error.exit_code), texts or {-1: str(error)}, ())

    def trouble(self, answers: Mapping[int, Answer], world_size: int) -> int:
        """The roll was called: print every rank's report, keep it; the exit code for all.

        Runs on the lowest rank that answered, which is not always rank 0.
        """
        missing = sorted(set(range(world_size)) - set(answers))
        lines = [line for rank in sorted(answers) for line in answers[rank].report]
        codes = sorted({answer.exit_code for answer in answers.values() if answer.exit_code})
        code = codes[0] if codes else int(ExitCode.LOST_RANK)
        worst = next((a.text for a in answers.values() if a.exit_code == code), "")
        for line in lines:
            print(f"# {line}", file=sys.stderr)
        if missing:
            names = ", ".join(str(rank) for rank in missing)
            hosts = {info.rank: info.host for info in self._run.header.ranks} if self._run else {}
            where = ", ".join(sorted({hosts[rank] for rank in missing if rank in hosts}))
            lost = f"rank {names}{f' on {where}' if where else ''} did not answer the roll call"
            worst = f"{lost}; {worst}"
        print(f"tcpx-mpi: error: {worst}", file=sys.stderr, flush=True)
        texts = {rank: answer.text for rank, answer in answers.items()}
        self._keep_fault(ExitCode(code).name.lower(), code, texts, missing)
        return code

    def _keep_fault(
        self, kind: str, code: int, texts: Mapping[int, str], missing: Sequence[int]
    ) -> None:
        if not self._active:
            return
        if self._run is not None:
            self._run.fault = Fault(kind, code, dict(texts), tuple(missing), utc_now())
        if self._writer is None:
            return
        try:
            self._writer.fail(kind, code, texts, missing)
        except TcpxError as second:  # the disk may be what failed in the first place
            print(f"tcpx-mpi: error: {second}", file=sys.stderr)
        if self._run is not None and self._run.rows:
            count = len(self._run.rows)
            rows = "row" if count == 1 else "rows"
            print(f"# {count} {rows} measured before are in {self._writer.path}", file=sys.stderr)

    def _write_json(self) -> list[str]:
        """The names of all files of this run."""
        assert self._run is not None
        assert self._settings is not None
        files = [self._writer.path] if self._writer is not None else []
        if self._settings.json_path is not None:
            document = report.to_json(self._run, files)
            files.append(report.write_json(self._settings.json_path, document))
        return files


def _verdict(run: Run, summaries: Sequence[RowSummary]) -> ExitCode:
    if any(summary.wrong_found for summary in summaries):
        return ExitCode.WRONG_BYTES
    if report.passes_minimum_bandwidth(run.header, mean_bus_bandwidth(summaries)) is False:
        return ExitCode.BELOW_GATE
    return ExitCode.OK


def _name_of(error: TcpxError) -> str:
    return ExitCode(error.exit_code).name.lower()


def _print(lines: Iterable[str]) -> None:
    print("\n".join(lines), flush=True)

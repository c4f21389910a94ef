"""The recorder of rank 0: table, HDF5 file, JSON. Silent on other ranks.

Only rank 0 imports what reports are made with: on the others that is a tenth of their start.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.terminal import terminal_of_rank
from tcpx_mpi.plugin.find import reads_tcpx_variables
from tcpx_mpi.plugin.sockets import data_sockets
from tcpx_mpi.records import (
    BaselineInfo,
    Packed,
    Plan,
    RankInfo,
    Row,
    RowFacts,
    Run,
    RunHeader,
    RunWriter,
    Scratch,
    SetupTimes,
    default_run_name,
    filter_environment,
    free_name,
    utc_now,
    write_text,
)
from tcpx_mpi.run import last_words, metadata
from tcpx_mpi.run.hanging_disk import HANGING_DISK_S, within
from tcpx_mpi.transport.load_plugin import LoadedPlugin
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import Answer

if TYPE_CHECKING:
    from tcpx_mpi import report
    from tcpx_mpi.gates import Judgement
    from tcpx_mpi.run.event_stream import EventStream
    from tcpx_mpi.run.progress import Progress
    from tcpx_mpi.stats import RowSummary


class Output:
    """The results of a run on their way out; `active` on rank 0 only."""

    def __init__(self, active: bool) -> None:
        self._active = active
        self._writer: RunWriter | None = None
        #: Who has the samples of the rows.
        self._keeper: RunWriter | Scratch | None = None
        self._run: Run | None = None
        #: Of all rows so far; those of thousands, for the footer.
        self._rows: Packed[Row] = Packed()
        self._summaries: Packed[RowSummary] = Packed()
        self._settings: Settings | None = None
        #: Files written beside the HDF5 file, by the names that they got.
        self._files: list[str] = []
        self._events: EventStream | None = None
        self._progress: Progress | None = None
        #: None: all columns, as in a file.
        self._screen: report.Screen | None = None
        self._row_under_way = -1
        #: Of a story that writes its results by itself: keeps (code, texts) beside them.
        self.keeps_fault: Callable[[int, Mapping[int, str]], None] | None = None
        self.run_id = secrets.token_hex(6) if active else ""

    def open(self, settings: Settings) -> None:
        """Create the files before anything is measured; `admission` has seen that those of the end
        can be. Raises UsageError."""
        if not self._active:
            return
        self._settings = settings
        if settings.json_stream_path is not None:
            from tcpx_mpi.run.event_stream import EventStream

            aside = settings.events_to_stdout()
            self._events = EventStream(None if aside else settings.json_stream_path)
        if settings.hdf5_path != "none":
            now = datetime.datetime.now()
            path = settings.hdf5_path or default_run_name(settings.pattern, now)
            self._writer = RunWriter(path, spool=settings.spool)

    def begin(
        self, workload: Workload, argv: Sequence[str],
        ranks: Sequence[RankInfo], setup: SetupTimes, plugin: LoadedPlugin,
        facts: dict[str, str], plan: Plan, llc_bytes: int, baselines: Sequence[BaselineInfo] = (),
    ) -> RunHeader:  # fmt: skip
        """Write and print what is known before the first row."""
        settings, pattern = workload.settings, workload.connecting_pattern
        sockets = data_sockets(plugin.file.name, os.environ)
        header = RunHeader(
            run_id=self.run_id,
            pattern=pattern.name,
            start_time=utc_now(),
            command=list(argv),
            plan=plan,
            settings=[*settings.describe(), *plugin.derived],
            versions=metadata.versions(),
            environment=filter_environment(os.environ),
            facts={
                **facts,
                "memory_chosen": f"{settings.memory_text()} ({settings.sources['memory']})",
                **_registration_chosen(settings),
                **_flush_chosen(settings),
                **_data_sockets(plugin.file.name, sockets),
                **metadata.connections(ranks, setup, sockets),
            },
            ranks=list(ranks),
            world=len(ranks),
            busbw_factor=pattern.busbw_factor(len(ranks)),
            algbw_factor=pattern.algbw_factor(len(ranks)),
            time_divisor=pattern.time_divisor,
            plugin_path=plugin.file.path,
            plugin_sha256=plugin.file.sha256,
            plugin_abi=plugin.file.abi,
            plugin_name=plugin.file.name,
            memory=settings.memory_text(),
            unpack=settings.unpack_mode(),
            llc_bytes=llc_bytes,
            mode=settings.mode(),
            notes=list(pattern.notes),
            baselines=list(baselines),
        )
        path = self._writer.path if self._writer else ""
        run = Run(path, header, setup, self._rows, complete=False)
        if self._writer is not None:
            self._writer.write_header(header)
            self._writer.write_setup(setup)
        self._run = run  # only now: a file without it is not left
        if settings.save_config_path is not None:
            saved = settings
            if mpirun.PARENT_VARIABLE in os.environ:  # ranks are not told what it was asked for
                sources = {**settings.sources, "ranks": "command line --ranks"}
                saved = dataclasses.replace(settings, ranks=len(ranks), sources=sources)
            self._files.append(write_text(settings.save_config_path, saved.to_toml()))
        if self._events is not None:
            self._events.header(run)
        from tcpx_mpi import report
        from tcpx_mpi.run.progress import on_terminal
        from tcpx_mpi.run.terminal import screen_of_run

        terminal = terminal_of_rank(os.environ) if settings.screen != "never" else None
        self._screen = screen_of_run(settings, terminal, os.environ)
        self._print([*self._taken(), *report.begin_lines(header, setup, path, self._screen)])
        self._progress = on_terminal(terminal, os.environ, self._text, plan)
        return header

    def _taken(self) -> list[str]:
        """Names of results whose own is taken: that of the HDF5 file, which is made by now, and
        those that the others will get, if nobody takes these."""
        settings = self._settings
        assert settings is not None
        named = {
            (option, path): free_name(path)
            for option, path in (("-J", settings.json_path), ("--csv", settings.csv_path))
            if path is not None
        }
        if self._writer is not None and settings.hdf5_path is not None:
            named["--hdf5", settings.hdf5_path] = self._writer.path
        return [
            f"# Note: {option} {path} is there and is kept: the result goes to {name}"
            for (option, path), name in named.items()
            if name != path
        ]

    def between_batches(self, facts: RowFacts, kind: str, first: int) -> None:
        """Before the batch of "warmup" or "timed" iterations that begins with `first`."""
        if self._events is not None and self._row_under_way != facts.index:
            self._row_under_way = facts.index
            self._events.row_begins(facts)
        if self._progress is not None:
            self._progress.between_batches(facts, kind, first)

    def row(self, row: Row) -> None:
        """On disk and on the screen when this returns."""
        assert self._run is not None
        assert self._settings is not None
        from tcpx_mpi import report

        if self._keeper is None:
            self._keeper = self._writer or Scratch(self._settings.spool)
        row = self._keeper.append_row(row)
        self._rows.append(row)  # only now: a row that could not be written is not kept
        summary = report.summarise_row(self._run.header, row)
        self._summaries.append(summary)
        if self._events is not None:
            self._events.row(self._run, row, summary)
        self._print([report.line_of(self._run.header, summary, self._screen)])

    def pairs_to_retest(self) -> dict[int, list[str]]:
        """Pairs by size of further rows, in which stragglers of a tournament meet others."""
        if self._run is None:
            return {}
        from tcpx_mpi.findings.stragglers import pairs_to_retest

        return pairs_to_retest(self._run.header, self._run.rows)

    def end(self, memory: Sequence[str] = ()) -> ExitCode:
        """Close the files, print the footer, the lines about `memory` in it; what the exit code of
        the run is."""
        assert self._run is not None
        from tcpx_mpi import report
        from tcpx_mpi.findings.verdict import outcome_of

        self._run.complete = True
        self._run.end_time = utc_now()
        if self._writer is not None:
            self._writer.finish()
        run, judgement = self._run, self._judge()
        verdict, why = outcome_of(run.header, self._summaries)
        if judgement and not judgement.passed and verdict != ExitCode.WRONG_BYTES:
            verdict, why = ExitCode.BELOW_GATE, f"the run fails its gate: {judgement.in_short()}"
        if verdict == ExitCode.OK and self._settings is not None and self._settings.strict:
            verdict, why = report.strict_outcome(run)
        files = self._write_documents(judgement, verdict)
        gate = judgement.lines() if judgement else []
        lines = report.end_lines(
            run, self._summaries, self._screen, files=files, gate=[*gate, *memory]
        )
        self._print([*lines, *_stopped_lines(_native.stopped_ns())])
        if self._events is not None:
            self._events.end(verdict, run)
        # Of several launches in one file the bandwidth is judged when all are there.
        if verdict == ExitCode.WRONG_BYTES or (verdict != ExitCode.OK and not self._launch):
            print(f"tcpx-mpi: error: {why}", file=sys.stderr, flush=True)
        return verdict

    @property
    def _launch(self) -> int:
        return self._settings.launch if self._settings is not None else 0

    def failure(
        self,
        answers: Mapping[int, Answer],
        places: Sequence[str],
        lost: ExitCode,
        died: Collection[int] = (),
        there: Collection[int] = (),
    ) -> int:
        """The roll was called: print every rank's report, keep it; the exit code for all, `lost`
        where ranks are missing.

        Runs on the lowest rank that answered, which is not always rank 0. Of those that did not,
        some are known to have `died`, and some to be `there`.
        """
        missing = [rank for rank in range(len(places)) if rank not in {*answers, *there}]
        for rank in sorted(answers):
            for line in answers[rank].report:
                last_words.say(f"# {line}", bool(died))
        cause = min(answers.values(), key=_follows_from_others)
        text, code = cause.text, cause.exit_code or int(lost)
        if missing:
            dead = [f"rank {rank} on {places[rank]} has died" for rank in missing if rank in died]
            names = ", ".join(f"{rank} on {places[rank]}" for rank in missing if rank not in died)
            silent = [f"rank {names} did not answer the roll call"] if names else []
            text = "; ".join([*dead, *silent, *([text] if text else [])])
            code = int(lost)
        last_words.say(f"tcpx-mpi: error: {text}", bool(died))
        self.keep_fault(code, {rank: answer.text for rank, answer in answers.items()}, missing)
        return code

    @property
    def path(self) -> str:
        """The HDF5 file, or where samples are in its place."""
        if self._writer is not None:
            return self._writer.path
        return self._settings.spool if self._settings is not None else ""

    def erase_progress(self) -> None:
        """Before anything else is said on the terminal."""
        if self._progress is not None:
            self._progress.erase()

    def keep_fault(self, code: int, texts: Mapping[int, str], missing: Sequence[int]) -> None:
        """The run ends early: keep why, beside what was measured."""
        if self.keeps_fault is not None:
            keeps = self.keeps_fault
            within(HANGING_DISK_S, lambda: keeps(code, texts))
        self._end_events(code, texts, missing)
        if self._settings is not None and self._settings.prom_path is not None:
            try:
                within(HANGING_DISK_S, lambda: self._write_prom(code))
            except TcpxError as second:
                print(f"tcpx-mpi: error: {second}", file=sys.stderr)
        if self._writer is None:
            return
        writer = self._writer
        if self._run is None:  # nothing is known yet, and nothing is left half-written
            within(HANGING_DISK_S, writer.discard)
            return
        try:
            kind = ExitCode(code).name.lower()
            patience_s = HANGING_DISK_S if code == ExitCode.OUTPUT_FAILED else None
            if not writer.finished:  # else the file is whole, whatever came then
                within(patience_s, lambda: writer.fail(kind, code, texts, missing))
        except TcpxError as second:
            # Where the disk is what failed in the first place, that has been said.
            if code != ExitCode.OUTPUT_FAILED:
                print(f"tcpx-mpi: error: {second}", file=sys.stderr)
        kept = len(self._run.rows)
        if kept and not self._launch:  # who joins launches says where they are
            what = "1 row" if kept == 1 else f"{kept} rows"
            last_words.say(f"# kept: {what} in {self._writer.path}", bool(missing))

    @property
    def _text(self) -> TextIO:
        """The stream that the table goes to."""
        aside = self._settings is not None and self._settings.events_to_stdout()
        return sys.stderr if aside else sys.stdout

    def _print(self, lines: Iterable[str]) -> None:
        from tcpx_mpi import report

        self.erase_progress()
        report.show_lines(lines, self._screen, self._text)

    def _end_events(self, code: int, texts: Mapping[int, str], missing: Sequence[int]) -> None:
        if self._events is None:
            return
        try:
            self._events.fault(ExitCode(code).name.lower(), dict(texts), list(missing))
            self._events.end(code, self._run)
        except TcpxError as second:
            if code != ExitCode.OUTPUT_FAILED:
                print(f"tcpx-mpi: error: {second}", file=sys.stderr)
        if self._run is None:
            self._events.discard()

    def _judge(self) -> Judgement | None:
        """The run by `--gate`, if there is one."""
        assert self._run is not None
        assert self._settings is not None
        if self._settings.gate_path is None:
            return None
        from tcpx_mpi import gates

        return gates.judge(gates.read_gate(self._settings.gate_path), self._run)

    def _write_documents(self, judgement: Judgement | None, code: ExitCode) -> list[str]:
        """The names of all files of this run."""
        assert self._run is not None
        assert self._settings is not None
        files = [self._writer.path] if self._writer is not None else []
        files += self._files
        if self._events is not None and self._events.path:
            files.append(self._events.path)
        if self._settings.csv_path is not None:
            from tcpx_mpi.exchange import export, tidy

            text = export.csv_text(tidy.rows(self._run))
            files.append(write_text(self._settings.csv_path, text))
        if self._settings.json_path is not None:
            from tcpx_mpi import report

            gate = judgement.document() if judgement else None
            files.append(report.write_run_json(self._settings.json_path, self._run, files, gate))
        if self._settings.prom_path is not None:
            self._write_prom(code, judgement.passed if judgement else None)
            files.append(self._settings.prom_path)
        return files

    def _write_prom(self, code: int, passed: bool | None = None) -> None:
        from tcpx_mpi.exchange.prometheus import metrics_of, write_prom

        assert self._settings is not None
        path = self._settings.prom_path
        assert path is not None
        write_prom(path, metrics_of(self._run, code, passed, self._summaries))


def _stopped_lines(stopped_ns: int) -> list[str]:
    """Lines saying that this run stood still: no deadline counts that, and a bandwidth does."""
    if not stopped_ns:
        return []
    return [
        f"# This process was stopped or frozen for {stopped_ns / 1e9:.1f} s, which counts as no "
        "lack of progress"
    ]


def _flush_chosen(settings: Settings) -> dict[str, str]:
    """Whether a plugin that puts data into a GPU's memory is asked to flush, and why."""
    if not settings.puts_in_place():
        return {}
    return {"flush_chosen": f"{settings.flush} ({settings.sources['flush']})"}


def _registration_chosen(settings: Settings) -> dict[str, str]:
    """The way that a GPU's memory is registered, and the reason."""
    if settings.memory != "cuda":
        return {}
    chosen = f"{settings.registration} ({settings.sources['registration']})"
    return {"registration_chosen": chosen}


def _data_sockets(plugin: str, sockets: int) -> dict[str, str]:
    """Data sockets of a plugin that is known to go by TCPX's variables."""
    return {"data_sockets": str(sockets)} if reads_tcpx_variables(plugin) else {}


def _follows_from_others(answer: Answer) -> tuple[bool, int, bool, bool, int]:
    """Sorts a cause before what it leads to: other ranks lose a peer, or wait for it in vain."""
    code = answer.exit_code
    stalled, lost = code == ExitCode.STALL, code == ExitCode.LOST_RANK
    return (code == ExitCode.OK, answer.second_hand, stalled, lost, answer.rank)

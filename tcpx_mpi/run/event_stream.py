"""`--json-stream`: one JSON object a line while a run goes on, each written out at once."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tcpx_mpi.errors import OutputFailed
from tcpx_mpi.records import Row, RowFacts, Run, create_exclusively, utc_now
from tcpx_mpi.report import parts_of, row_document

if TYPE_CHECKING:
    from tcpx_mpi.stats import RowSummary

#: Of the document of a run: what is known before the first row.
_HEADER_KEYS = ("version", "start_time", "args", "env", "nccl_version", "config", "tcpx_mpi")
#: Of its part `tcpx_mpi`: what is not known yet, or has an event of its own.
_NOT_YET = ("findings", "complete", "missing", "fault", "files", "setup")

_ENCODER = json.JSONEncoder(allow_nan=False)
_PARTS_A_WRITE = 1 << 12


class EventStream:
    """The events of a run on their way out; every method writes one line."""

    def __init__(self, path: str | None) -> None:
        """To `path` or the first free name beside it; None: to the standard output.

        Raises UsageError if no file can be made.
        """
        self.path = ""
        self._descriptor = sys.stdout.fileno()
        if path is not None:
            self._descriptor, self.path = create_exclusively(path)

    def header(self, run: Run) -> None:
        """The metadata, and what the set-up took: the first two events."""
        document, _ = parts_of(run)
        setup = document["tcpx_mpi"]["setup"]
        for name in _NOT_YET:
            del document["tcpx_mpi"][name]
        self._write("header", {name: document[name] for name in _HEADER_KEYS})
        self._write("setup", {"setup": setup})

    def row_begins(self, facts: RowFacts) -> None:
        """A row's buffers are about to be filled."""
        self._write(
            "row_begun",
            {"index": facts.index, "cycle": facts.cycle, "size": facts.size_bytes,
             "warmup_iterations": facts.warmup_iterations, "iterations": facts.iterations or None},
        )  # fmt: skip

    def row(self, run: Run, row: Row, summary: RowSummary) -> None:
        """A row with its figures, as in `results` of the document."""
        self._write("row_finished", row_document(run.header, row, summary))

    def fault(self, kind: str, texts: dict[int, str], missing_ranks: list[int]) -> None:
        """Why the run ends early, in each rank's words."""
        said = {str(rank): text for rank, text in sorted(texts.items())}
        self._write("fault", {"kind": kind, "texts": said, "missing_ranks": missing_ranks})

    def end(self, exit_code: int, run: Run | None) -> None:
        """The last event; what was measured is summed up where there was anything."""
        values: dict[str, Any] = {"exit_code": exit_code}
        if run is not None:
            document, _ = parts_of(run)
            for name in ("out_of_bounds", "average_bus_bandwidth", "errors"):
                values[name] = document[name]
            values["findings"] = document["tcpx_mpi"]["findings"]
            values["rows"] = len(run.rows)
        self._write("end", values)
        self._close()

    def discard(self) -> None:
        """Nothing was measured: leave no file behind."""
        self._close()
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _write(self, event: str, values: dict[str, Any]) -> None:
        # In parts: a row may have a list of all its times (-I).
        line = _ENCODER.iterencode({"event": event, "time": utc_now(), **values})
        parts = itertools.chain(line, ["\n"])
        try:
            while block := "".join(itertools.islice(parts, _PARTS_A_WRITE)):
                left = memoryview(block.encode("ascii"))
                while left:
                    left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            where = self.path or "the standard output"
            raise OutputFailed(
                f"--json-stream: cannot write to {where}: {error.strerror}"
            ) from error

    def _close(self) -> None:
        if self.path and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

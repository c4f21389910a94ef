"""A timeline as a viewer reads it: its JSON in tables of sqlite3, asked by SQL."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

#: Names Perfetto's trace_processor, which then reads each timeline, too.
TRACE_PROCESSOR = "TCPX_MPI_TRACE_PROCESSOR"


class Timeline:
    """One file."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", encoding="ascii") as file:
            document = json.load(file)
        self.facts: dict[str, Any] = document["otherData"]
        self.events: list[dict[str, Any]] = document["traceEvents"]
        self._base = sqlite3.connect(":memory:")
        self._base.executescript("""
            CREATE TABLE slice(pid, tid, ts REAL, dur REAL, name, cat, row, bytes);
            CREATE TABLE arrow(id, ph, pid, tid, ts REAL);
            CREATE TABLE counter(pid, name, ts REAL, value REAL);
            CREATE TABLE track(pid, tid, name);
        """)
        for event in self.events:
            args = event.get("args", {})
            match event["ph"]:
                case "X":
                    values = [event[key] for key in ("pid", "tid", "ts", "dur", "name", "cat")]
                    values += [args.get("row"), args.get("bytes")]
                    self._base.execute("INSERT INTO slice VALUES(?,?,?,?,?,?,?,?)", values)
                case "s" | "f":
                    values = [event[key] for key in ("id", "ph", "pid", "tid", "ts")]
                    self._base.execute("INSERT INTO arrow VALUES(?,?,?,?,?)", values)
                case "C":
                    (value,) = args.values()
                    values = [event["pid"], event["name"], event["ts"], value]
                    self._base.execute("INSERT INTO counter VALUES(?,?,?,?)", values)
                case "M" if event["name"] == "thread_name":
                    values = [event["pid"], event["tid"], args["name"]]
                    self._base.execute("INSERT INTO track VALUES(?,?,?)", values)

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """The lines of an answer."""
        return self._base.execute(question).fetchall()

    def number(self, question: str) -> Any:
        """The one value of an answer."""
        ((value,),) = self.ask(question)
        return value


def require_sound(timeline: Timeline, bound_us: float) -> None:
    """Each send has its arrow, no arrow goes back in time by more than the bound, and slices of a
    thread lie one after the other."""
    sends = timeline.number("SELECT count(*) FROM slice WHERE cat LIKE 'send to%: post'")
    assert sends > 0
    begun = """SELECT count(*) FROM slice JOIN arrow USING (pid, tid)
        WHERE arrow.ph = 's' AND slice.cat LIKE 'send to%: post' AND arrow.ts = slice.ts"""
    assert timeline.number(begun) == sends
    ended = """SELECT count(*) FROM slice JOIN arrow USING (pid, tid)
        WHERE arrow.ph = 'f' AND slice.cat LIKE 'receive from%: in flight'
        AND arrow.ts >= slice.ts AND arrow.ts < slice.ts + slice.dur"""
    assert timeline.number(ended) == sends
    arrows = """SELECT count(*), min(f.ts - s.ts) FROM arrow s JOIN arrow f USING (id)
        WHERE s.ph = 's' AND f.ph = 'f'"""
    ((count, shortest),) = timeline.ask(arrows)
    assert count == sends
    assert shortest > -bound_us, f"an arrow goes back in time by {-shortest} us"
    overlaps = """SELECT count(*) FROM (SELECT ts + dur - lead(ts) OVER (
        PARTITION BY pid, tid ORDER BY ts) AS over FROM slice) WHERE over > 0.0005"""
    assert timeline.number(overlaps) == 0
    nameless = """SELECT count(*) FROM (SELECT DISTINCT pid, tid FROM slice)
        LEFT JOIN track USING (pid, tid) WHERE name IS NULL"""
    assert timeline.number(nameless) == 0


def require_readable_by_perfetto(path: Path, sends: int) -> None:
    """The same by Perfetto's own reader, where there is one."""
    reader = os.environ.get(TRACE_PROCESSOR, "")
    if not reader or shutil.which(reader) is None:
        return
    asked = path.with_suffix(".sql")
    asked.write_text("SELECT count(*) AS arrows FROM flow;\n")
    done = subprocess.run(
        [reader, "-q", str(asked), str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(sends), done.stdout


def exported(timeline: Path, bound_us: float = 0.0) -> Timeline:
    """A file that has been read, and was found sound."""
    found = Timeline(timeline)
    require_sound(found, bound_us)
    require_readable_by_perfetto(timeline, found.number("SELECT count(*) / 2 FROM arrow"))
    return found

"""A comparison as a JSON document."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tcpx_mpi.compare.text import TEST_NAMES
from tcpx_mpi.compare.verdict import Comparison, RowComparison
from tcpx_mpi.records import Run


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Everything `comparison_lines` says, with numbers, and null for what is unknown."""
    return {
        "version": 1,
        "first": _run(comparison.first),
        "second": _run(comparison.second),
        "tolerance": comparison.limits.tolerance,
        "resolution": comparison.limits.resolution,
        "confidence_of_a_row": comparison.confidence,
        "in_turns": comparison.in_turns,
        "differences": [dataclasses.asdict(each) for each in comparison.differences],
        "rows": [_row(row) for row in comparison.rows],
        "only_in_one_file": [str(key) for key in comparison.unmatched],
        "verdict": comparison.verdict.value,
        "exit_code": int(comparison.verdict.exit_code),
    }


def _run(run: Run) -> dict[str, Any]:
    header = run.header
    return {
        "path": run.path,
        "run_ids": [launch.header.run_id for launch in run.all_launches],
        "pattern": header.pattern,
        "world": header.world,
        "plugin": header.plugin_name,
        "start_time": header.start_time,
    }


def _row(row: RowComparison) -> dict[str, Any]:
    ratio = row.shift.ratio
    return {
        "size": row.key.size_bytes,
        "type": row.key.type_name,
        "redop": row.key.redop,
        "root": row.key.root,
        "rate_per_s": row.key.rate_per_s,
        "first_us": [_number(time / 1e3) for time in row.first_ns.tolist()],
        "second_us": [_number(time / 1e3) for time in row.second_ns.tolist()],
        "ratio": _number(ratio.estimate),
        "ci_low": _number(ratio.low),
        "ci_high": _number(ratio.high),
        "p_value": _number(row.shift.p_value),
        "test": TEST_NAMES[row.shift.test],
        "recorded_spread": _number(row.spread),
        "verdict": row.verdict.value,
        "reason": row.reason,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None

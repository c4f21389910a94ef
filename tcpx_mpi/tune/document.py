"""The answer of a tune as a JSON document."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tcpx_mpi.stats import Interval
from tcpx_mpi.tune.answer import Contest, Finalist
from tcpx_mpi.tune.point import Point
from tcpx_mpi.tune.text import Tuned


def tune_document(tuned: Tuned) -> dict[str, Any]:
    """Everything `answer_lines` says, with numbers, and null for what is unknown."""
    answer, race = tuned.answer, tuned.answer.race
    header = tuned.header
    return {
        "version": 1,
        "command": list(tuned.command),
        "file": tuned.path,
        "pattern": header.pattern,
        "world": header.world,
        "plugin": header.plugin_name,
        "plugin_sha256": header.plugin_sha256,
        "memory": header.memory,
        "seconds": tuned.seconds,
        "launches": len(race.history),
        "final_rounds": race.final.rounds,
        "left_out": race.left_out,
        "confidence_of_an_interval": answer.confidence,
        "drift": answer.drift.relative if answer.drift is not None else None,
        "failed": [_point(point) for point in answer.failed],
        "dropped": [_point(each) for heat in race.heats for each in heat.dropped],
        "unit": tuned.scale.unit,
        "bands": [
            {
                "sizes": list(band.sizes),
                "settings": [_in_band(tuned, each, number) for each in answer.finalists],
                "recommended": _point_of(answer.by_band[number]),
                "nearest": _point_of(answer.nearest[number]),
            }
            for number, band in enumerate(tuned.bands)
        ],
        "compromise": _point_of(answer.compromise),
    }


def _in_band(tuned: Tuned, finalist: Finalist, number: int) -> dict[str, Any]:
    band, time_ns = tuned.bands[number], float(finalist.time_ns[number])
    return {
        "setting": _point(finalist.point),
        "figure": _known(tuned.scale.figure(band, time_ns)),
        "time_us": _known(time_ns / 1e3),
        "cpu_s_per_gb": _known(float(finalist.cpu_s_per_gb[number])),
        "on_front": finalist.on_front[number],
        **(_beside(finalist.contests[number]) if finalist.contests else {}),
    }


def _beside(contest: Contest) -> dict[str, Any]:
    return {
        "ratio": _interval(contest.speed),
        "cpu_ratio": _interval(contest.cost),
        "launches": contest.launches,
        "verdict": contest.verdict.value,
        "reason": contest.reason,
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {name: _known(value) for name, value in dataclasses.asdict(interval).items()}


def _point_of(finalist: Finalist | None) -> dict[str, dict[str, str]] | None:
    return _point(finalist.point) if finalist is not None else None


def _point(point: Point) -> dict[str, dict[str, str]]:
    return {
        "run": {change.name: change.value for change in point if change.option},
        "environment": {change.name: change.value for change in point if not change.option},
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None

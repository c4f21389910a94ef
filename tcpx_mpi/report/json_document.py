"""The JSON of a run (`-J`): a superset of the keys of nccl-tests' version 3.

Values are real numbers, booleans and null; what is unknown is null, never 0 or "nan".
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tcpx_mpi.findings.run import findings_of
from tcpx_mpi.findings.verdict import errors_of, out_of_bounds, passes_minimum_bandwidth
from tcpx_mpi.records import IN_PLACE, Row, Run, RunHeader, SideKey, write_text
from tcpx_mpi.records.mapped_arrays import pieces
from tcpx_mpi.report.field import INT, Field
from tcpx_mpi.report.fields import (
    CHECKED,
    CPU,
    IDENTITY,
    JSON_BY_CLOCK,
    JSON_SIDE,
    JSON_SPREAD,
    JSON_TRAFFIC,
    MESH_BW,
    MESSAGES,
    T_MAX,
    T_MAX_RANK,
)
from tcpx_mpi.report.launches import SPREAD, RowOverLaunches, representative, rows_over_launches
from tcpx_mpi.report.preamble import imported_settings, pci_address, step
from tcpx_mpi.report.table import summarise_row
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth
from tcpx_mpi.stats.ratios import Ratio, strongest

JSON_VERSION = 3
#: How the text of a document ends.
_END = "\n}"
_INDENTED = json.JSONEncoder(indent=1, allow_nan=False, ensure_ascii=True)


def to_json(
    run: Run, files: Sequence[str] = (), gate: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The document of a run, whole or not; `files` are the names of its other results, `gate` is
    what a gate said of it."""
    document, rows = parts_of(run, files, gate)
    return {**document, "results": [_listed(row) for row in rows]}


def json_text(
    run: Run, files: Sequence[str] = (), gate: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The same as text, in parts, for all the times of a row (`-I`) are as large as its samples.
    The last brace is left out: more may follow."""
    document, rows = parts_of(run, files, gate)
    # Quotes within a text are escaped: this is the key, the first one of the name.
    before, after = _text_of(document).split('"results": []', 1)
    yield f'{before}"results": ['
    for number, row in enumerate(rows):
        yield ",\n  " if number else "\n  "
        for part in _INDENTED.iterencode(row):
            yield part.replace("\n", "\n  ")
    yield f"\n ]{after.removesuffix(_END)}"


def parts_of(
    run: Run, files: Sequence[str] = (), gate: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The document of a run without its rows, and the rows, which are made one by one."""
    over_launches = {row.index: row for row in rows_over_launches(run)}
    whole, missing, run = run, run.missing, representative(run)
    header = run.header
    summaries = [summarise_row(header, row) for row in run.rows]
    wrong, well = out_of_bounds(header, summaries)
    bandwidth = mean_bus_bandwidth(summaries)
    document = {
        "version": JSON_VERSION,
        "start_time": header.start_time,
        "args": header.command,
        "env": [f"{name}={value}" for name, value in header.environment.items()],
        "nccl_version": header.versions.get("NCCL"),
        "config": _config(header),
        "results": [],
        "out_of_bounds": {"count": wrong, "okay": well},
        "average_bus_bandwidth": {
            "bandwidth": bandwidth,
            "okay": passes_minimum_bandwidth(header, bandwidth),
        },
        "errors": _errors(run, summaries),
        "end_time": run.end_time or None,
        "tcpx_mpi": _ours(whole, files, gate) | {"findings": _findings(run, summaries, missing)},
    }
    rows = (
        row_document(header, row, summary) | _over_launches(over_launches.get(row.index))
        for row, summary in zip(run.rows, summaries, strict=True)
    )
    return without_nan(document), map(without_nan, rows)


class AllTimes(list[float]):
    """All the times of a row, us: read in pieces while an encoder iterates over them.

    A list for the sake of `json`, which iterates over nothing else. It is empty to whoever does not
    iterate: the one-shot encoders of `json` are such.
    """

    def __init__(self, summary: RowSummary) -> None:
        super().__init__()
        self._summary = summary

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[float]:
        times_ns = self._summary.iteration_max_ns()
        for piece in pieces(times_ns.size):
            yield from (times_ns[piece] / 1e3).tolist()


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    """With a plain list of all times, in memory."""
    spread = row["out_of_place_per_iter"]
    times = spread["times_us"]
    listed = {**spread, "times_us": None if times is None else list(iter(times))}
    return {**row, "out_of_place_per_iter": listed}


def _over_launches(row: RowOverLaunches | None) -> dict[str, Any]:
    """A row over several launches; nothing if there is but one."""
    if row is None:
        return {}
    return {
        "launches": {
            "count": int(row.times_ns.size),
            "times_us": (row.times_ns / 1e3).tolist(),
            **{field.key: field.data(row) for field in SPREAD if field.key},
        }
    }


def write_json(path: str, document: dict[str, Any]) -> str:
    """Write a document as `write_text` does; return the name used."""
    return write_text(path, [_text_of(document), "\n"])


def write_run_json(
    path: str, run: Run, files: Sequence[str] = (), gate: Mapping[str, Any] | None = None
) -> str:
    """Write the document of a run as `write_text` does; return the name used."""
    return write_text(path, itertools.chain(json_text(run, files, gate), [_END, "\n"]))


def _text_of(document: dict[str, Any]) -> str:
    return _INDENTED.encode(document)


def _imported_config(header: RunHeader) -> dict[str, Any]:
    """The settings in the imported log, and null for what it does not say."""
    told = imported_settings(header)
    names = ("nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_bytes", "step_factor",
             "warmup_iters", "iterations", "aggregated_iterations", "validation", "graph",
             "blocking_collectives", "parallel_init", "run_cycles", "average",
             "per_iter_timing", "per_iter_skip")  # fmt: skip
    return {name: _plain(told.get(name)) for name in names}


def _plain(text: str | None) -> int | bool | str | None:
    """A number or a truth value out of its text."""
    if text is None:
        return None
    truth = {"true": True, "false": False}.get(text.lower())
    if truth is not None:
        return truth
    return int(text) if text.lstrip("-").isdecimal() else text


def _config(header: RunHeader) -> dict[str, Any]:
    plan = header.plan
    amount, unit = step(plan.sizes)
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": min(plan.sizes),
        "maximum_bytes": max(plan.sizes),
        "step_bytes": amount if unit == "bytes" else None,
        "step_factor": amount if unit == "factor" else None,
        "sizes": list(plan.sizes),
        "warmup_iters": plan.warmup_iters,
        "iterations": plan.iters,
        "aggregated_iterations": plan.agg_iters,
        "run_cycles": plan.run_cycles,
        "average": plan.average,
        "validation": plan.check,
        "graph": 0,
        "blocking_collectives": plan.blocking != 0,
        "per_iter_timing": plan.per_iter_timing,
        "per_iter_skip": plan.per_iter_skip,
        "parallel_init": False,
        **(_imported_config(header) if header.averages_only else {}),
        "mode": header.mode,
        "devices": [
            {
                "rank": info.rank,
                "group": info.group,
                "pid": info.pid,
                "hostname": info.host,
                "device": info.device,
                "device_hex": pci_address(info),
                "device_info": info.device_name,
                "node": info.node,
                "nic": info.nic,
                "nic_pci": info.nic_pci,
                "nic_speed_mbps": info.nic_speed_mbps if info.nic_speed_mbps > 0 else None,
                "numa_node": info.numa_node if info.numa_node >= 0 else None,
                "cpus": info.cpus,
                "progress_cpu": info.progress_cpu if info.progress_cpu >= 0 else None,
                "gpu": info.gpu if info.gpu >= 0 else None,
                "gpu_pci": info.gpu_pci or None,
                "gpu_name": info.gpu_name or None,
                "gpu_numa_node": info.gpu_numa_node if info.gpu_numa_node >= 0 else None,
                "plugin_cpus": info.plugin_cpus or None,
                "memory_node": info.memory_node if info.memory_node >= 0 else None,
            }
            for info in header.ranks
        ],
    }


def row_document(header: RunHeader, row: Row, summary: RowSummary) -> dict[str, Any]:
    """The entry of one row in `results`."""
    result = {
        **{field.name: field.data(summary) for field in IDENTITY},
        "out_of_place": _side(summary),
        "out_of_place_per_iter": _per_iteration(header, summary),
        "in_place": _side(summary.in_place) if summary.in_place is not None else None,
        "in_place_per_iter": None
        if summary.in_place is None or header.averages_only
        else _per_iteration(header, summary.in_place),
        "actual_iterations": row.iterations,
        "ended_by": row.ended_by,
        "algo": row.algo or None,
        "experiment_name": header.pattern,
        "index": row.index,
        "cycle": row.cycle,
        **_figures((CHECKED, T_MAX, T_MAX_RANK), summary),
        "time_us_by_rank": [time_ns / 1e3 for time_ns in summary.time_ns_by_rank.tolist()],
        "p50_us_by_rank": [
            [median.estimate / 1e3, median.low / 1e3, median.high / 1e3]
            for median in summary.median_ns_by_rank
        ],
        **_figures((MESSAGES,), summary),
        "slots": _known(row.slots),
        "chunk_bytes": _known(row.chunk_bytes),
        "chunks": _known(row.chunks),
        **_figures(JSON_TRAFFIC, summary),
        **_figures(JSON_BY_CLOCK, summary),
        "loaded": _loaded(header, summary),
        "against": _against(header, summary),
        "gpus": [
            {name: _known(value) for name, value in dataclasses.asdict(gpu).items()}
            for gpu in row.gpu
        ],
    }
    plain: dict[str, Any] = without_nan(result)
    return plain


def _side(summary: RowSummary) -> dict[str, Any]:
    return {key: field.data(summary) for key, field in JSON_SIDE.items()}


def _figures(fields: Sequence[Field], summary: RowSummary) -> dict[str, Any]:
    """By the names of CSV; null for a count that is not known."""
    return {
        field.key: _known(field.data(summary)) if field.unit.kind == INT else field.data(summary)
        for field in fields
    }


def _loaded(header: RunHeader, summary: RowSummary) -> dict[str, Any] | None:
    """The side under load, its percentiles, its ratio to the row, and its mesh."""
    if summary.loaded is None or summary.load is None:
        return None
    load = summary.load
    return {
        **_side(summary.loaded),
        "per_iter": _per_iteration(header, summary.loaded),
        "ratio": load.ratio.ratio,
        "ci_low": load.ratio.ci_low,
        "ci_high": load.ratio.ci_high,
        MESH_BW.key: load.mesh_gbps,
        "covers": load.covers,
    }


def _known(count: int) -> int | None:
    return count if count >= 0 else None


def _against(header: RunHeader, summary: RowSummary) -> dict[str, Any]:
    """By baseline; "NAME_best" is the best of a baseline's variants where it has some."""
    found = {side.name: _ratio(ratio) for side, ratio in summary.ratios.items()}
    for kind in dict.fromkeys(baseline.kind for baseline in header.baselines):
        names = [baseline.name for baseline in header.baselines if baseline.kind == kind]
        for place in ("", IN_PLACE):
            best = strongest(summary.ratios, names, place)
            if len(names) > 1 and best is not None:
                found[f"{SideKey(kind, place).name}_best"] = {
                    **_ratio(best), "variant": best.baseline,
                }  # fmt: skip
    return found


def _ratio(ratio: Ratio) -> dict[str, Any]:
    # Names as they are read by others: GB/s for a bandwidth, us for a time.
    unit = "us" if ratio.metric == "time" else "gbps"
    return {
        "metric": ratio.metric,
        "ratio": ratio.ratio,
        "ci_low": ratio.ci_low,
        "ci_high": ratio.ci_high,
        "blocks": ratio.blocks,
        f"ours_{unit}": ratio.ours,
        f"theirs_{unit}": ratio.theirs,
        "nwrong": ratio.wrong,
        "idle_share": ratio.idle_share,
        "net_share": ratio.net_share,
        CPU.key: ratio.cpu_s_per_gb,
        "void": ratio.void,
    }


def _per_iteration(header: RunHeader, summary: RowSummary) -> dict[str, Any]:
    wanted = header.plan.per_iter_timing
    return {
        "skipped_iterations": header.plan.per_iter_skip,
        **_figures(JSON_SPREAD, summary),
        # Long lists only for those who asked (-I): the HDF5 file has every sample anyway.
        "times_us": AllTimes(summary) if wanted else None,
    }


def _errors(run: Run, summaries: Sequence[RowSummary]) -> list[str]:
    errors = errors_of(summaries)
    if run.fault is not None:
        errors += [text for _, text in sorted(run.fault.texts.items())]
    return errors


def _findings(
    run: Run, summaries: Sequence[RowSummary], missing: Sequence[str]
) -> list[dict[str, str]]:
    """The findings below the table, a matrix left out: `severity` is "bad", "doubtful", "good" or
    "", `where` a rank or ""."""
    return [
        {
            "severity": each.severity.value,
            "title": each.title,
            "text": each.text,
            "remedy": each.remedy,
            "where": each.evidence if isinstance(each.evidence, str) else "",
        }
        for each in findings_of(run, summaries, missing)
        if each.text
    ]


def _ours(run: Run, files: Sequence[str], gate: Mapping[str, Any] | None) -> dict[str, Any]:
    header = run.header
    table = run.setup.table
    return {
        "run_id": header.run_id,
        "pattern": header.pattern,
        "world": header.world,
        "complete": run.complete,
        "missing": run.missing,
        "fault": dataclasses.asdict(run.fault) if run.fault is not None else None,
        "plugin": {
            "path": header.plugin_path,
            "sha256": header.plugin_sha256,
            "abi": header.plugin_abi,
            "name": header.plugin_name,
        },
        "peers": [dataclasses.asdict(baseline) for baseline in header.baselines],
        "memory": header.memory,
        "unpack": header.unpack,
        "last_level_cache_bytes": header.llc_bytes if header.llc_bytes > 0 else None,
        "settings": [
            {"name": name, "value": value, "source": source}
            for name, value, source in header.settings
        ],
        "versions": header.versions,
        "facts": header.facts,
        "notes": header.notes,
        "setup": [
            dict(zip(table.dtype.names or (), (_text(value) for value in item), strict=True))
            for item in table.tolist()
        ],
        "files": list(files),
        "gate": gate,
    }


def _text(value: Any) -> Any:
    return value.decode("ascii") if isinstance(value, bytes) else value


def without_nan(value: Any) -> Any:
    """The same with null for every number that is not finite: JSON has no other word for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, AllTimes):  # finite, all of them
        return value
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return value

"""The tables of docs/reference/performance.md on GPUs, out of docs/evidence/gpu."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.units import format_size

GPU_EVIDENCE = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "gpu"
#: Of the speed that was asked for: by case, (least share of a plain copy, most microseconds).
UNPACK_LIMITS = {
    "pages_64MiB": (0.85, None),  # by events
    "chunk_512KiB": (None, 6.0),  # by the profiler
    "mss_64MiB": (0.25, None),  # by events
}
#: Launches of the program in unpack_parts: GPUs, (file, command).
UNPACK_PARTS_RUNS = {
    "one H200": ("one_h200", "unpack_parts 101"),
    "two H100": ("two_h100", "unpack_parts 151"),
}
#: What is shown of it: its name of a variant, in words.
UNPACK_PARTS = {
    "flat": "as it is",
    "base": "blocks search, as they did before",
    "stg0-32-16": "the second half of a block's descriptors is fetched while its first pages move",
    "flat-g4w4": "blocks of 4 warps, with a page each",
    "flat-g64w16": "64 fragments a block",
    "flatlb-32-16-3": "registers for a third block on a multiprocessor",
    "flat-dev": "an ablation: descriptors in the GPU's memory",
    "flat-computed": "an ablation: no descriptors, pages are computed",
    "flat-noend": "an ablation: neither number nor count at the end",
    "flat-notell": "an ablation: a count, and no number",
    "flat-computed-noend": "an ablation: no descriptors, neither number nor count",
    "plain-1p-w8": "pages in order by such warps, and nothing else",
    "copy": "the driver's copy",
}
#: By run: (least GB/s, least ratio to NCCL).
RUN_LIMITS = {"pair-64M": (32.0, 1.0), "ring-64M": (16.0, 1.0), "pair-8K": (None, 2.0)}


def gpu_runs_table(names: Sequence[str]) -> list[str]:
    """Runs in the memory of two GPUs, or of one that ranks share, beside NCCL where it ran: the
    launch with the median time, and, where there were several, the least and the most of all."""
    lines = [
        "| run | size | launches | time | busbw | wanted | NCCL | ratio, 95 % interval | wanted | "
        "CPU s a GB, ours and NCCL's | wrong bytes |",
        "|--|--|--|--|--|--|--|--|--|--|--|",
    ]
    commands = []
    for name in names:
        run = read_run(str(GPU_EVIDENCE / f"{name}.h5"))
        launches = sorted(
            (summarise_row(each.header, each.rows[-1]) for each in run.all_launches),
            key=lambda launch: launch.time_ns,
        )
        row = launches[len(launches) // 2]
        # What was asked for is asked of a GPU for each rank.
        wanted = "" if name.startswith("shared/") else Path(name).name.removesuffix("-chosen")
        least, beside = RUN_LIMITS.get(wanted, (None, None))
        found = row.against.get("nccl")
        theirs = ratio = cpu = ""
        if found is not None:
            peers = [launch.against["nccl"] for launch in launches]
            theirs = f"{found.theirs:.4g}{_range([peer.theirs for peer in peers])}"
            ratio = (
                f"{found.ratio:.2f} ({found.ci_low:.2f} - {found.ci_high:.2f})"
                f"{_range([peer.ratio for peer in peers])}"
            )
            cpu = f"{row.cpu_s_per_gb:.2f}, {found.cpu_s_per_gb:.2f}"
        wrong = sum(launch.wrong_found for launch in launches)
        lines.append(
            f"| `{name}` | {format_size(row.size_bytes)} | {len(launches)} "
            f"| {row.time_ns / 1e3:.4g} us{_range([each.time_ns / 1e3 for each in launches])} "
            f"| {row.busbw:.3g} GB/s{_range([each.busbw for each in launches])} "
            f"| {_at_least(least)} | {theirs} | {ratio} "
            f"| {_at_least(beside)} | {cpu} | {wrong} |"
        )
        words = run.header.command
        hidden = words.index("--hdf5")
        commands.append(" ".join([*_told(run), "tcpx-mpi", *words[1:hidden], *words[hidden + 2 :]]))
    return [*lines, "", "", "```", *commands, "```"]


def _range(values: Sequence[float]) -> str:
    """Of several launches."""
    return f", {min(values):.4g} - {max(values):.4g}" if len(values) > 1 else ""


def _told(run: Run) -> list[str]:
    """What softtcpx was told by its user."""
    ours = {name for name, _, _ in run.header.settings}
    found = run.header.environment.items()
    return [f"{n}={v}" for n, v in found if n.startswith("SOFTTCPX_") and n not in ours]


def gpu_sides_table(names: Sequence[str]) -> list[str]:
    """When a rank's part of an iteration was done, since its start: who waits for whom. And how
    many cores it had, for the progress thread and for all others."""
    lines = [
        "| run | rank | sends done | receives done | chunks a channel | cores: progress thread "
        "| all other threads | workers of the plugin |",
        "|--|--|--|--|--|--|--|--|",
    ]
    for name in names:
        run = read_run(str(GPU_EVIDENCE / f"{name}.h5"))
        row = run.rows[-1]
        plan = run.header.plan
        chunks, channels = -(-row.size_bytes // row.chunk_bytes), plan.channels
        shares = Counter(len(range(channel, chunks, channels)) for channel in range(channels))
        shared = ", ".join(f"{n} on {shares[n]}" for n in sorted(shares, reverse=True) if n)
        own, others = cores_of_ranks(run)
        for rank in range(row.samples["send"].shape[0]):
            times = [_median_us(row.samples[part][rank]) for part in ("send", "receive")]
            lines.append(
                f"| `{name}` | {rank} | {times[0]} | {times[1]} | {shared} "
                f"| {own[rank]:.2f} | {others[rank]:.1f} | {row.proof[rank].plugin_threads} |"
            )
    return lines


def cores_of_ranks(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """CPU time over the time of the last row's batches, by rank: the progress thread's, and that
    of all other threads of the process, the plugin's among them."""
    row = run.rows[-1]
    elapsed_ns = summarise_row(run.header, row).elapsed_ns_by_rank
    used_ns = row.cpu_user_ns + row.cpu_system_ns
    return (used_ns - row.cpu_others_ns) / elapsed_ns, row.cpu_others_ns / elapsed_ns


def _median_us(samples_ns: NDArray[np.int64]) -> str:
    """Of a part that this rank has; a rank without one has -1 in its place."""
    return f"{np.median(samples_ns) / 1e3:.4g} us" if (samples_ns >= 0).all() else ""


def unpack_table(names: Sequence[str]) -> list[str]:
    """The unpack alone beside the driver's own copy, in turns, on machines of one kind: of all
    launches that with the median share of a copy, the lower one of two."""
    (kind,) = names
    launches = sorted(
        unpack_launches(kind),
        key=lambda launch: _case(launch, "pages_64MiB")["alone"]["ratio_to_copy"],
    )
    found = launches[(len(launches) - 1) // 2]
    form, number = _form_and_number(kind)
    lines = [
        f"`{found['command']}` on {found['gpu']}, of a machine with {number}{form}; of "
        f"{len(launches)} launches the one with the (lower) median of `pages_64MiB`; medians of "
        f"{found['rounds']}, by events, of a launch alone and of each of {found['row']} in a row, "
        f"and by the profiler (CUPTI {found['cupti']}):",
        "",
        "| case | fragments | unpack | plain copy | copy / unpack | wanted "
        "| unpack in a row | plain copy in a row "
        "| unpack by the profiler | plain copy by the profiler | wanted |",
        "|--|--|--|--|--|--|--|--|--|--|--|",
    ]
    for case in found["cases"]:
        share, most = UNPACK_LIMITS.get(case["case"], (None, None))
        alone = case["alone"]
        ratio = f"{alone['ratio_to_copy']:.3f}" if case["bytes"] else ""
        limit = f"<= {most:g} us" if most else ""
        lines.append(
            f"| `{case['case']}` | {case['fragments']} | {_unpack_times(case, alone)} | {ratio} "
            f"| {_at_least(share)} | {_unpack_times(case, case.get('in_a_row'))} "
            f"| {_unpack_times(case, case.get('by_profiler'))} | {limit} |"
        )
    return lines


def unpack_launches(kind: str) -> list[dict[str, Any]]:
    """All launches of a kind, by their number: `on_one`, on machines with one H200, `on_two`,
    `on_two_h100`; `search_on_...` with the kernel's form before, in which blocks searched."""
    files = sorted(GPU_EVIDENCE.glob(f"unpack_{kind}.*.json"))
    return [dict(json.loads(file.read_text())) for file in files]


def _form_and_number(kind: str) -> tuple[str, str]:
    """Of the kernel, in words, and of GPUs."""
    form, _, machine = kind.rpartition("on_")
    return ", blocks search" if form else "", machine.partition("_")[0]


def unpack_launches_table(names: Sequence[str]) -> list[str]:
    """What was wanted of the unpack alone, launch by launch, by each measure."""
    lines = [
        "| GPUs | machine | kernel | `pages_64MiB`, of a copy: by events, by the profiler "
        "| `mss_64MiB` | `chunk_512KiB`: alone, in a row, by the profiler |",
        "|--|--|--|--|--|--|",
    ]
    for kind in names:
        form, number = _form_and_number(kind)
        for launch in unpack_launches(kind):
            shares = [
                f"{case['alone']['ratio_to_copy']:.3f}, {case['by_profiler']['ratio_to_copy']:.3f}"
                for case in (_case(launch, name) for name in ("pages_64MiB", "mss_64MiB"))
            ]
            chunk = _case(launch, "chunk_512KiB")
            times = ", ".join(f"{chunk[way]['unpack_us_median']:.3g}"
                              for way in ("alone", "in_a_row", "by_profiler"))  # fmt: skip
            place = f"{number} {launch['gpu'].split()[1]} | {launch['machine']}"
            lines.append(
                f"| {place} | {form.removeprefix(', ')} | {' | '.join(shares)} | {times} us |"
            )
    return lines


def _case(launch: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    (found,) = (case for case in launch["cases"] if case["case"] == name)
    return dict(found)


def _unpack_times(case: Mapping[str, Any], way: Mapping[str, Any] | None) -> str:
    """The columns of the unpack and the copy; of no bytes there is no copy."""
    if way is None:
        return "| "
    copy = f"{way['copy_us_median']:.4g} us" if case["bytes"] else ""
    return f"{way['unpack_us_median']:.4g} us | {copy}"


def unpack_parts_table(_names: Sequence[str]) -> list[str]:
    """Where 64 MiB of pages spend their time: loops like the kernel's, with one thing changed."""
    machines = [_unpack_parts(name) for name, _ in UNPACK_PARTS_RUNS.values()]
    commands = [f"`{command}` ({gpus})" for gpus, (_, command) in UNPACK_PARTS_RUNS.items()]
    lines = [
        f"{' and '.join(commands)}, medians in turns, by the profiler:",
        "",
        f"| launch | in the program | {' | '.join(UNPACK_PARTS_RUNS)} |",
        f"|--|--|{'--|' * len(machines)}",
    ]
    for variant, what in UNPACK_PARTS.items():
        times = (f"{found[variant]:.1f} us, {100 * (found[variant] / found['flat'] - 1):+.1f} %"
                 if variant != "flat" else f"{found[variant]:.1f} us"
                 for found in machines)  # fmt: skip
        lines.append(f"| {what} | `{variant}` | {' | '.join(times)} |")
    return lines


def _unpack_parts(name: str) -> dict[str, float]:
    """Microseconds of each variant, of 64 MiB, and of the driver's copy."""
    text = (GPU_EVIDENCE / "unpack_parts" / f"{name}.txt").read_text()
    heading, *lines = text.split("== 16384 fragments: ")[1].split("==")[0].splitlines()
    found = {"copy": float(heading.split()[1])}
    for variant, us, _ in map(str.split, filter(None, lines)):
        found[variant] = float(us)
    return found


def experiments_table(names: Sequence[str]) -> list[str]:
    """What runs take with other settings, a table for each machine: launches in turns."""
    (name,) = names
    found = json.loads((GPU_EVIDENCE / f"{name}_experiments.json").read_text())
    parts = "each part is of one machine, in turns" if len(found["calls"]) > 1 else "in turns"
    lines = [f"{found['gpus']}, {found['date']}; {parts}:", ""]
    for launches in found["calls"]:
        lines += ["| tried | how | launches | time | busbw | CPU s a GB | wrong bytes |",
                  "|--|--|--|--|--|--|--|"]  # fmt: skip
        for each in launches:
            checked = None not in each["wrong"]
            lines.append(
                f"| {each['tried']} | `{each['command']}` | {len(each['us'])} "
                f"| {np.median(each['us']):.4g} us{_range(each['us'])} | "
                + (f"{np.median(each['busbw']):.3g} GB/s" if checked else "")
                + f" | {np.median(each['cpu_s_per_GB']):.2f} "
                f"| {sum(each['wrong']) if checked else 'unchecked'} |"
            )
        lines.append("")
    return lines[:-1]


def _at_least(limit: float | None) -> str:
    return f">= {limit:g}" if limit is not None else ""

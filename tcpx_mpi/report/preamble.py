"""The lines above the table: what runs, how it is timed, and where every rank is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

from tcpx_mpi.plugin.softtcpx_defaults import are_chunks_fitted
from tcpx_mpi.records import BaselineInfo, Plan, RankInfo, RunHeader
from tcpx_mpi.units import ABSENT, MIB, counted, format_size

#: The step that nccl-tests prints where there is only one size.
_DEFAULT_STEP_BYTES = MIB
_PCI_ADDRESS = re.compile(r"([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?")

_MODES = {
    "back-to-back": "a rank starts an iteration when its own last one is complete",
    "open loop": "iterations are begun by the clock, whether those before are complete or not",
    "synchronised": "every iteration starts together on all ranks",
    "apart": "a rank that asks starts an iteration when its own last one is complete; all begin "
    "each block together",
}


_IMPORTED = (
    "# Timing: averages over ranks and iterations, imported as another program printed them; there "
    "are no samples, hence no percentiles, no slowest rank and no intervals"
)


def header_lines(header: RunHeader) -> list[str]:
    """The comment lines from the version to the rank map."""
    plan = header.plan
    amount, unit = step(plan.sizes)
    lines = [
        f"# tcpx-mpi version {header.versions.get('tcpx-mpi', 'unknown')}",
        f"# Collective test starting: {header.pattern}",
        imported_settings_line(header)
        if header.averages_only
        else f"# nThread 1 nGpus 1 minBytes {min(plan.sizes)} maxBytes {max(plan.sizes)} "
        f"step: {amount}({unit}) warmup iters: {plan.warmup_iters} iters: {plan.iters} "
        f"agg iters: {plan.agg_iters} validation: {plan.check} graph: 0 unalign: "
        f"{_setting_of(header, 'unalign')}",
        "#",
    ]
    lines += [_IMPORTED] if header.averages_only else _engine_lines(header)
    lines += [
        f"# Peer {baseline.name}: {_baseline_text(baseline)}" for baseline in header.baselines
    ]
    lines += [
        f"# Setting: {name} = {value} ({source})"
        for name, value, source in header.settings
        if source != "default"
    ]
    lines += [f"# Note: {note}" for note in header.notes]
    lines += ["#", "# Using devices"]
    return lines + [rank_line(info) for info in header.ranks]


def imported_settings_line(header: RunHeader) -> str:
    """The line of settings as the imported log has it; N/A for what it did not say."""
    told = imported_settings(header)
    unit = next((unit for unit in ("factor", "bytes", "list") if f"step_{unit}" in told), "")
    step_text = f"{told[f'step_{unit}']}({unit})" if unit else ABSENT
    parts = [
        f"{title} {told.get(name, ABSENT)}"
        for title, name in (
            ("nThread", "nthreads"), ("nGpus", "ngpus"), ("minBytes", "minimum_bytes"),
            ("maxBytes", "maximum_bytes"),
        )
    ]  # fmt: skip
    parts.append(f"step: {step_text}")
    parts += [
        f"{title}: {told.get(name, ABSENT)}"
        for title, name in (
            ("warmup iters", "warmup_iters"), ("iters", "iterations"),
            ("agg iters", "aggregated_iterations"), ("validation", "validation"),
            ("graph", "graph"), ("unalign", "unalign"),
        )
    ]  # fmt: skip
    return f"# {' '.join(parts)}"


def imported_settings(header: RunHeader) -> dict[str, str]:
    """The settings in an imported log, by the names of nccl-tests' JSON."""
    return {name: value for name, value, _ in header.settings}


def _engine_lines(header: RunHeader) -> list[str]:
    plan = header.plan
    fitted = any(name == "chunk_bytes" and are_chunks_fitted(by) for name, _, by in header.settings)
    chunk = ("up to " if fitted else "") + format_size(plan.chunk_bytes)
    gpus = []
    if "cuda" in header.memory:
        gpus = [f"# GPUs: {gpus_text(header.facts)}", *_shared_gpus(header.ranks)]
    return [
        f"# Plugin: {header.plugin_path} sha256 {header.plugin_sha256[:12]} "
        f"ABI v{header.plugin_abi} name {header.plugin_name} memory {header.memory}"
        + ("" if header.unpack == "in place" else f", unpack {header.unpack}")
        # Words of a GPU, where there is none.
        + (" by the CPU in host memory" if "emulated" in header.memory else ""),
        *_plugin_found(header.facts),
        *(f"# Plugin warning: {text}" for text in _lines_of(header.facts, "plugin_warned")),
        *_socket_lines(header.facts),
        *gpus,
        *(f"# Registration: {how}" for how in _lines_of(header.facts, "registration_chosen")),
        *(f"# Flush: {chosen}" for chosen in _lines_of(header.facts, "flush_chosen")),
        *_algorithm_lines(header),
        *(f"# Settings: {text}" for text in _lines_of(header.facts, "turned_off")),
        f"# Timing: {header.mode}" + (f": {_MODES[header.mode]}" if header.mode in _MODES else ""),
        f"# Engine: chunk {chunk}, {counted(plan.channels, 'channel')}, "
        f"window send {plan.window_send} receive {plan.window_recv}"
        + (f", {plan.multi_recv} receives a request" if plan.multi_recv > 1 else ""),
        f"# Buffers: {_slots(plan)}; last-level cache "
        + (format_size(header.llc_bytes) if header.llc_bytes > 0 else "unknown"),
    ]


def _algorithm_lines(header: RunHeader) -> list[str]:
    """The lines on `--algo auto`; none if no row has a choice."""
    latency, bandwidth = (header.facts.get(f"algo_{name}") for name in ("latency_us", "gb_per_s"))
    if latency is None:
        return []
    return [
        f"# Algorithm: by size, for {latency} us a message and {bandwidth} GB/s"
        + (f" ({others})" if (others := header.facts.get("algo_others_gb_per_s")) else "")
        + ", measured before the rows"
    ]


def _lines_of(facts: Mapping[str, str], name: str) -> list[str]:
    return facts.get(name, "").splitlines()


def _plugin_found(facts: Mapping[str, str]) -> list[str]:
    """By what it was found, where a variable that users of NCCL know has a part in that."""
    found = facts.get("plugin_found", "")
    return [f"# Plugin found by: {found}"] if "NCCL_NET_PLUGIN" in found else []


def _socket_lines(facts: Mapping[str, str]) -> list[str]:
    """The lines on the plugin's sockets, as far as they are known."""
    congestion, sockets = facts.get("congestion_control", "unknown"), facts.get("data_sockets")
    parts = [] if congestion == "unknown" else [f"congestion control {congestion}"]
    if sockets is not None:
        parts.append(f"{counted(int(sockets), 'data socket')} a connection")
    return [f"# Sockets: {', '.join(parts)}"] if parts else []


def gpus_text(facts: Mapping[str, str]) -> str:
    """The layers between us and the GPUs, from the facts of a run in their memory."""

    def fact(name: str) -> str:
        return facts.get(f"gpu_{name}", "unknown")

    return (
        f"driver {fact('driver')} for CUDA {fact('driver_cuda')}, NVRTC {fact('nvrtc')}, "
        f"CuPy {fact('cupy')}, clocks {fact('clocks')}"
    )


def _shared_gpus(ranks: Sequence[RankInfo]) -> list[str]:
    """That ranks are not alone on their GPUs, whose times are others than those of a GPU each."""
    sharers = Counter((info.node, info.gpu_pci) for info in ranks if info.gpu_pci)
    most = max(sharers.values(), default=1)
    if most == 1:
        return []
    first = next(info for info in ranks if sharers[info.node, info.gpu_pci] == most)
    others = sum(count > 1 for count in sharers.values()) - 1
    return [
        f"# Shared: {most} ranks on GPU {first.gpu_pci} of {first.host}"
        + (f", and {counted(others, 'other')} with several" if others else "")
        + ": what one does waits for the others (docs/how-to/gpu.md)"
    ]


def rank_line(info: RankInfo) -> str:
    """A rank's line as nccl-tests prints it; NIC, NUMA node and CPUs follow the device's name."""
    nic = f"NIC {info.nic or 'unknown'}"
    if info.nic_speed_mbps > 0:
        nic += f" {info.nic_speed_mbps} Mb/s"
    numa = f"NUMA node {info.numa_node}" if info.numa_node >= 0 else "NUMA node unknown"
    progress = f", progress CPU {info.progress_cpu}" if info.progress_cpu >= 0 else ""
    progress += f", plugin CPUs {info.plugin_cpus}" if info.plugin_cpus else ""
    gpu = _gpu_text(info)
    memory = f", memory on node {info.memory_node}" if info.memory_node >= 0 else ""
    return (
        f"#  Rank {info.rank:2d} Group {info.group:2d} Pid {info.pid:6d} on {info.host:>10s} "
        f"device {info.device:2d} [{pci_address(info)}] {info.device_name}, {nic}{gpu}, {numa}, "
        f"CPUs {info.cpus or 'unknown'}{progress}{memory}"
    )


def _gpu_text(info: RankInfo) -> str:
    if info.gpu < 0:
        return ""
    if info.memory != "cuda":
        return f", by GPU {info.gpu} [{info.gpu_pci or 'unknown'}]"
    node = info.gpu_numa_node
    return f", GPU {info.gpu} on NUMA node {node if node >= 0 else 'unknown'}"


def pci_address(info: RankInfo) -> str:
    """The bracket of the rank line: scripts expect a PCI address there, so never a word.

    The GPU's where its memory is used, else the NIC's; an imported rank has its GPU's.
    """
    first, second = info.nic_pci, info.gpu_pci
    if info.memory == "cuda":
        first, second = second, first
    match = _PCI_ADDRESS.fullmatch(first or second)
    return match.group(1).lower() if match else "0000:00:00"


def step(sizes: Sequence[int]) -> tuple[int, str]:
    """The step that would have made these sizes: bytes, a factor, or 0 for a list."""
    pairs = list(pairwise(sizes))
    if not pairs:
        return _DEFAULT_STEP_BYTES, "bytes"
    first, second = pairs[0]
    factor = second // first if first > 0 else 0
    if factor > 1 and all(b == a * factor for a, b in pairs):
        return factor, "factor"
    if all(b - a == second - first > 0 for a, b in pairs):
        return second - first, "bytes"
    return 0, "list"


def _baseline_text(baseline: BaselineInfo) -> str:
    text = f"{baseline.description}, {baseline.congestion_control or 'congestion control unknown'}"
    if baseline.send_buffer_bytes > 0:
        text += f", send buffer {format_size(baseline.send_buffer_bytes)}"
    if baseline.interfaces:
        text += f", over {baseline.interfaces}"
    return text


def _slots(plan: Plan) -> str:
    """Slots by size, in runs of equal numbers: `64 slots for 1 KiB to 4 KiB, 2 for 1 GiB`."""
    if len(plan.slots) != len(plan.sizes):
        return "slots unknown"
    texts: list[str] = []
    for count, run in groupby(zip(plan.slots, plan.sizes, strict=True), key=lambda pair: pair[0]):
        sizes = [format_size(size) for _, size in run]
        span = sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        texts.append(f"{count}{'' if texts else ' slots'} for {span}")
    return ", ".join(texts)


def _setting_of(header: RunHeader, name: str) -> str:
    """A setting that files of older versions do not have, where it was 0."""
    return {setting: value for setting, value, _ in header.settings}.get(name, "0")

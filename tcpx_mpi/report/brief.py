"""The short header on a terminal: pattern, plugin and why, memory, ranks, path of the file."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby

from tcpx_mpi.records import RankInfo, RunHeader
from tcpx_mpi.units import counted, format_size

#: With the 3 lines of titles 12 at most stand above the rows.
MOST_LINES = 9
#: Nodes that are named; of more, how many there are.
_MOST_NODES = 2
_MORE = " ... (-v)"
_TITLE = 11


def brief_lines(header: RunHeader, path: str, columns: int) -> list[str]:
    """The header in at most `MOST_LINES` lines; what is cut off is said by `-v`."""
    texts = {"tcpx-mpi": _what(header)}
    if not header.averages_only:
        texts |= {"plugin": _plugin(header), "memory": _memory(header)}
    texts["ranks"] = _ranks(header)
    if header.baselines:
        texts["beside"] = _baselines(header)
    if noted := _noted(header):
        texts["note"] = noted
    if path:
        texts["file"] = path
    spare = MOST_LINES - len(texts)
    lines = []
    for title, text in texts.items():
        if title == "file":  # to be copied, so never cut
            lines.append(f"# {title:<8} {text}")
            continue
        # One line each; those that explain a choice have a second one while there are some.
        room = textwrap.wrap(
            text, columns - _TITLE, max_lines=2 if spare > 0 else 1, placeholder=_MORE,
            break_on_hyphens=False,
        )  # fmt: skip
        spare -= len(room) - 1
        lines += [f"# {name:<8} {part}" for name, part in zip((title, ""), room, strict=False)]
    return lines


def _what(header: RunHeader) -> str:
    plan = header.plan
    sizes = format_size(min(plan.sizes))
    if len(plan.sizes) > 1:
        sizes = f"{len(plan.sizes)} sizes, {sizes} to {format_size(max(plan.sizes))}"
    text = f"{header.versions.get('tcpx-mpi', '')} {header.pattern}, {sizes}"
    if header.averages_only:
        return f"{text.strip()}, imported: averages of another program"
    timing = "" if header.back_to_back and not header.is_open_loop else f", {header.mode}"
    return f"{text.strip()}, {_length(header)}{timing}"


def _length(header: RunHeader) -> str:
    """How long a row is: by iterations, or by what a row of open length was to reach."""
    asked = {name: value.removesuffix(".0") for name, value, _ in header.settings}
    until = [
        text.format(asked[name])
        for name, text in (("duration_s", "{} s"), ("ci", "until --ci {}"))
        if asked.get(name, "0") != "0"
    ]
    return f"{' and '.join(until) or counted(header.plan.iters, 'iteration')} each"


def _plugin(header: RunHeader) -> str:
    abi = f" (ABI v{header.plugin_abi})" if header.plugin_abi >= 0 else ""  # of NIXL nobody tells
    name = f"{header.plugin_name}{abi}"
    found = header.facts.get("plugin_found", "")
    return f"{name}, {found}" if found else f"{name}, {header.plugin_path}"


#: Why there is none, without what the loader says of each library, and without what to do: nothing
#: is amiss.
_NO_GPU = re.compile(r" has no usable GPU \(([^():]+)[^()]*\): [^()]*\)$")


def _memory(header: RunHeader) -> str:
    """The place of the buffers, and the reason: the fact is `host (auto: there is no GPU)`."""
    chosen = _NO_GPU.sub(
        r" has no usable GPU: \1)", header.facts.get("memory_chosen", header.memory)
    )
    if flush := header.facts.get("flush_chosen"):
        return f"{chosen}, flush {flush}"
    return chosen if header.unpack == "in place" else f"{chosen}, unpack {header.unpack}"


def _ranks(header: RunHeader) -> str:
    by_node = [(host, list(infos)) for host, infos in groupby(header.ranks, lambda i: i.host)]
    texts = [f"{len(infos)} on {host}{_devices(infos)}" for host, infos in by_node[:_MOST_NODES]]
    if len(by_node) > _MOST_NODES:
        texts.append(f"and {counted(len(by_node) - _MOST_NODES, 'node')} more")
    return f"{header.world}: {', '.join(texts)}"


def _devices(infos: list[RankInfo]) -> str:
    nics = ", ".join(dict.fromkeys(info.nic for info in infos if info.nic))
    gpus = sorted({info.gpu for info in infos if info.memory == "cuda" and info.gpu >= 0})
    parts = [f"NIC {nics}"] if nics else []
    if gpus:
        parts.append(f"GPU {', '.join(map(str, gpus))}")
    return f" ({'; '.join(parts)})" if parts else ""


def _baselines(header: RunHeader) -> str:
    """Each kind as it was asked for; its variants by how many there are."""
    kinds = dict.fromkeys(baseline.kind for baseline in header.baselines)
    texts = []
    for kind in kinds:
        mine = [each for each in header.baselines if each.kind == kind]
        variants = f" and {counted(len(mine) - 1, 'variant')}" if len(mine) > 1 else ""
        texts.append(f"{kind} ({mine[0].description.split(', package')[0]}){variants}")
    return ", ".join(texts)


def _noted(header: RunHeader) -> str:
    facts = (header.facts.get(name, "") for name in ("turned_off", "plugin_warned"))
    said = [*header.notes, *(line for text in facts for line in text.splitlines())]
    more = f" (and {len(said) - 1} more: -v)" if len(said) > 1 else ""
    return f"{said[0]}{more}" if said else ""

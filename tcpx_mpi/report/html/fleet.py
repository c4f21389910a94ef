"""A fleet as the text of one HTML page: heat maps, a distribution, the slowest links first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.report.fleet import SLOW, Fleet
from tcpx_mpi.report.html.axes import Plot, empty_axes, plain_number
from tcpx_mpi.report.html.page import rendered
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.report.html.tables import Column, Line, Table
from tcpx_mpi.units import counted, format_size

#: Ways in the table of the worst.
LINKS_SHOWN = 50
#: Nodes up to which the cells of a heat map have their figures in them.
_FIGURES_UP_TO = 16
#: A cell is as red as can be at this share of the median and below, and green at the median.
_WORST = 0.7


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map: text, full words, and how red it is from 0 to 100 (-1: no figure)."""

    text: str
    words: str
    heat: int


@dataclass(frozen=True)
class HeatMap:
    """Rows and columns with a heading each."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str


def fleet_page(fleet: Fleet) -> str:
    """The page of a fleet; it refers to nothing outside of itself."""
    slow = fleet.slow_nics()
    sentences = [
        f"NIC {nic.name} of {nic.host}: {nic.gb_per_s:.3f} GB/s, "
        f"{fleet.share(nic.gb_per_s):.2f} of the median"
        for nic in slow[:8]
    ]
    if len(slow) > len(sentences):
        sentences.append(f"and {len(slow) - len(sentences)} more")
    sentences += [f"{path}: {text}" for path, text in fleet.troubles[:8]]
    level = "bad" if fleet.troubles or slow else "good"
    return rendered(
        "fleet.html",
        {
            "title": f"{counted(len(fleet.hosts), 'node')}, {fleet.pattern}, {fleet.plugin}",
            "level": level,
            "word": f"{counted(len(slow), 'slow NIC')}" if slow else "No slow NIC",
            "sentences": sentences or [f"each is at least {SLOW:g} of the median"],
            "facts": [
                ("size", format_size(fleet.size_bytes)),
                ("median of a NIC", f"{fleet.median:.3f} GB/s"),
                ("memory", fleet.memory),
                ("NICs", str(len(fleet.nics))),
                ("files", str(len(fleet.paths))),
            ],
            "maps": [_nic_map(fleet), *([_link_map(fleet)] if fleet.between else [])],
            "plot": _distribution(fleet),
            "links": _link_table(fleet) if fleet.links else None,
            "nodes": _nodes_table(fleet),
            "files": Table(
                "Files", (Column("path", is_text=True),), tuple(Line((p,)) for p in fleet.paths)
            ),
        },
    )


def _cell(fleet: Fleet, gb_per_s: float | None, words: str, with_figure: bool) -> Cell:
    if gb_per_s is None:
        return Cell("-" if with_figure else "", f"{words}: not measured", -1)
    share = fleet.share(gb_per_s)
    heat = round(100 * min(1.0, max(0.0, (1 - share) / (1 - _WORST))))
    text = f"{gb_per_s:.3g}" if with_figure else ""
    return Cell(text, f"{words}: {gb_per_s:.3f} GB/s, {share:.2f} of the median", heat)


def _nic_map(fleet: Fleet) -> HeatMap:
    rows = []
    for host in sorted(fleet.hosts, key=fleet.slowest_gb_per_s):
        cells = []
        for name in fleet.nic_names:
            nic = fleet.nics.get((host, name))
            rate = nic.gb_per_s if nic is not None else None
            cells.append(_cell(fleet, rate, f"{host} {name}", True))
        rows.append((host, cells))
    return HeatMap(
        "GB/s by node and NIC, the node of the slowest NIC first",
        fleet.nic_names,
        rows,
        "The median over what was measured at a NIC; the redder, the further below the median.",
    )


def _link_map(fleet: Fleet) -> HeatMap:
    figures = len(fleet.hosts) <= _FIGURES_UP_TO
    rows = [
        (
            sender,
            [
                _cell(fleet, fleet.between.get((sender, to)), f"{sender} to {to}", figures)
                for to in fleet.hosts
            ],
        )
        for sender in fleet.hosts
    ]
    return HeatMap(
        "GB/s from node to node: a row sends, a column receives",
        fleet.hosts,
        rows,
        "The median over the links between two nodes.",
    )


def _distribution(fleet: Fleet) -> Plot:
    """The number of NICs at each bandwidth."""
    rates = np.array([nic.gb_per_s for nic in fleet.nics.values()])
    heading = "Distribution over NICs"
    with empty_axes("fleet-distribution", 220) as plot:
        low, high = float(rates.min()), float(rates.max())
        spread = max(high - low, 0.02 * high)
        bins = np.linspace(high - spread, high, 1 + min(30, max(8, math.isqrt(rates.size) * 3)))
        plot.axes.hist(rates, bins=bins.tolist(), color=COLOURS["series-1"])
        plot.axes.axvline(fleet.median, color=COLOURS["ink"], linewidth=1.4)
        if SLOW * fleet.median > bins[0]:
            plot.axes.axvline(
                SLOW * fleet.median, color=COLOURS["bad"], linestyle=(0, (4, 3)), linewidth=1.4
            )
        plot.axes.xaxis.set_major_formatter(plain_number)
        plot.axes.set_xlabel("GB/s of a NIC")
        plot.axes.set_ylabel("NICs")
        words = f"{len(rates)} NICs from {low:.3f} to {high:.3f} GB/s, median {fleet.median:.3f}"
        svg = plot.finished(heading, words)
    return Plot(heading, svg, f"{words}. Line: the median; dashed: {SLOW:g} of it.")


def _link_table(fleet: Fleet) -> Table:
    shown = fleet.links[:LINKS_SHOWN]
    lines = tuple(
        Line(
            (link.sender, link.receiver, f"{link.gb_per_s:.3f}",
             f"{fleet.share(link.gb_per_s):.2f}", link.path),
            "bad" if fleet.share(link.gb_per_s) < SLOW else "",
        )
        for link in shown
    )  # fmt: skip
    note = f"{len(shown)} of {len(fleet.links):,} links." if len(shown) < len(fleet.links) else ""
    columns = (
        Column("from", is_text=True), Column("to", is_text=True), Column("bandwidth", "GB/s"),
        Column("share", "of the median"), Column("file", is_text=True),
    )  # fmt: skip
    return Table("Links, the slowest first", columns, lines, note)


def _nodes_table(fleet: Fleet) -> Table:
    lines = []
    for host in sorted(fleet.hosts, key=fleet.slowest_gb_per_s):
        rate = fleet.host_gb_per_s(host)
        own = [nic for nic in fleet.nics.values() if nic.host == host]
        worst = min(own, key=lambda nic: nic.gb_per_s)
        lowest = fleet.share(worst.gb_per_s)
        cells = (host, f"{rate:.3f}", f"{fleet.share(rate):.2f}", worst.name, f"{lowest:.2f}",
                 str(sum(nic.figures for nic in own)))  # fmt: skip
        lines.append(Line(cells, "bad" if lowest < SLOW else ""))
    columns = (
        Column("node", is_text=True), Column("bandwidth", "GB/s, median of its NICs"),
        Column("share", "of the fleet"), Column("slowest NIC", is_text=True),
        Column("share", "of the fleet"), Column("figures"),
    )  # fmt: skip
    return Table("Nodes, that of the slowest NIC first", columns, tuple(lines))

"""A run as the text of one HTML page: numbers to tables and plots, and those into the template."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import resources
from typing import Any

from tcpx_mpi.findings import Finding, Severity, worst_first
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.findings.run import Matrix, RunFinding, findings_of
from tcpx_mpi.findings.stragglers import SLOW
from tcpx_mpi.findings.verdict import as_nccl_tests, on_page
from tcpx_mpi.records import Run, rank_name
from tcpx_mpi.report.html import plots, tables
from tcpx_mpi.report.html.ceilings import line_rate
from tcpx_mpi.report.html.launches import launches_plot, launches_table, side_of, spread_table
from tcpx_mpi.report.html.waterfall import waterfall_plots
from tcpx_mpi.report.launches import representative
from tcpx_mpi.report.lines import written
from tcpx_mpi.report.table import summarise_row
from tcpx_mpi.stats import slowest_rank
from tcpx_mpi.units import counted


def page_of(run: Run, plugin_trace: str | None = None) -> str:
    """The page of a run, whole or not; it refers to nothing outside of itself. `plugin_trace` is
    as of `plugin_trace_of`."""
    return rendered("page.html", _content(run, plugin_trace))


def rendered(template: str, content: dict[str, Any]) -> str:
    """The text of a template of this folder."""
    import jinja2

    folder = resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        # Every text of the run is a stranger's: host names, variables, messages of a plugin.
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(content)


def _content(whole: Run, plugin_trace: str | None) -> dict[str, Any]:
    run, missing = representative(whole), whole.missing
    header = run.header
    summaries = [summarise_row(header, row) for row in run.rows]
    findings = findings_of(run, summaries, missing)
    said = [*as_nccl_tests(header, summaries), *findings, *written([run.path])]
    slowest = slowest_rank(summaries)
    traced, untraced = waterfall_plots(run, plugin_trace)
    return {
        "title": f"{header.pattern}, {counted(header.world, 'rank')}, {header.plugin_name}",
        "header": header,
        "run": run,
        "command": shlex.join(header.command),
        "verdict": worst_first([*on_page(whole, summaries), *_slow(findings)]),
        "slowest": slowest,
        "slowest_name": rank_name(header, slowest.rank) if slowest is not None else "",
        "slowest_at": row_names(summaries)[slowest.place] if slowest is not None else "",
        "findings": tables.findings_table(said),
        "rows": tables.rows_table(summaries, run.path),
        "ranks": tables.ranks_table(header, summaries),
        "matrices": [
            tables.matrix_table(each.evidence, header.world)
            for each in findings
            if isinstance(each.evidence, Matrix)
        ],
        "launches": _launches(whole) if whole.launches else None,
        "ratios": tables.ratios_table(summaries),
        "baselines": tables.baselines_table(header),
        "setup": tables.setup_table(run.setup),
        "settings": tables.settings_table(header, defaults=False),
        "defaults": tables.settings_table(header, defaults=True),
        "versions": tables.pairs_table("Versions", header.versions),
        "facts": tables.pairs_table("Facts of rank 0's host; how nodes are set", header.facts),
        "environment": tables.pairs_table("Environment of rank 0", header.environment),
        "placement": tables.placement_table(header),
        "over_size": [
            plot
            for plot in (
                plots.bandwidth_plot(header, summaries, line_rate(header)),
                plots.time_plot(summaries),
            )
            if plot is not None
        ],
        "distributions": plots.distribution_plots(header, run.rows, summaries),
        "waterfalls": traced,
        "untraced": untraced,
        "setup_plot": plots.setup_plot(run.setup),
    }


def _slow(findings: Sequence[RunFinding]) -> list[Finding[str]]:
    """The stragglers, or that they cannot be told: the figures are right, and not those of all."""
    return [
        Finding(Severity.DOUBTFUL, each.title, f"{each.title}: {each.text}.")
        for each in findings
        if each.title == SLOW and each.severity is not Severity.NOTE
    ]


def _launches(run: Run) -> dict[str, Any]:
    """The launches of a file of several: how they vary, and each of them."""
    sides = [side_of(run)]
    return {
        "spread": spread_table(run),
        "each": launches_table(sides),
        "plot": launches_plot(sides),
    }

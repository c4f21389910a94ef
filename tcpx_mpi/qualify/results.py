"""A qualification in the forms of others: Prometheus, JUnit, a line for a log."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tcpx_mpi.exchange.junit import Case
from tcpx_mpi.exchange.prometheus import Metric
from tcpx_mpi.qualify.judge import Qualification
from tcpx_mpi.units import counted

_ALL = "all nodes"


def in_short(found: Qualification) -> str:
    """The first reason, and how many nodes are unfit."""
    bad = [node for node in ("", *found.nodes) if found.unfit(node)]
    first = found.unfit(bad[0])[0]
    names = ", ".join(node or _ALL for node in bad)
    return f"unfit: {names}; {first.title}: {first.text}"


def cases(found: Qualification) -> list[Case]:
    """A case a node, and one of what is of all of them."""
    made = []
    for node in ("", *found.nodes):
        bad = found.unfit(node)
        failure = bad[0].title if bad else ""
        detail = "\n".join(f"{each.title}: {each.text}" for each in bad)
        unjudged = bool(node) and found.verdict(node) == "not judged"
        skipped = "not judged" if unjudged else ""
        made.append(Case("qualify", node or _ALL, failure, skipped, detail))
    return made


def metrics(found: Qualification, environ: Mapping[str, str]) -> list[Metric]:
    """1 for what is fit, 0 for what is not, nodes and devices; what is not judged is left out."""
    job = {"slurm_job_id": environ.get("SLURM_JOB_ID", "unknown")}
    fit = Metric("node_fit", "1 if the node is fit for a job, 0 if it is not.")
    for node in found.nodes:
        verdict = found.verdict(node)
        if verdict != "not judged":
            fit.add({**job, "node": node}, verdict == "fit")
    devices = Metric("device_fit", "1 if a node's NIC or GPU is fit, 0 if it is not.")
    for device in found.devices:
        verdict, _ = found.of_device(device)
        if verdict != "not judged":
            devices.add({**job, "node": device.node, "device": device.shown}, verdict == "fit")
    code = Metric("qualify_exit_code", f"Exit code over {counted(len(found.nodes), 'node')}.")
    code.add(job, found.exit_code)
    end = Metric("qualify_end_timestamp_seconds", "When it ended, in seconds since 1970.")
    end.add(job, round(time.time(), 3))
    return [fit, devices, code, end]

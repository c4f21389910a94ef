"""What this machine and its environment say without a log: ready for the fast path, or not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcpx_mpi.doctor.judge import Finding, Verdict
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.preflight.checks import node_findings
from tcpx_mpi.preflight.facts import AskedPlugin, read_facts
from tcpx_mpi.preflight.findings import Status

_DRIVER = Path("/proc/driver/nvidia/version")
#: Checks of preflight that say whether a job here could be on the fast path.
_CHECKS = (
    "profile",
    "plugin file",
    "plugin found first",
    "plugin variables",
    "plugin devices",
    "GPUs",
    "datapath manager",
    "interfaces",
)
_WEIGHTS = {Status.OK: "fact", Status.WARNING: "warning", Status.FAILED: "off"}


def judge_here(plugin: str | None, profile: str, environ: Mapping[str, str]) -> Verdict:
    """Off (9) if a job here could not be on the fast path; else cannot tell (11): a log can."""
    facts = read_facts(AskedPlugin(plugin), profile, environ)
    findings = [Finding("fact", f"driver: {driver_version(_DRIVER)}")]
    findings += [
        Finding(_WEIGHTS[found.status], f"{found.check}: {found.found}", found.remedy)
        for found in node_findings(facts, facts.host)
        if found.check in _CHECKS
    ]
    if facts.plugin.name.lower().startswith("softtcpx"):
        findings.append(
            Finding(
                "off",
                "the plugin found here is softtcpx, which is plain sockets",
                "install TCPX, or name it: --plugin PATH",
            )
        )
    findings += _family(environ, profile)
    off = [finding for finding in findings if finding.weight == "off"]
    order = ("off", "warning", "fact")
    findings.sort(key=lambda finding: order.index(finding.weight))
    if off:
        return Verdict(
            ExitCode.BELOW_GATE,
            f"{facts.host}: a job here would be off the fast path: {off[0].what}",
            findings,
        )
    headline = (
        f"{facts.host}: cannot tell without a log: nothing here keeps a job off the fast path; "
        "give the log of one (NCCL_DEBUG=INFO)"
    )
    return Verdict(ExitCode.INCONCLUSIVE, headline, findings)


def driver_version(path: Path) -> str:
    """NVIDIA's kernel module, "535.183.01"; "none" where there is none."""
    try:
        found = re.search(r"Kernel Module(?: for \S+)? +(\d+\.\d+(?:\.\d+)?)", path.read_text())
    except OSError:
        return "none"
    return found[1] if found is not None else "version unknown"


def _family(environ: Mapping[str, str], spec: str) -> Sequence[Finding]:
    """Variables of a family whose plugin is not that of this machine's profile."""
    profile = profiles.find_profile(spec, this_machine())
    if profile is None:
        return []
    prefix = "NCCL_GPUDIRECTTCPX_" if profile.family == profiles.FASTRAK else "NCCL_FASTRAK_"
    wrong = sorted(name for name in environ if name.startswith(prefix))
    if not wrong:
        return []
    return [
        Finding(
            "off",
            f"{wrong[0]} is set, which the plugin of these machines does not read",
            f"unset {prefix}..., and set those of {profile.source}",
        )
    ]

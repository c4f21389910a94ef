"""The verdict on this machine without a log: ready for the fast path, or not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcpx_mpi.doctor.judge import LogFinding, Verdict
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity, worst_first
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.preflight.checks import node_findings
from tcpx_mpi.preflight.facts import AskedPlugin, read_facts

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


def judge_here(plugin: str | None, profile: str, environ: Mapping[str, str]) -> Verdict:
    """Off (9) if a job here could not be on the fast path; else cannot tell (11): a log can."""
    facts = read_facts(AskedPlugin(plugin), profile, environ)
    findings: list[LogFinding] = [Finding(Severity.NOTE, "", f"driver: {driver_version(_DRIVER)}")]
    findings += [
        Finding(_here(found.severity), "", f"{found.title}: {found.text}", found.remedy)
        for found in node_findings(facts, facts.host)
        if found.title in _CHECKS
    ]
    if facts.plugin.name.lower().startswith("softtcpx"):
        findings.append(
            Finding(
                Severity.BAD,
                "",
                "the plugin found here is softtcpx, which is plain sockets",
                "install TCPX, or name it: --plugin PATH",
            )
        )
    findings += _family(environ, profile)
    findings = worst_first(findings)
    off = [finding for finding in findings if finding.severity is Severity.BAD]
    if off:
        return Verdict(
            ExitCode.BELOW_GATE,
            f"{facts.host}: a job here would be off the fast path: {off[0].text}",
            findings,
        )
    headline = (
        f"{facts.host}: cannot tell without a log: nothing here keeps a job off the fast path; "
        "give the log of one (NCCL_DEBUG=INFO)"
    )
    return Verdict(ExitCode.INCONCLUSIVE, headline, findings)


def _here(severity: Severity) -> Severity:
    """The finding for a machine on which all is well: that says nothing of a job."""
    return Severity.NOTE if severity is Severity.GOOD else severity


def driver_version(path: Path) -> str:
    """NVIDIA's kernel module, "535.183.01"; "none" where there is none."""
    try:
        found = re.search(r"Kernel Module(?: for \S+)? +(\d+\.\d+(?:\.\d+)?)", path.read_text())
    except OSError:
        return "none"
    return found[1] if found is not None else "version unknown"


def _family(environ: Mapping[str, str], spec: str) -> Sequence[LogFinding]:
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
            Severity.BAD,
            "",
            f"{wrong[0]} is set, which the plugin of these machines does not read",
            f"unset {prefix}..., and set those of {profile.source}",
        )
    ]

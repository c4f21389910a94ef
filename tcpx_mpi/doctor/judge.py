"""The verdict on a log: on the fast path, off it, or cannot tell; each finding with its evidence.

Pure. A rank is on the fast path if it named a network that is not sockets, and nothing that it
logged says that GPU memory is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tcpx_mpi.doctor.lines import Line, Rank
from tcpx_mpi.doctor.ranks import Job, RankFacts, is_fastrak, is_sockets, is_tcpx, read_job
from tcpx_mpi.doctor.signatures import Match, matches
from tcpx_mpi.doctor.versions import alike, closest, read_versions
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.machine.profiles import Profile

_TCPX_VARIABLES, _FASTRAK_VARIABLES = "NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_"
#: So many ranks are named; of more their number is said.
_NAMED = 4


@dataclass(frozen=True)
class Finding:
    """One thing that was found. `weight`: off, warning, fact or harmless."""

    weight: str
    what: str
    do: str = ""
    sure: str = "certain"
    evidence: Line | None = None
    times: int = 1


@dataclass(frozen=True)
class Verdict:
    """What the log says of the job; 0 on the fast path, 9 off it, 11 cannot tell."""

    code: ExitCode
    headline: str
    findings: Sequence[Finding]


def judge(lines: Sequence[Line], recipes: Sequence[Profile]) -> Verdict:
    """The verdict on a job's lines, beside the dated recipes (the newest first)."""
    job = read_job(lines)
    known = matches(lines)
    findings = [
        *_wrong_family(job, lines),
        *_networks(job),
        *_gpu_memory(job),
        *_known(job, known),
        *_missing_ranks(job),
        *_versions(lines, recipes),
        *_settings(job, lines, recipes),
    ]
    order = ("off", "warning", "fact", "harmless")
    findings.sort(key=lambda finding: order.index(finding.weight))
    off = [finding for finding in findings if finding.weight == "off"]
    if off:
        # Without a rank on sockets the networks do not say why.
        reasons = "" if any(f.on_sockets for f in job.told) else f"; {off[0].what}"
        headline = f"off the fast path: {_where(job)}{reasons}"
        return Verdict(ExitCode.BELOW_GATE, headline, findings)
    if not job.told:
        why = "no rank says which network it uses" if job.by_nccl else "no line of NCCL"
        remedy = "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET"
        advice = [Finding("warning", why, remedy)]
        return Verdict(ExitCode.INCONCLUSIVE, f"cannot tell: {why}", [*advice, *findings])
    return Verdict(ExitCode.OK, f"on the fast path: {_where(job)}", findings)


def _where(job: Job) -> str:
    """ "GPUDirectTCPX_v7 on 3 of 4 ranks, Socket on 1"."""
    counts = Counter(" and ".join(facts.networks) for facts in job.told)
    if not counts:
        return "no rank came to name its network"
    total = max(job.size, len(job.ranks))
    (first, n), *rest = counts.most_common()
    return ", ".join([f"{first} on {n} of {total} ranks", *(f"{name} on {n}" for name, n in rest)])


def _who(ranks: Sequence[RankFacts]) -> str:
    names = ", ".join(str(facts.rank) for facts in ranks[:_NAMED])
    return names if len(ranks) <= _NAMED else f"{names} and {len(ranks) - _NAMED} more"


def _networks(job: Job) -> Iterable[Finding]:
    on_sockets = [facts for facts in job.told if facts.on_sockets]
    if not on_sockets:
        return
    what = "sockets in place of a plugin"
    remedy = "look for the cause below; NCCL_NET=NAME of the plugin makes NCCL fail, not fall back"
    if all("softtcpx" in name.lower() for facts in on_sockets for name in facts.networks):
        what, remedy = "softtcpx, which is plain sockets", "name another plugin: NCCL_NET_PLUGIN"
    is_all = len(on_sockets) == len(job.told) > 1
    yield Finding(
        "off",
        f"{'all ranks' if is_all else _who(on_sockets)}: {what}",
        remedy,
        evidence=on_sockets[0].line,
        times=len(on_sockets),
    )


def _gpu_memory(job: Job) -> Iterable[Finding]:
    staged = [f for f in job.told if f.staged and not f.on_sockets]
    if not staged:
        return
    whole = [facts for facts in staged if not facts.direct]
    ranks, share = (whole, "all") if whole else (staged, "some")
    yield Finding(
        "off" if whole else "warning",
        f"{_who(ranks)}: {share} connections are staged in host memory (no GDRDMA)",
        "set NCCL_NET_GDR_LEVEL=PIX or farther; a container needs the NICs' real PCI addresses",
        evidence=ranks[0].staged_line,
        times=len(ranks),
    )


def _known(job: Job, known: Sequence[Match]) -> Iterable[Finding]:
    """What signatures say. A cause counts for ranks that are not on the fast path."""
    fast = {facts.rank for facts in job.told if not facts.on_sockets}
    told = {facts.rank for facts in job.told}
    processes = {(rank.host, rank.pid) for rank in fast}

    def is_fast(rank: Rank | None) -> bool:
        # What is of no rank was said by a process before it chose its GPU.
        stray = rank is not None and rank not in told and (rank.host, rank.pid) in processes
        return rank in fast or stray

    for match in known:
        signature, lines, times = match.signature, match.lines, match.times
        weight = signature.effect
        if weight == "cause":
            lines = [line for line in lines if not is_fast(line.rank)]
            weight = "off" if lines and job.by_nccl else "harmless"
            times = min(times, len(lines)) or times
        evidence = lines[0] if lines else match.lines[0]
        who = {str(line.rank): None for line in lines if line.rank is not None}
        named = ", ".join([*who][:_NAMED]) if len(who) < max(2, len(job.ranks)) else ""
        what = f"{named}: {signature.what}" if named and weight == "off" else signature.what
        yield Finding(weight, what, signature.do, signature.sure, evidence, times)


def _wrong_family(job: Job, lines: Sequence[Line]) -> Iterable[Finding]:
    """Variables that the plugin of these machines does not read."""
    names = job.environment
    tcpx = [name for name in names if name.startswith(_TCPX_VARIABLES)]
    fastrak = [name for name in names if name.startswith(_FASTRAK_VARIABLES)]
    networks = [name for facts in job.told for name in facts.networks]
    by_fastrak = any(is_fastrak(n) for n in networks) or _says(lines, "NET/FasTrak")
    by_tcpx = any(is_tcpx(n) for n in networks) or _says(lines, "NET/GPUDirectTCPX")
    for wrong, right, plugin, here in (
        (tcpx, fastrak, "FasTrak (A3 Mega)", by_fastrak and not by_tcpx),
        (fastrak, tcpx, "TCPX (A3 High)", by_tcpx and not by_fastrak),
    ):
        if not wrong or not here:
            continue
        is_off = not right and any(is_sockets(name) for name in networks)
        profile = "a3-megagpu-8g" if wrong is tcpx else "a3-highgpu-8g"
        yield Finding(
            "off" if is_off else "warning",
            f"the plugin is {plugin}, which does not read {wrong[0]}"
            + (f" and {len(wrong) - 1} more of its family" if len(wrong) > 1 else ""),
            f"set the environment of these machines: tcpx-mpi env --profile {profile}",
            "certain" if is_off else "likely",
            next((line for line in lines if wrong[0] in line.text), None),
        )


def _says(lines: Sequence[Line], words: str) -> bool:
    return any(line.rank is not None and words in line.text for line in lines)


def _missing_ranks(job: Job) -> Iterable[Finding]:
    told, total = len(job.told), max(job.size, len(job.ranks))
    if 0 < told < total:
        yield Finding(
            "warning",
            f"{total - told} of {total} ranks do not say which network they use",
            "give the logs of all ranks; NCCL_DEBUG=INFO on each",
        )


def _versions(lines: Sequence[Line], recipes: Sequence[Profile]) -> Iterable[Finding]:
    found = read_versions(lines)
    if not found:
        return
    versions = {name: version for name, (version, _) in found.items()}
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    evidence = next(iter(found.values()))[1]
    if not recipes:
        yield Finding("fact", f"versions: {said}", evidence=evidence)
        return
    recipe = closest(versions, recipes)
    belong = ", ".join(f"{name} {version}" for name, version in recipe.versions.items())
    if alike(versions, recipe):
        rest = [f"{n} {v}" for n, v in recipe.versions.items() if n not in versions]
        with_them = f", which has {' and '.join(rest)} with it" if rest else ""
        what = f"versions: {said}: as in {recipe.source}{with_them}"
        yield Finding("fact", what, evidence=evidence)
    elif not {"plugin", "manager"} & versions.keys():
        # NCCL alone: any plugin but TCPX may be meant.
        yield Finding("fact", f"versions: {said}: in no recipe", evidence=evidence)
    else:
        yield Finding(
            "warning",
            f"versions: {said}: no recipe has these together",
            f"{recipe.source} has {belong}",
            "likely",
            evidence,
        )


def _settings(job: Job, lines: Sequence[Line], recipes: Sequence[Profile]) -> Iterable[Finding]:
    """Variables that the log names, and that the recipe of its versions has otherwise."""
    if not recipes or not any(is_tcpx(name) for f in job.told for name in f.networks):
        return
    versions = {name: version for name, (version, _) in read_versions(lines).items()}
    recipe = closest(versions, recipes)
    differ = [
        f"{name}={job.environment[name]} ({value})"
        for name, value in recipe.environment.items()
        if job.environment.get(name, value) != value
    ]
    if differ:
        yield Finding(
            "warning",
            f"settings differ from {recipe.source} (in brackets): {', '.join(differ)}",
            "compare: tcpx-mpi env --profile NAME@DATE --diff",
            "possible",
        )

"""The verdict on a log: on the fast path, off it, or cannot tell; each finding with its evidence.

Pure. A rank is on the fast path by its connections: through a network that is not sockets, in GPU
memory; where it names none, by the network that NCCL chose. A rank that failed before it had
connected is not on it, one node needs no network, and what is not known is not told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tcpx_mpi.doctor.facts import RankFacts, is_sockets
from tcpx_mpi.doctor.job import Job
from tcpx_mpi.doctor.lines import Line, Rank
from tcpx_mpi.doctor.ranks import last_attempt, read_job
from tcpx_mpi.doctor.signatures import Match, matches, unknown_warnings
from tcpx_mpi.doctor.tap import findings_of_tap, is_of_tap
from tcpx_mpi.doctor.versions import Versions, closest, matches_recipe, read_versions
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity, worst_first
from tcpx_mpi.machine.profiles import FASTRAK, TCPX, Profile
from tcpx_mpi.units import counted

#: How each family's names of networks and variables begin, and its machines.
_FAMILIES = {
    TCPX: ("GPUDirectTCPX", "NCCL_GPUDIRECTTCPX_", "TCPX (A3 High)", "a3-highgpu-8g"),
    FASTRAK: ("FasTrak", "NCCL_FASTRAK_", "FasTrak (A3 Mega)", "a3-megagpu-8g"),
}
#: Where their machines have the plugin.
_DIRECTORIES = {TCPX: "/var/lib/tcpx/lib64", FASTRAK: "/var/lib/tcpxo/lib64"}
BAD, DOUBTFUL, NOTE = Severity.BAD, Severity.DOUBTFUL, Severity.NOTE
#: What a known line means for its rank.
_EFFECTS = {"off": BAD, "warning": DOUBTFUL, "harmless": Severity.GOOD}
#: That a network is there, chosen or not.
_NAMES_NETWORK = re.compile(r"\bNET/(?!Plugin\b)\w|Loaded net plugin|P2P plugin")
#: So many ranks are named; of more their number is said.
_NAMED = 4


@dataclass(frozen=True)
class Seen:
    """A finding's certainty, the line that gives it, and how often it was seen."""

    sure: str = "certain"
    line: Line | None = None
    times: int = 1


LogFinding = Finding[Seen]


def doubt(finding: LogFinding) -> str:
    """How sure a finding is, behind its text; "" if it is certain."""
    sure = finding.evidence.sure if finding.evidence is not None else "certain"
    return "" if sure == "certain" else f" ({sure})"


def _found(
    severity: Severity,
    what: str,
    do: str = "",
    sure: str = "certain",
    evidence: Line | None = None,
    times: int = 1,
) -> LogFinding:
    return Finding(severity, "", what, do, Seen(sure, evidence, times))


@dataclass(frozen=True)
class Verdict:
    """The verdict on the job of a log; 0 on the fast path, 9 off it, 11 cannot tell."""

    code: ExitCode
    headline: str
    findings: Sequence[LogFinding]


def judge(lines: Sequence[Line], recipes: Sequence[Profile]) -> Verdict:
    """The verdict on a job's lines, beside the dated recipes (the newest first)."""
    lines, ended = last_attempt(lines)
    job = read_job(lines)
    versions = read_versions(lines)
    family = _family(job, lines, versions)
    signs = matches(lines)
    known = [*_known(job, signs, family)]
    ends, echoes = ([*_ends(job, signs, lines, echo=echo)] for echo in (False, True))
    tapped = [*_tapped(lines)]
    has_cause = any(finding.severity is BAD for finding in known)
    sockets = [*_networks(job, has_cause)]
    findings = [
        *_wrong_family(job, lines, family),
        *sockets,
        *_gpu_memory(job),
        *ends,
        *_earlier(ended),
        *known,
        *echoes,
        *(finding for finding, _ in tapped),
        *_unknown(job),
        *_other_warnings(job, [line for line in lines if not is_of_tap(line)]),
        *_missing_ranks(job),
        *_two_versions(job),
        *_versions(job, versions, [recipe for recipe in recipes if recipe.family == family]),
    ]
    findings = worst_first(findings)
    off = [finding for finding in findings if finding.severity is BAD]
    if off:
        # Sockets say enough without a reason.
        rest = [] if sockets else off
        failed, causes, echoed = (
            [finding for finding in of if finding.severity is BAD] for of in (ends, known, echoes)
        )
        if echoed and rest:
            echoed = [*causes, *echoed]
        reasons = failed or echoed or rest
        where = _where(job) + "".join(map(doubt, sockets))
        reason = f"; {reasons[0].text}{doubt(reasons[0])}" if reasons else ""
        return Verdict(ExitCode.BELOW_GATE, f"off the fast path: {where}{reason}", findings)
    near = job.needs_no_network
    if not near and not any(facts.networks for facts in job.with_network):
        why = "no rank says which network it uses" if job.ranks else "no line of NCCL"
        if any(line.rank and _NAMES_NETWORK.search(line.text) for line in lines):
            why = "networks are named, and no rank says which one it chose"
        remedy = _rest_of_log(job)
        advice = [_found(DOUBTFUL, why, remedy)]
        return Verdict(ExitCode.INCONCLUSIVE, f"cannot tell: {why}", [*advice, *findings])
    doubts = [finding.text for finding in (*_unknown(job), *_missing_ranks(job))]
    if doubts:
        return Verdict(ExitCode.INCONCLUSIVE, f"cannot tell: {_where(job)}; {doubts[0]}", findings)
    after = [*ends, *echoes, *(finding for finding, stalls in tapped if stalls)]
    later = f"; later {after[0].text}{doubt(after[0])}" if after else ""
    where = _where(job)
    if near and not (
        job.total == 1
        and all(f.networks and not (f.on_sockets or job.unknown(f)) for f in job.with_network)
    ):
        ways = ", ".join(sorted({name for facts in job.with_network for name in facts.near}))
        ranks = f"between the {job.total} ranks" if job.total > 1 else "for the one rank"
        where = f"no network is needed {ranks}{ways and f' ({ways})'}"
    return Verdict(ExitCode.OK, f"on the fast path: {where}{later}", findings)


def _where(job: Job) -> str:
    """ "GPUDirectTCPX_v7 on 3 of 4 ranks, Socket on 1"."""
    counts: Counter[str] = Counter()
    for facts in job.with_network:
        counts[" and ".join(facts.networks) or "P2P or SHM alone"] += job.count(facts)
    counts = +counts
    if not counts:
        return "no rank came to name its network"
    (first, n), *rest = counts.most_common()
    most = f"{first} on {n} of {job.total} {_ranks(job)}"
    return ", ".join([most, *(f"{name} on {n}" for name, n in rest)])


def _ranks(job: Job) -> str:
    return "ranks" if job.size or job.fills_nodes else "ranks seen"


def _who(ranks: Sequence[RankFacts | str]) -> str:
    names = ", ".join(str(rank) for rank in ranks[:_NAMED])
    return names if len(ranks) <= _NAMED else f"{names} and {len(ranks) - _NAMED} more"


def _networks(job: Job, has_cause: bool) -> Iterable[LogFinding]:
    found = [
        (facts, line) for facts in job.with_network if (line := job.on_sockets(facts)) is not None
    ]
    if not found:
        return
    on_sockets = [facts for facts, _ in found]
    names = {name for facts in on_sockets for name in facts.networks if is_sockets(name)}
    what = "sockets in place of a plugin"
    remedy = "NCCL_NET=NAME of the plugin makes NCCL fail, not fall back"
    if has_cause:
        remedy = f"look for the cause below; {remedy}"
    if all("softtcpx" in name.lower() for name in names):
        what, remedy = "softtcpx, which is plain sockets", "name another plugin: NCCL_NET_PLUGIN"
    elif "FastSocket" in names:
        what, remedy = "FastSocket, which is sockets, in host memory", "take the machine's plugin"
    who = _who(on_sockets)
    if len(on_sockets) == len(job.with_network) > 1:
        count = sum(map(job.count, on_sockets))
        who = f"{count} of {job.total} ranks" if job.missing else f"all {_ranks(job)}"
    yield _found(
        BAD,
        f"{who}: {what}",
        remedy,
        "certain" if job.reaches_out and not found[0][0].is_guess else "likely",
        found[0][1],
        len(on_sockets),
    )


#: What a NIC needs to reach GPU memory.
_OF_NIC = (
    "load nvidia-peermem, built for this driver of the NIC, or have DMA-BUF (the open kernel "
    "module of NVIDIA's driver, and a kernel that has it)"
)


def _to_gpu_memory(networks: Collection[str]) -> str:
    """What gives these networks a way to GPU memory."""
    if any("Libfabric" in name for name in networks):
        return (
            "Libfabric's provider and the machine decide: its NICs must reach GPU memory (EFA with "
            "RDMA, FI_HMEM; not g4dn); then NCCL_NET_GDR_LEVEL=PIX or farther"
        )
    level = "NCCL_NET_GDR_LEVEL=PIX or farther; a container needs the NICs' real PCI addresses"
    if any(name.startswith("IB") for name in networks):
        return f"{_OF_NIC}; then {level}; hfi1 and rxe have no way to it"
    return f"set {level}"


def _gpu_memory(job: Job) -> Iterable[LogFinding]:
    remedy = _to_gpu_memory({name for facts in job.with_network for name in facts.networks})
    staged = [f for f in job.with_network if f.staged and not f.on_sockets]
    if staged:
        whole = [facts for facts in staged if not facts.direct]
        ranks, share = (whole, "all") if whole else (staged, "some")
        yield _found(
            BAD if whole else DOUBTFUL,
            f"{_who(ranks)}: {share} connections are staged in host memory (no GDRDMA)",
            remedy,
            evidence=next(iter(ranks[0].staged.values())),
            times=len(ranks),
        )
    without = [
        line
        for facts in job.with_network
        if (line := facts.without_memory) and job.leaves_node(facts)
    ]
    if without:
        of_nic = " for HCA" in without[0].text  # whatever its distance
        yield _found(
            BAD,
            "the plugin runs without GPU memory: each message is staged in host memory",
            _OF_NIC if of_nic else remedy,
            "certain" if of_nic else "likely",
            without[0],
            len(without),
        )


def _ends(
    job: Job, known: Sequence[Match], lines: Sequence[Line], *, echo: bool
) -> Iterable[LogFinding]:
    """Ranks that could not connect, and connections that broke. A rank that had connected was on
    its network until then. Of an echo the evidence is the warning that it follows."""

    @cache
    def had(rank: Rank | None, effect: str) -> bool:
        """Whether it was connected then, or nothing of it is there that would say so."""
        facts = job.ranks if rank is None else job.owners[rank]
        if effect == "failed":
            says = [f for f in facts if f.names_network or f.informs]
            return not says or any(f.connected for f in says)
        says = [f for f in facts if f.numbers or (f.names_network and rank)]
        return not says or any(f.connected or f.moved or f.linked or f.near for f in says)

    idle = [m for m in known if m.signature.echo or m.signature.effect == "harmless"]
    no_cause = {id(line) for match in idle for line in match.lines}
    for match in known:
        signature = match.signature
        if signature.effect not in ("failed", "lost") or signature.echo is not echo:
            continue
        early = [line for line in match.lines if not had(line.rank, signature.effect)]
        if signature.behind:
            # What is known to have failed or to have broken has its own words.
            ends = [m for m in known if m.signature.effect in ("failed", "lost") and m != match]
            other = {line.rank.process for m in ends for line in m.lines if line.rank}
            # What fails in the thread that moves data had its connection.
            moving = (line.rank for line in lines if line.text.endswith("[Progress Thread]"))
            other |= {rank.process for rank in moving if rank}
            alone = [line for line in early if line.rank and line.rank.process not in other]
            early = _behind_warnings(alone, lines, no_cause)
            if not early:
                continue
        evidence = (early or match.lines)[0]
        named = dict.fromkeys(
            _speaker(job, line.rank) for line in early or match.lines if line.rank is not None
        )
        who = f"{_who([*named])}: " if named else ""
        if echo:
            evidence = _warning_before(evidence, lines, no_cause)
        what = f"failed before it had connected: {signature.what}" if early else signature.what
        yield _found(
            BAD if early else DOUBTFUL,
            f"{who}{what}",
            signature.do,
            signature.sure,
            evidence,
            match.times,
        )


def _behind_warnings(
    some: Sequence[Line], lines: Sequence[Line], no_cause: Collection[int]
) -> list[Line]:
    """Those of some lines that have a warning of their process before them."""
    warned: set[tuple[str, str, str]] = set()
    wanted = {id(line) for line in some}
    found: list[Line] = []
    for line in lines:
        if line.rank is None:
            continue
        if line.level == "WARN" and line.text and id(line) not in no_cause:
            warned.add(line.rank.process)
        elif id(line) in wanted and line.rank.process in warned:
            found.append(line)
    return found


def _warning_before(line: Line, lines: Sequence[Line], no_cause: Collection[int]) -> Line:
    """The last warning of a line's process before it, or the line."""
    found = line
    for each in lines:
        if each is line:
            break
        if each.level == "WARN" and each.text and id(each) not in no_cause:
            is_same = each.rank and line.rank and each.rank.process == line.rank.process
            found = each if is_same else found
    return found


def _earlier(ended: Sequence[Line]) -> Iterable[LogFinding]:
    """The attempts before the last, by the last line of each process."""
    if ended:
        yield _found(
            DOUBTFUL,
            "the job was started again: the verdict leaves out "
            f"{counted(len(ended), 'process')} of before",
            "judge an attempt by itself: give its part of the log",
            "likely",
            ended[0],
            len(ended),
        )


def _speaker(job: Job, rank: Rank) -> str:
    """The rank of a line; of a process with several GPUs the line's own name, as its owner by the
    process may be another of them."""
    facts = job.owners[rank][0]
    return str(facts if rank.device in ("", facts.rank.device) else rank)


def _tapped(lines: Sequence[Line]) -> Iterable[tuple[LogFinding, bool]]:
    """What the tap saw while the job ran, and whether that is a stall."""
    for said in findings_of_tap(lines):
        severity = NOTE if said.fact else DOUBTFUL
        yield (
            _found(severity, said.what, said.do, evidence=said.line, times=said.times),
            said.stall,
        )


def _known(job: Job, known: Sequence[Match], family: str) -> Iterable[LogFinding]:
    """The findings of signatures. A cause (no plugin, no device) counts for ranks on sockets; one
    of a network that was wanted does no harm on others alone."""

    def is_slow(line: Line) -> bool:
        owners = job.owners[line.rank] if line.rank is not None else job.with_network
        return any(map(job.on_sockets, owners))

    names = ("NCCL_NET_PLUGIN", "Plugin name")
    asked = [job.environment[name] for name in names if name in job.environment]
    directory = f"its directory ({_DIRECTORIES[family]})" if family else "its directory"
    for match in known:
        signature, lines, times = match.signature, match.lines, match.times
        effect = signature.effect
        if effect in ("failed", "lost"):
            continue
        if effect == "cause":
            owners = (f for line in lines if line.rank for f in job.owners[line.rank])
            is_named = any(name in line.text for line in lines for name in asked)
            is_wanted = signature.wanted or is_named
            is_wanted = is_wanted and any(facts.on_sockets for facts in owners)
            lines = [line for line in lines if is_slow(line)]
            counts = signature.google or not family
            effect = "off" if lines and counts else "warning" if is_wanted else "harmless"
            times = min(times, len(lines)) or times
        evidence = lines[0] if lines else match.lines[0]
        who = {str(f): f for line in lines if line.rank is not None for f in job.owners[line.rank]}
        named = _who([*who.values()]) if len(who) < max(2, len(job.ranks)) else ""
        what = f"{named}: {signature.what}" if named and effect == "off" else signature.what
        do = signature.do.replace("its directory", directory)
        yield _found(_EFFECTS[effect], what, do, signature.sure, evidence, times)


def _family(job: Job, lines: Sequence[Line], versions: Versions) -> str:
    """The family of plugins that the ranks name, or else that of the log's image or variables; ""
    for neither."""
    networks = [name for facts in job.with_network for name in facts.networks]
    for family, (name, *_) in _FAMILIES.items():
        if any(network.startswith(name) for network in networks):
            return family
    for words in ("NET/{0}", "plugin {0}", "{1}"):
        for family, names in _FAMILIES.items():
            if any(words.format(*names) in line.text for line in lines if line.rank):
                return family
    if any("gpudirect-tcpxo" in line.text for line in lines):
        return FASTRAK
    return TCPX if versions.keys() & {"plugin", "manager"} else ""


def _wrong_family(job: Job, lines: Sequence[Line], family: str) -> Iterable[LogFinding]:
    """Variables that the plugin of these machines does not read."""
    if not family:
        return
    (other,) = _FAMILIES.keys() - {family}
    mine, others = _FAMILIES[family], _FAMILIES[other]
    wrong = [name for name in job.environment if name.startswith(others[1])]
    if not wrong:
        return
    right = any(name.startswith(mine[1]) for name in job.environment)
    is_off = not right and any(map(job.on_sockets, job.with_network))
    more = f" and {len(wrong) - 1} more of its family" if len(wrong) > 1 else ""
    yield _found(
        BAD if is_off else DOUBTFUL,
        f"the plugin is {mine[2]}, which does not read {wrong[0]}{more}",
        f"set the environment of these machines: tcpx-mpi env --profile {mine[3]}",
        "certain" if is_off else "likely",
        next((line for line in lines if wrong[0] in line.text), None),
    )


def _rest_of_log(job: Job) -> str:
    """What to do for a log that lacks lines: where some are of NCCL_DEBUG=INFO, it is a part."""
    if any(facts.informs for facts in job.ranks):
        return "give the whole log, from its first line"
    return "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET"


def _unknown(job: Job) -> Iterable[LogFinding]:
    remedy = _rest_of_log(job)
    for facts in job.with_network if not (job.needs_no_network or job.is_one_node) else ():
        off = facts.on_sockets or facts.without_memory
        line = off or job.unknown(facts)
        if line is not None and not (off and job.leaves_node(facts)):
            why = "leaves its node, if there is another" if off else "is in GPU memory"
            yield _found(
                DOUBTFUL, f"nothing says whether a connection {why}", remedy, "certain", line
            )
            return


def _other_warnings(job: Job, lines: Sequence[Line]) -> Iterable[LogFinding]:
    """The warnings that no signature knows, in the words of who gave them; the first few."""
    found = unknown_warnings(lines)
    for number, alike in enumerate(found[:_NAMED], 1):
        left = len(found) - _NAMED if number == _NAMED else 0
        more = f"; {left} more kinds are in the log" if left > 0 else ""
        ranks = {line.rank for line in alike}
        who = f"{alike[0].rank}: " if len(ranks) == 1 else ""
        yield _found(
            DOUBTFUL,
            f"{who}a warning that is not known here{more}",
            "the source of who printed it says more",
            evidence=alike[0],
            times=len(alike),
        )


def _missing_ranks(job: Job) -> Iterable[LogFinding]:
    if job.needs_no_network or not job.with_network:
        return
    what = f"{job.missing} of {job.total} ranks do not say which network they use"
    if not job.missing:
        seen = "one rank was" if job.total == 1 else f"{job.total} ranks were"
        what = f"{seen} seen, and nothing says how many there are"
    shows_none = job.total == 1 or not any(facts.linked for facts in job.with_network)
    if job.missing or (shows_none and not job.size and not job.fills_nodes):
        yield _found(DOUBTFUL, what, "give the logs of all ranks; NCCL_DEBUG=INFO on each")


def _two_versions(job: Job) -> Iterable[LogFinding]:
    if len(job.versions) > 1:
        said = "; ".join(
            f"{version} ({', '.join([*ranks][:_NAMED]) or 'no rank named'})"
            for version, ranks in job.versions.items()
        )
        yield _found(DOUBTFUL, f"two versions of NCCL: {said}", "run one NCCL on all ranks")


def _versions(job: Job, found: Versions, recipes: Sequence[Profile]) -> Iterable[LogFinding]:
    """Versions and settings that a log names, beside the recipe that has most of the versions."""
    if not found:
        return
    versions = {name: version for name, (version, _) in found.items()}
    if len(job.versions) > 1:
        versions["nccl"] = " and ".join(job.versions)
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    evidence = next(iter(found.values()))[1]
    if not recipes:
        yield _found(NOTE, f"versions: {said}", evidence=evidence)
        return
    recipe = closest(versions, recipes)
    belong = ", ".join(f"{name} {version}" for name, version in recipe.versions.items())
    if matches_recipe(versions, recipe):
        rest = [f"{n} {v}" for n, v in recipe.versions.items() if n not in versions]
        with_them = f", which has {' and '.join(rest)} with it" if rest else ""
        what = f"versions: {said}: as in {recipe.source}{with_them}"
        yield _found(NOTE, what, evidence=evidence)
    elif not {"plugin", "manager"} & versions.keys():
        yield _found(NOTE, f"versions: {said}: in no recipe", evidence=evidence)
    else:
        yield _found(
            DOUBTFUL,
            f"versions: {said}: no recipe has these together",
            f"{recipe.source} has {belong}",
            "likely",
            evidence,
        )
    differ = [
        f"{name}={job.environment[name]} ({value})"
        for name, value in recipe.environment.items()
        if job.environment.get(name, value) != value
    ]
    if differ:
        yield _found(
            DOUBTFUL,
            f"settings differ from {recipe.source} (in brackets): {', '.join(differ)}",
            "compare: tcpx-mpi env --profile NAME@DATE --diff",
            "possible",
        )

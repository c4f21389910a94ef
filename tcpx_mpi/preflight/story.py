"""A preflight from end to end: of this node, of a launcher's ranks, or of a hostfile's nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from tcpx_mpi import _native
from tcpx_mpi import world as mpi
from tcpx_mpi.errors import ExitCode, SetupFailed
from tcpx_mpi.findings import Finding
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.launch.own_python import module_command
from tcpx_mpi.launch.watch import CONNECT
from tcpx_mpi.machine.profiles import keep_mpi_on_control_nic
from tcpx_mpi.machine.topology import node_names, this_machine
from tcpx_mpi.preflight.agreement import agreement_findings, mpi_family, mpirun_finding
from tcpx_mpi.preflight.checks import node_findings
from tcpx_mpi.preflight.facts import AskedPlugin, NodeFacts, own_addresses, read_facts, read_mpirun
from tcpx_mpi.preflight.findings import FAILED, OK, CheckFinding, checked, decoded
from tcpx_mpi.preflight.hostfile import (
    hostfile_findings,
    needs_ssh,
    reach_findings,
    read_hostfile,
    require_known,
    rereadable_hostfile,
)
from tcpx_mpi.preflight.hostfile_forms import launcher_of
from tcpx_mpi.units import counted

#: Before the line of JSON in which rank 0 answers to the process that started it.
ANSWER = "tcpx-mpi preflight: "
#: Longer than a launcher takes to bring up ranks that then do what `read_facts` does.
_LIMIT_S = 90.0
#: Variables that go to the nodes: mpirun takes only its own over ssh.
_EXPORTED = ("NCCL_", "UCCL_TCPX_", "SOFTTCPX_", "TCPX_", "MPI4PY_")


def check_here(plugin: AskedPlugin, profile: str, environ: Mapping[str, str]) -> list[CheckFinding]:
    """The findings of this node alone, without any launcher."""
    facts = read_facts(plugin, profile, environ)
    return [
        *node_findings(facts, facts.host),
        mpirun_finding(*read_mpirun(environ), facts.mpi_library),
    ]


def check_as_rank(plugin: AskedPlugin, profile: str) -> list[CheckFinding] | None:
    """Collective: the findings of all nodes on rank 0, None elsewhere."""
    facts = read_facts(plugin, profile, os.environ)
    _native.install_signal_handlers()
    keep_mpi_on_control_nic(profile, this_machine(), os.environ)
    world = mpi.start(_native.stop_signal, os.environ)
    first_of: dict[str, NodeFacts] = {}
    told = world.allgather(facts, "preflight")
    world.enter(CONNECT, _LIMIT_S)  # no more to do than to tell
    for each in told:
        first_of.setdefault(each.node, each)  # the ranks of a node look alike
    nodes = list(first_of.values())
    names = node_names([each.host for each in nodes])
    found: list[CheckFinding] = []
    for label, each in zip(names, nodes, strict=True):
        found += node_findings(each, label)
    return found + agreement_findings(nodes) if world.rank == 0 else None


def check_nodes(
    hostfile: str, plugin: AskedPlugin, profile: str, environ: Mapping[str, str]
) -> list[CheckFinding]:
    """The findings of all nodes of a hostfile, by one rank on each under mpirun.

    Raises UsageError for a hostfile that cannot be, before anything is started, and SetupFailed
    where no node answers.
    """
    with rereadable_hostfile(hostfile) as kept:
        return _check_nodes(hostfile, kept, plugin, profile, environ)


def _check_nodes(
    hostfile: str, kept: str, plugin: AskedPlugin, profile: str, environ: Mapping[str, str]
) -> list[CheckFinding]:
    mpirun, version = read_mpirun(environ)
    launcher = launcher_of(version)
    read = read_hostfile(kept, launcher, shown=hostfile)
    hosts = read.lines
    addresses = require_known(hosts, hostfile)
    found = hostfile_findings(read, hostfile, launcher)
    if not launch.without_ssh(environ):
        here = own_addresses()
        found += reach_findings([h for h in hosts if needs_ssh(h, addresses[h.name], here)])
    for finding in found:
        if finding.severity is not OK:  # said at once, in case that mpirun says no more
            node = checked(finding).node
            whose = f"{node}: " if node else ""
            print(f"# {whose}{finding.text} -> {finding.remedy}", file=sys.stderr, flush=True)
    options = launch.ranks_a_node(1, mpi_family(version), kept, exported(environ))
    code, about_nodes = ask_nodes(len(hosts), options, plugin, profile, environ, _LIMIT_S)
    if not about_nodes:
        asked = " ".join([mpirun, *options]).replace(kept, hostfile)
        waited = f"within {_LIMIT_S:g} s" if code is None else f"(exit code {code})"
        raise SetupFailed(
            f"mpirun started no rank that answered {waited}: see its own lines above; try "
            f"`{asked} -n {len(hosts)} hostname`, and {sys.executable} must be there on every node"
        )
    libraries = [each.text for each in about_nodes if each.title == "MPI library"]
    return [
        *found,
        nodes_finding(len(hosts), len(libraries)),
        mpirun_finding(mpirun, version, libraries[0]),
        *about_nodes,
    ]


def exported(environ: Mapping[str, str]) -> list[str]:
    """Our variables in this environment, which mpirun is to take along to the nodes."""
    names = [name for name in environ if name.startswith(_EXPORTED) and environ[name].strip()]
    return sorted([*names, *({"LD_LIBRARY_PATH"} & environ.keys())])


def ask_nodes(
    ranks: int,
    options: Sequence[str],
    plugin: AskedPlugin,
    profile: str,
    environ: Mapping[str, str],
    limit_s: float,
) -> tuple[int | None, list[CheckFinding]]:
    """Findings of all nodes that mpirun reaches with `ranks` ranks and these options (none if no
    node answered), and its exit code (None: it did not end in time)."""
    arguments = ["preflight", "--answer", "--profile", profile, *plugin.arguments()]
    own = dict(environ)
    keep_mpi_on_control_nic(profile, this_machine(), own)
    program = module_command("tcpx_mpi", arguments)
    code, text = launch.run_captured(ranks, program, own, options, limit_s)
    if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        raise mpi.interrupted_by(code - 128)
    answers = [line for line in text.splitlines() if ANSWER in line]
    return code, decoded(answers[0].partition(ANSWER)[2]) if answers else []


def nodes_finding(asked: int, answered: int) -> CheckFinding:
    """Whether each name of a hostfile is a node of its own."""
    text = f"{counted(answered, 'node')} answered for {counted(asked, 'name')}"
    if answered == asked:
        return Finding(OK, "nodes", text)
    remedy = "two names are one node: ranks would share it; give each node one name"
    return Finding(FAILED, "nodes", text, remedy)

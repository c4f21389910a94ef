"""Logs of NCCL, RCCL and plugins, 2019 to 2026, made of what sources print, with right verdicts.

`CASES` is the list. The words after a line's head are those of the sources that its function names;
hosts, numbers and what wraps the lines are invented.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

TCPX, FASTRAK = "GPUDirectTCPX_v7", "FasTrak"


@dataclass(frozen=True)
class Case:
    """A log and what is right about it."""

    name: str
    #: The text of each file of the job.
    files: Sequence[str]
    code: int
    #: Words of the first line of the verdict.
    says: Sequence[str] = ()
    #: Words of what is said to be off, to be a warning; words that no such finding has.
    off: Sequence[str] = ()
    warns: Sequence[str] = ()
    never: Sequence[str] = ()
    #: Words of the line that is quoted first.
    evidence: str = ""


@dataclass(frozen=True)
class Rank:
    """One rank of a made job; `says` and `warns` are lines as NCCL heads them."""

    number: int
    size: int
    host: str
    pid: int
    device: int

    def says(self, text: str, level: str = "INFO", where: str = "") -> str:
        where = f"{where} " if where else ""
        return f"{self.host}:{self.pid}:{self.pid + 7} [{self.device}] {where}NCCL {level} {text}"

    def warns(self, where: str, text: str) -> str:
        return f"\n{self.says(text, 'WARN', where)}"

    def comm(self, end: str = "Init START", size: int | None = None, nodes: int = 0) -> str:
        """NCCL 2.19's line of a communicator; with nodes 2.21's second one too."""
        size = size or self.size
        found = self.says(
            f"comm 0x5{self.pid:x}0 rank {self.number} nranks {size} cudaDev {self.device} "
            f"nvmlDev {self.device} busId {self.device + 4}000 commId 0x7e - {end}"
        )
        if nodes:
            found += "\n" + self.says(
                f"comm 0x5{self.pid:x}0 rank {self.number} nRanks {size} nNodes {nodes} "
                f"localRanks {size // nodes} localRank {self.device} MNNVL 0"
            )
        return found

    def via(self, how: str, word: str = "Channel 00/0") -> str:
        """Its connection to the next rank and from the one before."""
        after, before = (self.number + 1) % self.size, (self.number - 1) % self.size
        ends = ("[send] ", "[receive] ") if how.startswith("NET") else ("", "")
        lines = [
            self.says(f"{word} : {self.number}[{self.device}] -> {after}[0] {ends[0]}via {how}")
        ]
        if ends[1]:
            lines.append(
                self.says(
                    f"{word} : {before}[0] -> {self.number}[{self.device}] {ends[1]}via {how}"
                )
            )
        return "\n".join(lines)


Tells = Callable[[Rank], Iterable[str]]


def job(tells: Tells, size: int = 2, per_node: int = 1, host: str = "node-{}") -> str:
    """What all ranks say, rank after rank."""
    return "\n".join(line for rank in ranks(size, per_node, host) for line in tells(rank))


def ranks(size: int, per_node: int = 1, host: str = "node-{}") -> list[Rank]:
    return [Rank(n, size, host.format(n // per_node), 4100 + n, n % per_node) for n in range(size)]


def on(network: str, how: str = "", nodes: int = 0) -> Tells:
    """A rank on a network, with its communicator and, as `how` says, its connections."""

    def tells(rank: Rank) -> Iterable[str]:
        yield rank.says(f"Using network {network}")
        yield rank.comm(nodes=nodes)
        if how:
            yield rank.via(how)

    return tells


def also(tells: Tells, *before: str, after: Sequence[str] = ()) -> Tells:
    """With these texts first, and these last."""

    def lines_of(rank: Rank) -> Iterable[str]:
        yield from (rank.says(text) for text in before)
        yield from tells(rank)
        yield from (rank.says(text) for text in after)

    return lines_of


def but(number: int, tells: Tells, otherwise: Tells) -> Tells:
    """One rank says something else."""
    return lambda rank: (otherwise if rank.number == number else tells)(rank)


def dies(tells: Tells, where: str, text: str, *traces: str, number: int = 1) -> Tells:
    """One rank warns at its end, with the traces that NCCL prints behind it."""

    def lines_of(rank: Rank) -> Iterable[str]:
        yield from tells(rank)
        if rank.number == number:
            yield rank.warns(where, text)
            yield from (rank.says(trace) for trace in traces)

    return lines_of


def each(text: str, wrap: Callable[[int, str], str]) -> str:
    """Every line in a wrapper: of (its number, it)."""
    return "\n".join(wrap(number, line) for number, line in enumerate(text.split("\n")))


NO_PLUGIN = (
    "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: "
    "No such file or directory"
)
NO_IB = ("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.2<0>")
IB, IB_GDR, SOCKET = "IB", "NET/IB/0/GDRDMA", "NET/Socket/0"


def first_years() -> Iterable[Case]:
    """NCCL 2.4 to 2.8 (2019 to 2021): init.cc, transport/net.cc, net_ib.cc."""

    def old(how: str, *before: str) -> Tells:
        def tells(rank: Rank) -> Iterable[str]:
            yield from (rank.says(text) for text in before)
            yield rank.says(
                f"comm 0x7f{rank.number} rank {rank.number} nranks {rank.size} cudaDev 0 nvmlDev 0 - Init COMPLETE"
            )
            if how:
                yield rank.says(f"Ring 00 : {rank.number} -> {1 - rank.number} [send] via {how}")

        return tells

    none = (
        "NET/Socket : Using [0]ens3:10.0.0.2<0>",
        "NET/Plugin : No plugin found (libnccl-net.so).",
    )
    yield Case(
        "2.4 on sockets",
        [job(old(SOCKET, *none))],
        9,
        ["Socket on 2 of 2 ranks"],
        evidence="via NET/Socket",
    )
    yield Case(
        "2.4 on sockets by its devices alone",
        [job(old("", *none, NO_IB[0]))],
        9,
        ["Socket on 2 of 2 ranks"],
    )
    device = "NET/IB : Using [0]mlx5_0:1/IB ; OOB ens3:10.0.0.2<0>"
    yield Case(
        "2.4 with InfiniBand, no connection", [job(old("", *none, device))], 11, ["cannot tell"]
    )
    tagged = each(job(old(IB_GDR, none[0])), lambda n, line: f"[1,{n // 3}]<stdout>:{line}")
    yield Case("2.4 on InfiniBand under Open MPI", [tagged], 0, ["IB on 2 of 2 ranks"])
    module = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"
    staged = also(on(IB), module, after=["Ring 00 : 0[1a000] -> 1[1b000] [send] via NET/IB/0"])
    yield Case(
        "2.6 staged, no module", [job(staged)], 9, ["IB on 2 of 2 ranks"], ["staged in host memory"]
    )
    p3 = on("AWS Libfabric", "NET/AWS Libfabric/0")
    yield Case(
        "2.8 on AWS Libfabric, staged",
        [job(p3)],
        9,
        ["AWS Libfabric on 2 of 2 ranks"],
        ["staged in host memory"],
    )


def other_plugins() -> Iterable[Case]:
    """aws-ofi-nccl, nccl-fastsocket, nccl-rdma-sharp-plugins, RCCL."""
    efa = also(
        on("AWS Libfabric", "NET/AWS Libfabric/1/GDRDMA/Shared"),
        "NET/OFI Selected Provider is efa (found 4 nics)",
    )
    yield Case("EFA with GPU direct", [job(efa)], 0, ["AWS Libfabric on 2 of 2 ranks"])
    tcp = also(on("AWS Libfabric"), "NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)")
    yield Case("Libfabric over TCP", [job(tcp)], 9, [], ["tcp"])
    fast = also(
        on("FastSocket"),
        "NET/FastSocket : Flow placement enabled.",
        "NET/FastSocket plugin initialized",
    )
    yield Case("FastSocket", [job(fast)], 9, ["FastSocket on 2 of 2 ranks"])
    hpcx = (
        "Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "P2P plugin v8 IBext_v8",
    )
    far = (
        "GPU Direct RDMA Enabled for GPU 1a000 / HCA 0 (distance 3 <= 5), read 0",
        "GPU Direct RDMA Disabled for GPU 1a000 / HCA 3 (distance 7 > 5)",
    )
    healthy = also(on("IBext_v8", "NET/IBext_v8/0/GDRDMA"), *hpcx, *far)
    yield Case(
        "HPC-X, far pairs off",
        [job(healthy)],
        0,
        ["IBext_v8 on 2 of 2 ranks"],
        never=["staged", "GPU memory"],
    )
    yield Case(
        "far pairs off, no connection", [job(also(on("IB"), *far))], 0, ["IB on 2 of 2 ranks"]
    )
    named = on("NCCL RDMA Plugin", "NET/NCCL RDMA Plugin/2/GDRDMA")
    yield Case("HPC-X of 2022", [job(named)], 0, ["NCCL RDMA Plugin on 2 of 2 ranks"])
    missing = also(on("Socket"), *hpcx, *NO_IB)
    redacted = job(missing, host="<host>")
    yield Case(
        "HPC-X where no HCA is", [redacted], 9, ["Socket on 2 of 2 ranks"], ["no InfiniBand device"]
    )
    broken = dies(
        also(on("Socket"), *NO_IB),
        "nccl_net_ofi_init:418",
        "NET/OFI aws-ofi-nccl initialization failed",
        number=0,
    )
    yield Case(
        "OFI's init fails", [job(broken)], 9, ["Socket on 2 of 2 ranks"], ["its init failed"]
    )
    for how, code in (
        ("NET/IB/0/GDRDMA comm 0x7f nRanks 02", 0),
        ("NET/Socket/0 comm 0x7f nRanks 02", 9),
    ):
        network = how.split("/")[1]
        text = f"RCCL version 2.18.6+hip6.1 HEAD:2f6d59e+\n{job(on(network, how))}"
        yield Case(f"RCCL on {network}", [text], code, [f"{network} on 2 of 2 ranks"])
    sharp = also(on(IB, IB_GDR), after=["CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA"])
    yield Case("InfiniBand with SHARP", [job(sharp)], 0, ["IB on 2 of 2 ranks"])
    rxe = also(on(IB, "NET/IB/0"), "NET/IB : Using [0]rxe0:1/RoCE [RO]; OOB eth0:10.0.0.2<0>")
    yield Case("RoCE in software", [job(rxe)], 9, ["IB on 2 of 2 ranks"], ["staged in host memory"])
    yield Case("an unknown network, no connection", [job(on("Acme"))], 11, ["cannot tell", "Acme"])
    yield Case(
        "an unknown network, GPU direct",
        [job(on("Acme", "NET/Acme/0/GDRDMA"))],
        0,
        ["Acme on 2 of 2 ranks"],
    )
    yield Case(
        "an unknown network, staged",
        [job(on("Acme", "NET/Acme/0"))],
        9,
        [],
        ["staged in host memory"],
    )


def google() -> Iterable[Case]:
    """TCPX (net_tcpx.cc, connect.cc, gpu/) and FasTrak (init.cc, fastrak_plugin.cc)."""
    head = "tcpxResult_t {}(int, void*, struct tcpxComm**, volatile tcpxNetDeviceHandle**):{}"
    ready = (
        "NET/GPUDirectTCPX : Using [0]eth1:10.1.0.2<0> [1]eth2:10.2.0.2<0>",
        "NET/GPUDirectTCPX plugin initialized", "NET/GPUDirectTCPX ver. 3.1.9._2.19.4",
    )  # fmt: skip
    tcpx = also(on(TCPX, f"NET/{TCPX}/0/GDRDMA"), *ready)
    noisy = dies(tcpx, "int getSoIncomingNapiId(int):319", "Cannot get incoming NAPI_ID.")
    yield Case("TCPX", [job(noisy)], 0, [f"{TCPX} on 2 of 2 ranks"], never=["older than"])
    slow = "0x7f:0x55, nic 0, eth1, 10.1.0.2:9 <- 10.1.0.3:8 rx ctrl timeout cnt 41, nanos 1000000"
    yield Case(
        "TCPX starts slowly",
        [job(dies(tcpx, head.format("tcpxCommProgress", 1238), slow))],
        0,
        [TCPX],
        warns=["start takes minutes"],
    )
    memory = dies(also(on(TCPX), *ready), "tcpxResult_t {anonymous}::gpu_tx_reg_mr(gpuDev*, void**, void*, size_t):237",
                  "gpu_tx_reg_mr failed -5", "TCPXCHECK net_tcpx.cc:801 -> 3", "transport/net.cc:812 -> 3")  # fmt: skip
    yield Case(
        "TCPX cannot register GPU memory", [job(memory)], 9, [], ["no GPU memory can be registered"]
    )
    absent = dies(also(on("Socket"), *NO_IB), "tcpxResult_t tcpxInit(tcpxDebugLogger_t):675",
                  "NET/GPUDirectTCPX register failed against receive_datapath_manager, INTERNAL: register pid 4100 failed "
                  "connect and send: NOT_FOUND: unix client connect() error: 2: No such file or directory", number=0)  # fmt: skip
    yield Case(
        "TCPX without its manager",
        [job(absent)],
        9,
        ["Socket on 2 of 2 ranks"],
        ["manager is not there"],
        never=["InfiniBand"],
    )
    refused = dies(also(on(TCPX), *ready), "tcpxResult_t flowSteer(int, socketAddress):581",
                   "update flow steering rule: local 10.1.0.2<9> <- remote 10.1.0.3<8>, failed against "
                   "receive-datapath-manager: rule not found", "TCPXCHECK connect.cc:804 -> 3")  # fmt: skip
    yield Case("TCPX's flow rule is refused", [job(refused)], 9, [], ["refused the rule"])
    off = dies(
        on("Socket"),
        "tcpxResult_t tcpxGetNetIfs(setup*):939",
        "NET/GPUDirectTCPX : no interface found",
        number=0,
    )
    yield Case("TCPX finds no interface", [job(off)], 9, [], ["no NIC has the name"])
    broken = dies(also(on(TCPX, f"NET/{TCPX}/0/GDRDMA"), after=["Connected all rings"]), head.format("socketOp", 191),
                  "Net : Connection closed by remote peer 10.1.0.3:8")  # fmt: skip
    yield Case("TCPX loses a peer", [job(broken)], 0, [TCPX], warns=["a connection broke"])

    stamp = "NET/FasTrak 2026-05-01T12:00:0{}.123456789-07:00: {}"
    start = (
        stamp.format(0, "Initializing network FasTrak, version: 1.0.17"),
        stamp.format(1, "RxDM not ready after 3 seconds (status: UNAVAILABLE: connect), retrying... (timeout 300 s)"),
        stamp.format(2, "RxDM ready"), stamp.format(3, "Plugin initialized for 0000:04:00.0."),
    )  # fmt: skip
    fastrak = also(on(FASTRAK, "NET/FasTrak/1/GDRDMA"), "NCCL version 2.28.7+cuda12.8", *start)
    yield Case(
        "FasTrak waits for its manager",
        [job(fastrak)],
        0,
        ["FasTrak on 2 of 2 ranks"],
        never=["recipe", "did not come up"],
    )
    image = "Pulling gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.8"
    by_image = f"{image}\n{job(on('Socket'))}"
    yield Case("FasTrak by its image", [by_image], 9, ["Socket on 2 of 2"], never=["recipe"])
    late = dies(
        also(lambda _: [], *start[:2]),
        "init.cc:95",
        stamp.format(
            4, "Timeout: RxDM not ready on node-1 after 300 seconds: UNAVAILABLE: connect"
        ),
    )
    dead = dies(
        late,
        "fastrak_plugin.cc:78",
        stamp.format(5, "Plug-in core initialization failed (DEADLINE_EXCEEDED: ), aborting..."),
    )
    yield Case("FasTrak's manager never comes", [job(dead)], 9, [], ["did not come up"])
    other = also(
        on("Socket"),
        "NET/Plugin: Loaded net plugin FasTrak (v7)",
        "NCCL_GPUDIRECTTCPX_CTRL_DEV set by environment to eth0",
    )
    yield Case(
        "FasTrak with TCPX's variables",
        [job(other)],
        9,
        ["Socket on 2 of 2 ranks"],
        ["does not read"],
    )


def chosen() -> Iterable[Case]:
    """Why NCCL chose as it did: net.cc and plugin_open.cc of several years, net_ib.cc."""
    off = also(on("Socket", SOCKET), "NCCL_IB_DISABLE set by environment to 1.")
    yield Case(
        "InfiniBand switched off",
        [job(off)],
        9,
        ["Socket on 2 of 2 ranks"],
        ["NCCL_IB_DISABLE"],
        evidence="via NET/Socket",
    )
    own = also(on("Socket", nodes=2), "NET/Plugin: Could not find: libnccl-net.so", NO_IB[0], "Failed to initialize NET plugin IB", NO_IB[1],
               "Initialized NET plugin Socket", "Assigned NET plugin Socket to comm")  # fmt: skip
    yield Case(
        "2.28 without InfiniBand",
        [job(own)],
        9,
        ["Socket on 2 of 2 ranks"],
        ["no InfiniBand device"],
        never=["its init failed"],
    )
    lib = also(
        on("Socket"),
        "NET/Plugin: libnccl-net.so: libprotobuf.so.32: cannot open shared object file: No such file or directory",
    )
    yield Case("2.28, the plugin lacks a library", [job(lib)], 9, [], ["library that the plugin"])
    verbs = also(
        on("Socket"),
        "NCCL_IB_HCA set by environment to mlx5",
        "Failed to open libibverbs.so[.1]",
        NO_IB[1],
    )
    yield Case("no libibverbs where InfiniBand was asked for", [job(verbs)], 9, [], ["libibverbs"])
    trial = "dlvsym failed on mlx5dv_reg_dmabuf_mr - /lib/libmlx5.so.1: undefined symbol: mlx5dv_reg_dmabuf_mr, version MLX5_1.25 version MLX5_1.25"
    yield Case(
        "trials of symbols",
        [job(also(on(IB, IB_GDR), trial))],
        0,
        ["IB on 2 of 2 ranks"],
        never=["library"],
    )
    yield Case(
        "trials of symbols on sockets",
        [job(also(on("Socket", SOCKET), trial, *NO_IB))],
        9,
        [],
        ["no InfiniBand device"],
        never=["library that"],
    )
    asked = dies(
        lambda _: [],
        "plugin/net.cc:626",
        "Error: network FasTrak not found.",
        "init.cc:533 -> 5",
        number=0,
    )
    yield Case("the network asked for is not found", [job(asked)], 9, [], ["not found"])
    pairs = (
        "GPU Direct RDMA Disabled for GPU/0-30 (rank 0) - NET/0-2 (distance 7 > 5)",
        "GPU Direct RDMA Enabled for GPU/0-30 (rank 0) - NET/0-1 (distance 4 <= 5, read 0, mode Default)",
    )
    yield Case(
        "2.29, far pairs off",
        [job(also(on(IB, "NET/IB/0/GDRDMA(PCI)/Shared"), *pairs))],
        0,
        ["IB on 2 of 2 ranks"],
        never=["staged"],
    )
    some = also(on(IB, IB_GDR), after=["Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1"])
    yield Case(
        "some connections staged",
        [job(some)],
        0,
        ["IB on 2 of 2 ranks"],
        warns=["some connections are staged"],
    )
    second = also(
        on(IB, IB_GDR),
        after=[
            "Using network Socket",
            "comm 0x99 rank 0 nranks 2 cudaDev 0 busId 1000 - Init START",
        ],
    )
    yield Case(
        "a second communicator on sockets",
        [job(but(1, on(IB, IB_GDR), second))],
        9,
        ["Socket"],
        evidence="Using network Socket",
    )


def one_node() -> Iterable[Case]:
    """No byte goes over a network: transport/p2p.cc, shm.cc."""
    for how in ("P2P/IPC", "SHM/direct/direct", "P2P/direct pointer/read"):
        text = job(also(on("Socket", how), *NO_IB), size=4, per_node=4)
        yield Case(f"one node by {how}", [text], 0, ["no network is needed"], never=["sockets"])
    near = job(
        also(on("Socket", "P2P/CUMEM", nodes=1), NO_PLUGIN), size=2, per_node=2, host="localhost"
    )
    yield Case("one node by NCCL's own count", [near], 0, ["no network is needed"])
    rack = job(also(on("Socket", "P2P/MNNVL", nodes=2)))
    yield Case("two nodes by NVLink alone", [rack], 0, ["no network is needed"])
    unsure = job(on("Socket"), size=4, per_node=4)
    yield Case("one host's name, no connection", [unsure], 11, ["cannot tell", "leaves its node"])
    rank_0 = job(on("Socket", "P2P/IPC"), size=8, per_node=8).split("\nnode-0:4101")[0]
    yield Case("one rank's log of one host", [rank_0], 11, ["cannot tell", "1 of 8 ranks"])
    redacted = job(on("Socket"), size=4, host="ip-XX-XX-XX-XX")
    yield Case("letters in place of numbers are not one node", [redacted], 9, ["4 of 4 ranks"])
    redacted = job(on("Socket"), size=4, host="***")
    yield Case("hosts redacted are not one node", [redacted], 9, ["Socket on 4 of 4 ranks"])


def failures() -> Iterable[Case]:
    """misc/socket.cc, net_ib.cc, the traces of NCCLCHECK."""
    closed = "socketProgress: Connection closed by remote peer node-0<55912>"
    yield Case(
        "2.30, lost later",
        [job(dies(on(IB, IB_GDR), "misc/socket.cc:57 (socketProgress)", closed))],
        0,
        ["IB on 2 of 2 ranks"],
        warns=["a connection broke"],
    )
    yield Case(
        "2.30, lost before a connection",
        [job(dies(on(IB), "misc/socket.cc:57 (socketProgress)", closed))],
        9,
        ["fail"],
    )
    timeout = "socketPollConnect: connect to 10.0.0.2<4321> returned Connection timed out, exceeded error retry count after 35 attempts"
    yield Case(
        "2.27, never connected",
        [
            job(
                dies(
                    on(IB),
                    "misc/socket.cc:581",
                    timeout,
                    "bootstrap.cc:285 -> 6",
                    "init.cc:1534 -> 6",
                )
            )
        ],
        9,
        ["fail"],
    )
    abort = (
        "socketStartConnect: Connect to 10.0.0.82<38455> failed : Software caused connection abort"
    )
    hpcx = on("IBext_v8", "NET/IBext_v8/4/GDRDMA")
    yield Case(
        "2.21, died connecting",
        [
            job(
                dies(
                    hpcx, "misc/socket.cc:485", abort, "transport.cc:148 -> 3", "init.cc:1089 -> 3"
                )
            )
        ],
        9,
        ["fail"],
    )
    done = also(on(IB, IB_GDR), after=["Connected all rings", "Connected all trees"])
    status = "NET/IB: Got completion from peer 10.0.0.3<53393> with status=12 opcode=1 len=5222 vendor err 129 (Send) hca mlx5_2"
    yield Case(
        "2.24, a link breaks",
        [job(dies(done, "transport/net_ib.cc:2360", status, "proxy.cc:698 -> 6"))],
        0,
        ["IB on 2 of 2 ranks"],
        warns=["a connection broke"],
    )
    silent = also(
        on(IB),
        after=[
            "misc/socket.cc:505 -> 2 (Operation now in progress)",
            "bootstrap.cc:275 -> 2",
            "init.cc:1493 -> 2",
        ],
    )
    yield Case("2.20, traces of an init that failed", [job(silent)], 9, ["fail"])
    nothing = dies(
        lambda _: [], "bootstrap.cc:126 (bootstrapNetInit)", "Bootstrap : no socket interface found"
    )
    yield Case("no interface for the bootstrap", [job(nothing)], 9, [], ["no NIC has the name"])
    only = dies(lambda _: [], "misc/socket.cc:50", closed)
    yield Case("warnings alone", [job(only)], 11, ["cannot tell"])


def versions() -> Iterable[Case]:
    """VERSION_STRING of each rank."""

    def two(tells: Tells) -> Tells:
        return lambda rank: also(tells, f"NCCL version 2.{19 - rank.number}.3+cuda12.2")(rank)

    family = (
        "ncclSocketInit: connecting to address with family 0 is neither AF_INET(2) nor AF_INET6(10)"
    )
    yield Case(
        "two versions that do not connect",
        [job(dies(two(on(IB)), "misc/socket.cc:441", family))],
        9,
        ["fail"],
        warns=["2.18.3", "2.19.3", "node-1"],
    )
    yield Case(
        "two versions that do",
        [job(two(on(IB, IB_GDR)))],
        0,
        ["IB on 2 of 2 ranks"],
        warns=["2.18.3", "2.19.3", "node-1"],
    )
    bare = f"NCCL version 2.24.3+cuda12.6\n{job(on(IB, IB_GDR))}"
    yield Case("InfiniBand has no recipe", [bare], 0, ["IB on 2 of 2 ranks"], never=["recipe"])


def wrappers() -> Iterable[Case]:
    """What stands around a line: launchers, containers, log stores."""
    three = but(3, on(TCPX), on("Socket"))
    four = job(three, size=4, per_node=2)
    mixed = [f"{TCPX} on 3 of 4 ranks, Socket on 1"]
    third = ["rank 3, node-1 pid 4103 [1]: sockets in place of a plugin"]
    stamp = "2026-07-28T11:09:0{}.733195610Z"
    for name, wrap in (
        ("kubectl", lambda n, line: f"[pod/train-0-{n // 2}-x7/worker] {line}"),
        ("kubectl with times", lambda n, line: f"[pod/train-{n // 2}/worker] {stamp.format(n % 10)} {line}"),
        ("journald", lambda n, line: f"Jun 22 10:00:0{n % 10} node-0 srun[123]: {line}"),
        ("Slurm", lambda n, line: f"{n // 2}: {line}"),
        ("Open MPI 5", lambda n, line: f"[prterun-node-0-77@1,{n // 2}]<stdout>: {line}"),
        ("Hydra", lambda n, line: f"[{n // 2}] {line}"),
        ("torchrun", lambda n, line: f"[default{n // 2}]:{line}"),
        ("docker compose", lambda n, line: f"trainer-{n // 2}  | {line}"),
        ("Ray", lambda n, line: f"(EngineCore_DP0 pid=9) (RayWorkerWrapper pid={4100 + n // 2}, ip=10.0.0.{n}) {line}"),
        ("NCCL's own times", lambda n, line: f"[2026-06-22 10:00:0{n % 10}] {line}"),
        ("times that touch the host", lambda n, line: f"  | {stamp.format(n % 10)[:-1]}-07:00{line} | {line}"),
        ("logfmt", lambda n, line: f'level=info ts={stamp.format(n % 10)} msg="{line}"'),
        ("columns of CSV", lambda n, line: f"{stamp.format(n % 10)},INFO,{line}"),
        ("CloudWatch's text", lambda n, line: f"EVENTS {n} {line} 174743879120{n % 10}"),
        ("colours", lambda n, line: f"\x1b[32m{n // 2}\x1b[0m: {line}\x1b[0m\r"),
    ):  # fmt: skip
        yield Case(
            f"wrapped by {name}",
            [each(four, wrap)],
            9,
            mixed,
            third,
            evidence="Using network Socket",
        )
    entries = [
        {"insertId": f"k{n}", "jsonPayload": {"message": line, "stream": "stdout"}, "severity": "INFO", "timestamp": stamp.format(n % 10)}
        for n, line in enumerate(four.split("\n"))
    ][::-1]  # fmt: skip
    yield Case("Cloud Logging's array, newest first", [json.dumps(entries, indent=2)], 9, mixed)
    yield Case("Cloud Logging's array on one line", [json.dumps(entries)], 9, mixed)
    events = {
        "events": [
            {"timestamp": 1, "message": f"{line}\n", "ingestionTime": 2}
            for line in four.split("\n")
        ]
    }
    yield Case("CloudWatch's events", [json.dumps(events, indent=4)], 9, mixed)
    lines = [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": stamp.format(0)})
        for line in four.split("\n")[:-2]
    ]
    yield Case("json-file of Docker, one rank cut off", ["\n".join(lines)], 11, ["3 of 4 ranks"])
    joined = "".join(line + ("\n" if n % 2 else "") for n, line in enumerate(four.split("\n")))
    yield Case(
        "two lines joined",
        [joined + "\n" + ranks(4, 2)[0].says("x") + "\n" + ranks(4, 2)[2].says("x")],
        9,
        mixed,
    )
    parts = each(
        four, lambda n, line: f"[1,{n // 2}]<stdout>:{line[:-4]}[1,{n // 2}]<stdout>:{line[-4:]}"
    )
    yield Case("Open MPI's tag in the middle", [parts], 9, mixed)
    tags = "".join(
        f"[1,{n // 2}]<stdout>:{line}" + ("\n" if n % 2 else "")
        for n, line in enumerate(four.split("\n"))
    )
    yield Case("Open MPI's tag between two lines", [tags], 9, mixed)
    head, *_, last = ranks(16, 8)
    ray = [
        head.says("Using network IB"), head.comm(), f"(W pid=7, ip=10.0.0.3) {ranks(16, 8)[1].says('Using network IB')}",
        f"(W pid=9, ip=10.0.0.4) {last.says('Using network IB')} [repeated 14x across cluster]",
    ]  # fmt: skip
    yield Case("Ray repeats", ["\n".join(ray)], 0, ["IB on 16 of 16 ranks"])
    yield Case(
        "Ray repeats some", ["\n".join(ray).replace("14x", "6x")], 11, ["IB on 8 of 16 ranks"]
    )
    hint = " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0)"
    yield Case("Ray repeats and explains", ["\n".join(ray) + hint], 0, ["IB on 16 of 16 ranks"])
    tags = "".join(
        f"[1,mpirank:{n // 2},algo-1]<stdout>:{line}" + ("\n" if n % 2 else "")
        for n, line in enumerate(four.split("\n"))
    )
    yield Case("SageMaker's tag between two lines", [tags], 9, mixed)
    glued = ranks(4, 2)[0].says("P2P Chunksize set to 131072")
    joined = each(four, lambda n, line: line if n % 2 else f"{glued}{line}")
    yield Case("joined where a number ends", [joined], 9, mixed, third)
    glued = "".join(rank.says(f"Using network {TCPX}") for rank in ranks(2))
    yield Case("two hosts in one line", [glued], 0, [f"{TCPX} on 2 of 2 ranks"])
    cut = each(four, lambda _, line: line[line.index(":") :])
    yield Case("hosts cut off", [cut], 9, mixed)
    bare = each(job(on("Socket", SOCKET)), lambda _, line: line[line.index("[") :])
    yield Case("hosts and processes cut off", [bare], 9, ["Socket on 2 of 2 ranks"])
    late = "\n".join(
        line for line in bare.replace("Socket", "FasTrak").split("\n") if " via " in line
    )
    yield Case(
        "hosts cut off, from late on",
        [late.replace("/0\n", "/0/GDRDMA\n") + "/GDRDMA"],
        0,
        ["FasTrak on 2 of 2 ranks"],
    )
    trace = also(on(IB, IB_GDR), after=["nothing"])
    text = (
        job(trace)
        + "\nnode-0:4100:4107 [0] 12.345678 initTransportsRank:579 NCCL TRACE rank 0 nranks 2 - BEGIN\nnode-0:4100:4107 NCCL CALL ncclAllReduce(1)"
    )
    yield Case("traces and calls", [text], 0, ["IB on 2 of 2 ranks"])
    yield Case(
        "a line of 100,000 letters",
        [f"{'x' * 100000}\n{'1:' * 50000}\n{job(on(IB, IB_GDR))}"],
        0,
        ["IB on 2 of 2 ranks"],
    )


def what_is_seen() -> Iterable[Case]:
    """Ranks that are missing, and files."""
    half = job(on(TCPX), size=8, per_node=4).split("\nnode-1")[0]
    yield Case("half of the ranks", [half], 11, ["4 of 8 ranks"])
    node = job(on(IB, IB_GDR), size=4, per_node=2).split("\nnode-1")[0]
    late = "\n".join(line for line in node.split("\n") if " via " in line)
    yield Case("one node's log, from late on", [late], 11, ["cannot tell"])
    whole = "\n".join(line for line in job(on(IB, IB_GDR)).split("\n") if " via " in line)
    yield Case("late, but of all ranks", [whole], 0, ["IB on 2 of 2 ranks"])
    first, second = Rank(0, 2, "worker", 50, 0), Rank(1, 2, "worker", 50, 0)
    files = ["\n".join(on(TCPX)(rank)) for rank in (first, second)]
    yield Case("two files, one name", files, 0, [f"{TCPX} on 2 of 2 ranks"])
    files = [files[0], "\n".join(on("Socket")(second))]
    yield Case(
        "two files, one name, one on sockets", files, 9, [f"{TCPX} on 1 of 2 ranks, Socket on 1"]
    )
    plain = [rank.says(f"Using network {TCPX}") for rank in (first, second)]
    yield Case("two files, one name, no communicator", plain, 0, [f"{TCPX} on 2 of 2 ranks"])
    texts = job(on(TCPX)).split("\n")
    yield Case(
        "a rank's log in two files",
        ["\n".join(texts[::2]), "\n".join(texts[1::2])],
        0,
        [f"{TCPX} on 2 of 2 ranks"],
    )
    twice = ["\n".join(on(TCPX)(rank)) for rank in (first, second, first)]
    yield Case("a rank's log twice", twice, 0, [f"{TCPX} on 2 of 2 ranks"])
    early = Rank(3, 4, "node-0", 4103, 0)
    whole = "\n".join(
        [
            early.says("Bootstrap : Using eth0:10.0.0.2<0>"),
            *(rank.says(f"Using network {TCPX}") for rank in ranks(4, 4)),
        ]
    )
    yield Case("a process before it has its GPU", [whole], 0, [f"{TCPX} on 4 of 4 ranks"])
    other = "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error"
    yield Case("another program's error", [other], 11, ["no line of NCCL"])


CASES: Sequence[Case] = [
    case
    for kind in (
        first_years,
        other_plugins,
        google,
        chosen,
        one_node,
        failures,
        versions,
        wrappers,
        what_is_seen,
    )
    for case in kind()
]

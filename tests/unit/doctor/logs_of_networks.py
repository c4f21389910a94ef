"""Logs by what a job runs on: years, plugins and families, chosen networks, a single node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from logs_made_of import (
    FASTRAK,
    IB,
    IB_GDR,
    NO_IB,
    NO_PLUGIN,
    SOCKET,
    TCPX,
    Case,
    Rank,
    Tells,
    also,
    but,
    dies,
    each,
    job,
    on,
    ranks,
)


def each_says(*texts: str) -> Tells:
    return lambda rank: [rank.says(text) for text in texts]


def first_years() -> Iterable[Case]:
    """NCCL 2.3 to 2.8 (2018 to 2021): init.cc, transport/net.cc, net_ib.cc."""

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
    ib = ["IB on 2 of 2 ranks"]
    yield Case("2.4 with InfiniBand, no connection", [job(old("", *none, device))], 0, ib)
    plugin = (none[0], "NET/OFI Selected Provider is efa")
    yield Case("2.4 with a plugin, no connection", [job(old("", *plugin))], 11, ["cannot tell"])
    for name, why in (
        ("no device", NO_IB[0]),
        ("no libibverbs", "Failed to open libibverbs.so[.1]"),
        ("InfiniBand off", "NCCL_IB_DISABLE set by environment to 1."),
        ("sockets last", NO_IB[1]),
    ):
        for more in ((), (none[0],)):
            told = each_says(none[1], why, *more)
            yield Case(f"2.5, {name}, {len(more)} more", [job(told)], 9,
                       ["Socket on 2 of 2 ranks seen (likely)"])  # fmt: skip
    both = each_says("NET/OFI aws-ofi-nccl initialization failed", *NO_IB)
    yield Case("2.5, a plugin that failed", [job(both)], 9, ["Socket on 2"], ["its init failed"])
    one = each_says(none[1], NO_IB[0])
    yield Case("2.5, one host", [job(one, per_node=2)], 11, ["cannot tell", "leaves its node"])
    threads = "\n".join(
        line
        for host in ranks(2)
        for line in (
            *one(host),
            *(replace(host, number=2 * host.number + d, device=d).comm(size=4) for d in (0, 1)),
        )
    )
    yield Case("2.5, a process with 2 GPUs", [threads], 9, ["Socket on 4 of 4 ranks"])
    for which, code in (("Socket", 9), ("IB", 0)):
        inside = each_says(f"Using internal Network {which}", "NET/Socket : 1 interfaces found")
        text = job(also(inside, after=["comm 0x7f nranks 2 - COMPLETE"]))
        yield Case(f"2.3 on {which}", [text], code, [f"{which} on 2 of 2 ranks"])
    near = also(each_says("Using internal Network Socket"), after=["comm 0x7f nranks 2 - COMPLETE",
                "Ring 00 : 0[0] -> 1[1] via direct shared memory"])  # fmt: skip
    yield Case("2.3 on one host", [job(near, per_node=2)], 0, ["no network is needed"])
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
    rack = job(on("IB", "P2P/MNNVL", nodes=2))
    yield Case("NVLink alone, and a network that nothing goes over", [rack], 0, ["P2P/MNNVL"],
               never=["IB on"])  # fmt: skip
    alone = job(on("Socket"), size=4, per_node=4)
    yield Case("one host, a GPU each, no connection", [alone], 0, ["no network is needed"])
    unsure = job(on("Socket"), size=4, host="worker")
    yield Case("one host's name, no connection", [unsure], 11, ["cannot tell", "leaves its node"])
    rank_0 = job(on("Socket", "P2P/IPC"), size=8, per_node=8).split("\nnode-0:4101")[0]
    yield Case("one rank's log of one host", [rank_0], 11, ["cannot tell", "1 of 8 ranks"])
    redacted = job(on("Socket"), size=4, host="ip-XX-XX-XX-XX")
    yield Case("letters in place of numbers are not one node", [redacted], 9, ["4 of 4 ranks"])
    redacted = job(on("Socket"), size=4, host="***")
    yield Case("hosts redacted are not one node", [redacted], 9, ["Socket on 4 of 4 ranks"])


def started_again() -> Iterable[Case]:
    """A launcher that starts a job again: the processes are others, the log is one."""
    refused = ("misc/socket.cc:484", "socketStartConnect: Connect to 10.0.0.2<40001> failed")
    grouped = also(on(IB), "comm 0x9 rank 0 nranks 1 cudaDev 0 - Init START")
    first, second = job(dies(grouped, *refused, "init.cc:1011 -> 2")), job(on(IB, IB_GDR))
    second = second.replace(":41", ":52")  # the pids
    yield Case("started again after a failure", [f"{first}\n{second}"], 0, ["IB on 2 of 2 ranks"],
               warns=["started again: the verdict leaves out 2 processes"])  # fmt: skip
    yield Case("failed the second time", [f"{second}\n{first}"], 9, ["could not connect"],
               warns=["started again"])  # fmt: skip
    ours, theirs = first.split("\n"), second.split("\n")
    beside = [*ours[:2], *theirs, *ours[2:]]  # in one another's midst
    yield Case("two jobs at once are one failure", ["\n".join(beside)], 9, ["could not connect"])
    yield Case("two files are of two containers", [first, second], 9, ["could not connect"])
    groups = job(also(on(IB, IB_GDR), after=["comm 0x9 rank 0 nranks 1 cudaDev 0 - Init COMPLETE"]))
    yield Case("each rank is the first of a group of its own", [groups], 0, ["IB on 2 of 2 ranks"],
               never=["started again"])  # fmt: skip

"""Whether there is another node, so that sockets count."""

from __future__ import annotations

import pytest
from lines_of_logs import BAD, DOUBTFUL, GOOD, TCPX, nccl_line, networks, verdict_of, whats

#: What one rank says until its communicator begins.
ALONE = [
    nccl_line("INFO Bootstrap : Using eth0:10.0.0.1<0>"),
    nccl_line("INFO NET/IB : No device found."),
    nccl_line("INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"),
    nccl_line("INFO Using network Socket"),
]


ONE_NODE = "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1"


TWO_NODES = "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1"


def test_the_choice_of_ranks_that_are_all_on_one_host_is_not_yet_off_the_fast_path() -> None:
    start = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank"
    # Two containers on two hosts may have one host's name, and a GPU 0 each.
    some = [f"ip-0:{n}:{n} [{n % 2}] {start} {n} nranks 4 - Init START" for n in range(4)]
    some += [f"ip-0:{n}:{n} [{n % 2}] NCCL INFO Using network Socket" for n in (1, 2)]
    unfit = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    staged = [line.replace("Socket", "IB") for line in some]
    staged += [f"ip-0:{n}:{n} [{n % 2}] NCCL INFO {unfit}" for n in (1, 2)]
    for log in (some, staged):
        verdict = verdict_of(log)
        assert verdict.code == 11
        assert "nothing says whether a connection leaves its node" in verdict.headline
        via = "Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0"
        assert verdict_of([*log, f"{log[0].split(' NCCL')[0]} NCCL INFO {via}"]).code == 9
        assert verdict_of([*log, log[0].replace("ip-0", "ip-1")]).code == 9
        # A rank that was not seen may be elsewhere: then the choice is all that there is.
        assert verdict_of([line for line in log if "rank 3" not in line]).code == 9
    counted = "ip-0:3:3 [3] NCCL INFO comm 0x5 rank 3 nRanks 4 nNodes 2 localRanks 2 localRank 1"
    assert verdict_of([*some, counted]).code == 9
    off = verdict_of([*staged, counted])
    assert off.code == 9
    (finding,) = [f for f in off.findings if f.severity is BAD]
    assert "nvidia-peermem" in finding.remedy  # whatever NCCL_NET_GDR_LEVEL says


@pytest.mark.parametrize(
    "more",
    [
        [],
        [nccl_line("INFO Using network Socket", 1)],
        [nccl_line("WARN socketStartConnect: Connect to 10.0.0.1<4> returned x, retrying")],
        [nccl_line("WARN Call to connect to localhost<4> returned Connection refused, retrying")],
        [nccl_line("WARN Call to connect to h0.lan<4> returned Connection refused, retrying")],
    ],
)
def test_sockets_of_what_may_be_one_node_cannot_be_told(more: list[str]) -> None:
    verdict = verdict_of([*ALONE, *more])
    assert verdict.code == 11
    assert "nothing says whether a connection leaves its node" in verdict.headline


@pytest.mark.parametrize(
    "more",
    [
        [nccl_line("INFO Channel 00/02 :    0   1"), nccl_line(f"INFO {ONE_NODE}")],
        [nccl_line(f"INFO {ONE_NODE}")],
        [nccl_line("INFO Trees [0] -1->0->1/-1/-1 [1] -1->0->1/-1/-1")],  # NCCL 2.6
        [nccl_line("INFO comm 0x5 rank 3 nRanks 8 nNodes 1 localRanks 8 localRank 3 MNNVL 0")],
        [nccl_line("INFO comm 0x5 rank 0 nranks 8 - Init START"), nccl_line(f"INFO {ONE_NODE}")],
    ],
)
def test_a_node_that_nccl_says_is_alone_leaves_no_doubt_about_its_sockets(more: list[str]) -> None:
    verdict = verdict_of([*ALONE, *more])
    assert verdict.code == 11
    assert "leaves its node" not in whats(verdict, DOUBTFUL)
    assert "do not say which" in verdict.headline or "one rank was seen" in verdict.headline


@pytest.mark.parametrize("network", ["", "Using network Socket", "Using network IB"])
@pytest.mark.parametrize("nodes", ["", " nNodes 1"])
def test_all_numbers_of_one_node_need_no_network_whatever_was_chosen(
    network: str, nodes: str
) -> None:
    heads = [f"gpu1:{10 + rank}:1 [{rank}] NCCL INFO " for rank in range(4)]
    lines = [f"{head}{network}" for head in heads if network]
    lines += [f"{head}comm 0x5 rank {n} nRanks 4{nodes}" for n, head in enumerate(heads)]
    verdict = verdict_of(lines)
    assert verdict.headline == "on the fast path: no network is needed between the 4 ranks"
    assert not verdict.findings
    if not (network or nodes):
        assert verdict_of(lines[:-1]).code == 11  # one may be elsewhere
    one_process = [f"gpu1:10:1{line[6:]}" for line in lines]
    assert verdict_of(one_process).code == 0


def test_a_rank_whose_choice_is_not_in_the_log_is_no_other_node() -> None:
    for host, silent, code in (
        ("localhost", "Bootstrap : Using eno1:10.0.0.9<0>", 11),
        ("localhost", "Bootstrap: Using eno1:10.0.0.9<0>", 11),
        ("ncg12", "NCCL_P2P_LEVEL set by environment to LOC", 11),
        ("localhost", "Bootstrap : Using eno1:10.0.0.8<0>", 9),
        ("localhost", "cudaDriverVersion 12080", 9),
    ):
        lines = [f"{host}:8:9 [1] NCCL INFO {text}" for text in (
            "Bootstrap : Using eno1:10.0.0.9<0>", "Using network Socket",
            "NCCL_IB_DISABLE set by environment to 1.", "comm 0x5 rank 1 nranks 2",
        )]  # fmt: skip
        for more in ([], [f"{host}:7:7 [0] NCCL INFO Using network Socket"]):
            verdict = verdict_of([*lines, f"{host}:7:7 [0] NCCL INFO {silent}", *more])
            assert verdict.code == code, (host, silent)
            if code == 11:
                assert "leaves its node" in whats(verdict, DOUBTFUL)
        assert verdict_of(lines).code == 9  # rank 0 may be elsewhere
    unsized = [*ALONE, nccl_line("INFO NCCL_IB_DISABLE set by environment to 1.")]
    beside = nccl_line("INFO NCCL_P2P_LEVEL set by environment to LOC", 1)
    assert (verdict_of(unsized).code, verdict_of([*unsized, beside]).code) == (9, 11)


def test_all_ranks_on_one_host_with_a_connection_need_no_network() -> None:
    def comm(rank: int) -> str:
        return nccl_line(f"INFO comm 0x5 rank {rank} nranks 2 - Init COMPLETE", rank).replace(
            "[1]", "[0]"
        )

    lines = [*ALONE, comm(0), comm(1)]
    assert verdict_of(lines).code == 11
    near = nccl_line("INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
    verdict = verdict_of([*lines, near])
    assert verdict.headline == ("on the fast path: no network is needed between the 2 ranks (SHM)")
    assert not verdict.findings or verdict.findings[0].severity is GOOD
    assert verdict_of([*ALONE, comm(0), near]).code == 11  # rank 1 may be elsewhere


def test_a_ring_of_one_rank_needs_no_network() -> None:
    verdict = verdict_of([*ALONE, nccl_line("INFO Channel 00/02 :    0")])
    assert verdict.headline == "on the fast path: no network is needed for the one rank"


@pytest.mark.parametrize(
    ("more", "sure"),
    [
        ([nccl_line("INFO comm 0x5 rank 0 nranks 16 - Init START")], "likely"),
        ([nccl_line("INFO comm 0x5 rank 0 nranks 4 - Init START")], "likely"),
        ([nccl_line("INFO comm 0x5 rank 0 nranks 32 - Init START")], "certain"),
        ([nccl_line("INFO Channel 00/02 :    0   1"), nccl_line(f"INFO {TWO_NODES}")], "likely"),
        ([nccl_line("INFO Channel 00/02 :    0   1   2   3")], "likely"),
        ([nccl_line("INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0")], "certain"),
        ([nccl_line("INFO Using network Socket", 2)], "certain"),
        ([nccl_line("WARN Call to connect to 10.0.0.9<4> returned x, retrying")], "certain"),
        ([nccl_line("INFO NCCL_IB_DISABLE set by environment to 1.")], "likely"),
        ([nccl_line("INFO NCCL_NET set by environment to GPUDirectTCPX_v7")], "likely"),
        ([f"[1,31]<stdout>:{ALONE[0]}"], "certain"),
        (
            [
                nccl_line("INFO comm 0x5 rank 0 nranks 2 - Init START"),
                nccl_line("INFO NCCL_MAX_NCHANNELS set by environment to 2."),
                nccl_line(f"INFO {ONE_NODE}"),
            ],
            "likely",
        ),
    ],
)
def test_sockets_are_off_where_there_are_more_ranks_and_certain_where_there_are_nodes(
    more: list[str], sure: str
) -> None:
    verdict = verdict_of([*ALONE, *more])
    assert verdict.code == 9
    (sockets,) = [f for f in verdict.findings if "sockets in place of a plugin" in f.text]
    assert sockets.evidence is not None
    assert sockets.evidence.sure == sure


@pytest.mark.parametrize("network", ["IB", "gIB", TCPX, "FasTrak"])
def test_one_rank_on_a_network_is_not_all_ranks(network: str) -> None:
    verdict = verdict_of(networks(network))
    assert verdict.code == 11
    assert verdict.headline.endswith("one rank was seen, and nothing says how many there are")
    for seen in (networks(network, network, network), networks(network, network)):
        assert verdict_of(seen).code == 0
        some = verdict_of(seen[:-1])  # not how many there are
        assert some.code == 11
        assert some.headline == (
            f"cannot tell: {network} on {len(seen) - 1} of {len(seen) - 1} ranks seen; "
            f"{len(seen) - 1} ranks were seen, and nothing says how many there are"
        )
    sockets = [f"node-{n}:{n}:1 [{n}] NCCL INFO Using network Socket" for n in range(2)]
    assert "all ranks seen: sockets" in whats(verdict_of(sockets), BAD)


@pytest.mark.parametrize(
    ("gpus", "code"),
    [
        (["01", "01"], 0),
        (["01234567"] * 3, 0),
        (["01234567", "0123456"], 11),
        (["12", "12"], 11),
        (["01", "23"], 11),
        (["0", "0"], 11),  # a container shows each of its ranks one GPU
        (["6", "3"], 11),
    ],
)
def test_ranks_that_fill_their_nodes_are_all_where_no_line_says_how_many(
    gpus: list[str], code: int
) -> None:
    chosen = [
        f"node-{node}:{node}{gpu}:1 [{gpu}] NCCL INFO Using network {TCPX}"
        for node, of in enumerate(gpus)
        for gpu in of
    ]
    assert verdict_of(chosen).code == code


NEAR = nccl_line("INFO Channel 00/0 : 8[0] -> 9[1] via P2P/IPC")
COMM = "INFO comm 0x5 rank {} nranks 16 cudaDev {}{} - Init COMPLETE"
OFI = "WARN NET/OFI aws-ofi-nccl initialization failed"


def sockets_of(lines: list[str]) -> str:
    verdict = verdict_of(lines)
    found = [f for f in verdict.findings if "sockets in place of a plugin" in f.text]
    assert (verdict.code == 9) is bool(found)
    return found[0].evidence.sure if found and found[0].evidence else ""


@pytest.mark.parametrize(
    "lines",
    [
        [*ALONE, NEAR, nccl_line(COMM.format(8, 0, " busId 1a000"))],
        [*ALONE, NEAR, nccl_line(COMM.format(8, 0, " nvmlDev 3 busId 1a000"))],
        [f"[1,8]<stdout>:{line}" for line in ALONE],
        [f"[1,mpirank:8,algo-2]<stdout>:{line}" for line in [*ALONE, NEAR]],
        # One rank of each node in turn: 0 and 2 of a node with GPUs 0 and 1.
        [*ALONE, NEAR, nccl_line(COMM.format(0, 0, "")), nccl_line(COMM.format(2, 1, ""), 1)],
        [*ALONE, NEAR, nccl_line(OFI)],
        [*ALONE, NEAR, nccl_line("INFO NET/OFI No eligible providers were found")],
    ],
)
def test_sockets_are_likely_off_where_something_hints_at_another_node(lines: list[str]) -> None:
    assert sockets_of(lines) == "likely"


@pytest.mark.parametrize(
    "lines",
    [
        [*ALONE, NEAR, nccl_line(COMM.format(3, 3, ""))],
        [*ALONE, NEAR, nccl_line(COMM.format(3, 0, " nvmlDev 3 busId 1a000"))],
        # Each rank sees one GPU alone.
        [*ALONE, NEAR, nccl_line(COMM.format(2, 0, "")), nccl_line(COMM.format(3, 0, ""), 2)
         .replace("h1", "h0")],
        # The GPUs in another order than the ranks.
        [*ALONE, NEAR, nccl_line(COMM.format(0, 1, ""), 1), nccl_line(COMM.format(1, 0, ""))],
        [*(f"[1,1]<stdout>:{line}" for line in ALONE),
         "[1,0]<stdout>:" + nccl_line("INFO Using network Socket", 2).replace("h1", "h0")],
    ],
)  # fmt: skip
def test_a_node_whose_ranks_are_not_numbered_as_its_gpus_is_no_hint(lines: list[str]) -> None:
    assert sockets_of(lines) == ""


def test_containers_of_one_host_name_are_two_nodes_likely_where_a_plugin_failed() -> None:
    lines = [
        f"ip-0:{n}1:{n}1 [0] NCCL INFO {said}"
        for n in range(2)
        for said in (
            "NET/OFI aws-ofi-nccl initialization failed",
            "Using network Socket",
            f"ncclCommInitRankConfig comm 0x5 rank {n} nranks 2 - Init START",
        )
    ]
    verdict = verdict_of(lines)
    assert verdict.code == 9
    assert verdict.headline == "off the fast path: Socket on 2 of 2 ranks (likely)"
    without = verdict_of([line for line in lines if "NET/OFI" not in line])
    assert without.code == 11


def test_a_plugin_that_failed_is_no_harmless_line_on_a_rank_that_chose_sockets() -> None:
    comm = "INFO comm 0x5 rank {0} nranks 2 cudaDev {0} - Init START"
    comms = [nccl_line(comm.format(rank), rank) for rank in (0, 1)]
    near = nccl_line("INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
    for failed in (
        OFI,
        "INFO NET/OFI No eligible providers were found",
        "WARN NET/OFI Couldn't find any optimal provider",
        "WARN NET/OFI Failed to initialize sendrecv protocol",
        "WARN NET/OFI Unable to find a protocol that worked.  Failing initialization.",
        "INFO NET/Plugin: failed to init aws-ofi-nccl",
    ):
        for lines, severity in (
            ([*ALONE, nccl_line("INFO Using network Socket", 2)], BAD),
            ([*ALONE, *comms, near], DOUBTFUL),  # nothing goes over a network
            (networks("IB", "IB"), GOOD),
        ):
            verdict = verdict_of([nccl_line(failed), *lines])
            (found,) = [f for f in verdict.findings if "its init failed" in f.text]
            assert found.severity is severity, failed
            assert verdict.code == (9 if severity is BAD else 0)
    alone = verdict_of([nccl_line("INFO NET/Plugin : No plugin found"), *ALONE, *comms, near])
    assert {f.severity for f in alone.findings} == {GOOD}

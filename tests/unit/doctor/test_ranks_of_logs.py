"""Which rank a line is of, whatever stands around it, and how many ranks there are."""

from __future__ import annotations

import pytest
from lines_of_logs import BAD, DOUBTFUL, TCPX, nccl_line, networks, verdict_of, whats

from tcpx_mpi.doctor import judge, lines


def test_a_send_by_another_ranks_proxy_is_direct_too() -> None:
    said = "h:1:1 [0] NCCL INFO "
    text = [said + "Using network FasTrak",
            said + "Channel 00/0 : 1[1] -> 0[0] [send] via NET/FasTrak/1(1)/GDRDMA/Shared",
            said + "Channel 01/0 : 0[0] -> 1[1] [receive] via NET/FasTrak/1/GDRDMA",
            "i:1:1 [0] NCCL INFO Channel 1/0 : 0[0] -> 1[1] [send] via NET/FasTrak/1/GDRDMA",
            ]  # fmt: skip
    verdict = verdict_of(text)
    assert verdict.code == 0
    assert "staged" not in "\n".join(finding.text for finding in verdict.findings)
    assert verdict_of(text[:3]).code == 11  # rank 0 says nothing
    staged = verdict_of([text[0], text[1].replace("/GDRDMA", "")])
    assert staged.code == 9


def test_what_a_process_says_before_it_chooses_its_gpu_is_no_rank() -> None:
    text = []
    for device in range(4):
        early, said = (f"h:{10 + device}:1 [{number}] NCCL INFO " for number in (0, device))
        text += [early + "Bootstrap : Using eth0:10.0.0.1<0>",
                 early + "NET/Plugin: Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: "
                 "cannot open shared object file: No such file or directory",
                 said + "Using network GPUDirectTCPX_v7",
                 said + f"comm 0x1 rank {device} nranks 4 - Init COMPLETE"]  # fmt: skip
    verdict = verdict_of(text)
    assert verdict.code == 0
    assert "between the 4 ranks" in verdict.headline


def test_lines_of_nccl_without_a_network_cannot_be_told() -> None:
    verdict = verdict_of([nccl_line("INFO NCCL_DEBUG set by environment to INFO")])
    assert verdict.code == 11
    assert verdict.headline == "cannot tell: no rank says which network it uses"


def test_the_quote_that_closes_a_wrapper_is_no_part_of_its_line() -> None:
    hca = "Call to ibv_modify_qp failed on 'mlx5_0'"
    for text, quote in (
        ("Using network AWS Libfabric", '"'),
        ("Using network Acme", "'"),
        (hca, ""),
    ):
        (line,) = lines.read_lines([("a", [f"x: {quote}h:1:1 [0] NCCL INFO {text}{quote}"])])
        assert line.text == text


@pytest.mark.parametrize(
    "line",
    [
        "INFO NET/Plugin: Loaded net plugin FastSocket (v4)",
        "INFO NET/OFI Selected Provider is efa (found 16 nics)",
        "INFO P2P plugin v8 IBext_v8",
        "WARN NET/IB : Got completion from peer 10.0.0.3<4> with error 12, opcode 0",
    ],
)
def test_a_network_that_is_named_is_not_one_of_which_nothing_is_there(line: str) -> None:
    verdict = verdict_of(nccl_line(line))
    assert verdict.code == 11
    assert "networks are named, and no rank says which one it chose" in verdict.headline


def test_what_stands_before_the_lines_does_not_matter() -> None:
    plain = networks(TCPX, TCPX)
    for before in ("3: ", "[1,0]<stdout>:", "2026-06-22T10:00:01.5Z ", "[pod/a-0] ", "> ", "\t"):
        verdict = verdict_of([before + line for line in plain])
        assert (int(verdict.code), verdict.headline.split(": ")[1]) == (
            0,
            "GPUDirectTCPX_v7 on 2 of 2 ranks",
        )


def test_a_newer_nccl_has_times_files_and_other_words() -> None:
    text = [
        "[2025-06-10 12:00:00] h0:100:200 [0] plugin/net.cc:123 NCCL INFO Assigned NET plugin "
        "FasTrak to comm",
        "[2025-06-10 12:00:01] h0:100:200 [0] init.cc:7 NCCL INFO ncclCommInitRank comm 0x1 rank 0 "
        "nranks 1 cudaDev 0 - Init COMPLETE",
    ]
    verdict = verdict_of(text)
    assert verdict.headline == "on the fast path: FasTrak on 1 of 1 ranks"


def test_ranks_that_say_nothing_are_counted_by_what_the_job_says_of_its_size() -> None:
    comm = nccl_line("INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 - Init START")
    verdict = verdict_of([comm, *networks(TCPX, TCPX)])
    assert verdict.code == 11
    assert verdict.headline.startswith("cannot tell: GPUDirectTCPX_v7 on 2 of 16 ranks; 14 of 16")
    assert "14 of 16 ranks do not say" in whats(verdict, DOUBTFUL)


def test_a_job_has_as_many_ranks_as_the_highest_number_that_is_named() -> None:
    far = [
        f"{host}:1:1 [{n}] NCCL INFO Channel 07/0 : 8[0] -> 7[7] [{way}] via NET/IB/0/GDRDMA"
        for host, n, way in (("a", 0, "send"), ("b", 7, "receive"))
    ]
    verdict = verdict_of(far)
    assert verdict.code == 11
    assert "IB on 2 of 9 ranks; 7 of 9 ranks" in verdict.headline
    proxy = "a:1:1 [0] proxy.cc:1519 NCCL WARN [Proxy Service 11] Failed to execute operation"
    assert "2 of 12 ranks" in verdict_of([*far, f"{proxy} Connect from rank 11"]).headline
    tagged = "[1,31]<stdout>:c:1:1 [7] NCCL INFO NET/OFI No NIC info for dev 0"
    assert "2 of 32 ranks" in verdict_of([*far, tagged]).headline
    whole = [*far, "a:1:1 [0] NCCL INFO comm 0x5 rank 8 nranks 16 cudaDev 0 - Init START"]
    assert "2 of 16 ranks" in verdict_of(whole).headline


def test_a_job_has_as_many_ranks_as_processes_speak() -> None:
    near = "Channel 00 : 1[1] -> 0[0] via SHM/direct/direct"
    lines = [f"a:1:1 [0] NCCL INFO {near}", "a:2:2 [1] NCCL INFO Connected all trees"]
    lines += ["b:3:3 [0] NCCL INFO Connected all rings"]
    net = "c:4:4 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
    assert "P2P or SHM alone on 1 of 4 ranks, Socket on 1" in verdict_of([*lines, net]).headline


def test_one_rank_and_a_rank_without_a_name_are_said_as_such() -> None:
    one = [nccl_line("INFO Using network Socket"), nccl_line("INFO comm 0x5 rank 0 nranks 1")]
    assert verdict_of(one).headline == "on the fast path: no network is needed for the one rank"
    bare = "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0"
    assert "a rank: all connections" in whats(verdict_of(f"{bare}\ndone"), BAD)


def test_all_ranks_that_failed_are_named_and_all_ranks_are_only_those_that_are_there() -> None:
    line = "misc/shmutils.cc:132 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9 bytes"
    near = "NCCL INFO Channel 00 : {0}[{0}] -> 0[0] via P2P/IPC"
    dead = [f"d4:{n}:{n} [{n}] {near.format(n)}" for n in range(9)]
    dead += [f"d4:{n}:{n} [{n}] {line}" for n in (4, 7, 4)]
    assert "d4 pid 4 [4], d4 pid 7 [7]: failed before" in verdict_of(dead).headline
    dead += [f"d4:{n}:{n} [{n}] {line}" for n in (1, 2, 3)]
    assert "d4 pid 2 [2] and 1 more: failed before" in verdict_of(dead).headline
    sockets = [*networks("Socket", "Socket", "Socket")]
    assert "all ranks: sockets" in whats(verdict_of(sockets), BAD)
    comm = nccl_line("INFO comm 0x5 rank 0 nranks 4 cudaDev 0 - Init START")
    assert "3 of 4 ranks: sockets" in whats(verdict_of([*sockets, comm]), BAD)


def test_a_host_whose_process_is_redacted_is_not_the_process() -> None:
    said = "[5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out"
    # XXXXXX is what the person who gave the log wrote over the pid.
    for host in ("host-01.example.com", "host-01.a-longer-name.example.com"):
        verdict = verdict_of(f"[2026-03-13 22:26:02] {host}:XXXXXX {said}")
        assert whats(verdict, DOUBTFUL).split("\n")[1].startswith(f"{host} [5]: "), host
    verdict = verdict_of(f":4100:4107 {said}")
    assert whats(verdict, DOUBTFUL).split("\n")[1].startswith("pid 4100 [5]: ")


def test_a_failure_of_a_process_with_several_gpus_is_named_as_its_line_is() -> None:
    lines = [
        "node-1:39:75 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to h<4> failed",
        "node-1:39:49 [5] NCCL INFO Channel 20 : 5[5] -> 4[4] via SHM/direct/direct",
    ]
    (failed,) = [f for f in verdict_of(lines).findings if "could not connect" in f.text]
    assert failed.text.startswith("node-1 pid 39 [0]: failed before it had connected")


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        *((mark, "") for mark in ("`", ">", "*", "-", "|", "> `", "- ", "\u2022", "\ufeff")),
        ("`", "`"), ("**", "**"), ("| `", "` |"),
    ],
)  # fmt: skip
def test_a_mark_of_a_page_before_a_host_makes_no_other_host(before: str, behind: str) -> None:
    plain = [*networks("Acme", "Acme"), nccl_line("INFO comm 0x5 rank 0 nranks 2")]
    marked = verdict_of([f"{before}{line}{behind}" for line in plain])
    assert marked.headline == verdict_of(plain).headline
    some = [f"{before}{plain[0]}{behind}", *plain[1:]]
    assert verdict_of(some).headline == marked.headline
    assert "Acme on 2 of 2 ranks" in marked.headline


def test_nccl_2_0_to_2_2_have_no_nccl_before_the_level() -> None:
    heads = [f"nm-7{rank}:245:409 [0]" for rank in range(2)]
    lines = [f"{head} INFO comm 0x5 rank {rank} nranks 2" for rank, head in enumerate(heads)]
    lines += [f"{head} INFO 1 -> 0 via NET/Socket/0" for head in heads]
    broken = f"{heads[0]} misc/ibvwrap.cu:275 WARN Call to ibv_create_cq failed"
    for before in ("", "[1,0]<stdout>:", "3: ", "2018-03-01 10:22:33 "):
        verdict = verdict_of([before + line for line in [*lines, broken]])
        assert verdict.code == 9, before
        assert "Socket on 2 of 2 ranks" in verdict.headline
        assert "a call of InfiniBand failed" in verdict.headline
    for time in ("10:22:33", "2018-03-01 10:22:33", "2018-03-01T10:22:33", "[10:22:33"):
        other = verdict_of(f"{time} [0] INFO 1 -> 0 via NET/Socket/0")
        assert other.headline == "cannot tell: no line of NCCL", time


@pytest.mark.parametrize(
    "line",
    [
        "INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 comm 0x95cd nRanks 32 busId c1000",
        "INFO Channel 00/02 :    0   1   2   3 comm 0x95cd nRanks 32 busId c1000",
        "INFO Channel 00/0 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x95cd nRanks 32",
        "INFO Ring 00 : 3 -> 0 -> 1 comm 0x95cd nRanks 32 busId c1000",
        "INFO Connected all rings comm 0x95cd nRanks 32 busId c1000",
        "INFO comm 0x95cd nRanks 32 busId c1000 - Init COMPLETE",
        "INFO comm 0x95cd rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0",
        "INFO rank 0 nranks 32",  # NCCL 2.3
        "INFO Init timings - ncclCommInitRank: rank 0 nranks 32 total 1.2 (kernels 0.1)",
        "INFO [Rank 0] ncclCommGrow comm 0x5 rank 0 nranks 32 cudaDev 0 - Init START",
        "INFO AllReduce: opCount 0 count 4 datatype 7 op 0 root 0 comm 0x5 [nranks=32] stream 0x1",
        "WARN Bootstrap Root : rank 1 of 32 ranks has already checked in",
    ],
)
def test_a_job_has_as_many_ranks_as_any_line_says(line: str) -> None:
    seen = [*networks("IB", "IB"), nccl_line(line)]
    assert "IB on 2 of 32 ranks" in verdict_of(seen).headline
    group = nccl_line("INFO comm 0x9 nRanks 4 busId c1000")
    assert "IB on 2 of 32 ranks" in verdict_of([*seen, group]).headline


def test_the_ranks_of_a_multicast_group_are_those_of_its_node() -> None:
    far = "INFO Channel 00/0 : {0}[{0}] -> {1}[{0}] [send] via NET/IB/0/GDRDMA"
    seen = [nccl_line(far.format(rank, rank + 2), rank) for rank in range(2)]
    for group in ("comm 0x5 rank 0 nranks 2 buffSize 1", "Creating Multicast group nranks 2"):
        assert "IB on 2 of 4 ranks" in verdict_of([*seen, nccl_line(f"INFO NVLS {group}")]).headline


def test_a_rank_in_two_files_is_one_where_one_file_has_no_number_of_it() -> None:
    head = "w:50:57 [0] NCCL INFO "
    first = [f"{head}Using network IB", f"{head}comm 0x5 rank 0 nranks 2 - Init COMPLETE"]
    second = [f"{head}Connected all rings comm 0x5 nRanks 2 busId c1000"]
    verdict = judge.judge([*lines.read_lines([("a", first), ("b", second)])], [])
    assert "IB on 1 of 2 ranks" in verdict.headline


def test_a_gpu_that_ends_the_communicators_of_its_process_is_one_rank() -> None:
    comm = "w:1:2 [{0}] NCCL INFO comm 0x5 rank {1} nranks 4 cudaDev {1} busId 1 - {2} COMPLETE"
    lines = [f"w:1:{rank} [{rank}] NCCL INFO Using network IB" for rank in range(4)]
    lines += [comm.format(rank, rank, "Init") for rank in range(4)]
    lines += [comm.format(3, rank, end) for rank in range(4) for end in ("Destroy", "Abort")]
    assert "between the 4 ranks" in verdict_of(lines).headline


@pytest.mark.parametrize("end", ["cudaDev {} busId 4000 - Abort COMPLETE", "- Destroy COMPLETE"])
def test_the_thread_that_ends_a_communicator_is_no_rank(end: str) -> None:
    ended = "h{}:{}:{} [0] NCCL INFO comm 0x5 rank {} nranks 4 " + end
    for via, code in (("[send] via NET/IB/0/GDRDMA", 0), ("via P2P/IPC", 0), ("", 0)):
        lines = []
        for rank in range(4):
            node, device = (rank // 2, rank % 2) if "NET" in via else (0, rank)
            head = f"h{node}:{100 + rank}:{rank} [{device}] NCCL INFO "
            lines += [f"{head}Using network IB", f"{head}comm 0x5 rank {rank} nranks 4"]
            lines += [f"{head}Channel 00/0 : {rank}[1] -> {(rank + 2) % 4}[1] {via}"] if via else []
            lines += [ended.format(node, 100 + rank, 900 + rank, rank, device)]
        verdict = verdict_of(lines)
        assert verdict.code == code
        assert "4 ranks" in verdict.headline
        assert "do not say" not in whats(verdict, DOUBTFUL)

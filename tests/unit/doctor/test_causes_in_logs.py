"""What known lines mean: causes, failures, warnings, and what does no harm."""

from __future__ import annotations

import re

import pytest
from lines_of_logs import BAD, DOUBTFUL, TCPX, nccl_line, networks, verdict_of, whats

from tcpx_mpi.doctor import lines, signatures


def test_a_first_name_of_the_plugin_that_fails_is_no_cause_on_a_rank_that_found_another() -> None:
    failed = "INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2"
    all_three = [nccl_line(failed, rank) for rank in range(3)]
    assert verdict_of([*all_three, *networks(TCPX, TCPX, TCPX)]).code == 0
    one = verdict_of([*all_three, *networks(TCPX, "Socket", TCPX)])
    assert one.code == 9
    assert "h0 pid 101 [1]: NCCL did not find the plugin's library" in whats(one, BAD)


def test_every_signature_is_whole() -> None:
    known = signatures.signatures()
    assert len({signature.name for signature in known}) == len(known) > 10
    for signature in known:
        assert signature.effect in signatures.EFFECTS
        assert signature.sure in signatures.SURE
        assert signature.what
        assert signature.do
        assert re.search(r"20\d\d", signature.source)


@pytest.mark.parametrize("known", signatures.signatures(), ids=lambda known: known.name)
def test_a_signature_has_the_line_that_its_source_prints(known: signatures.Signature) -> None:
    text = known.line if known.anywhere else nccl_line(f"WARN {known.line}")
    (match,) = signatures.matches([*lines.read_lines([("job.log", [text])])])
    assert match.signature is known


def test_a_warning_that_no_signature_knows_is_shown_in_its_own_words() -> None:
    head = "node-1:82:2548 [0] "
    chosen = [
        f"{head}NCCL INFO Using network Libfabric",
        f"{head}NCCL INFO comm 0x1 rank 0 nranks 1",
    ]
    warnings = [
        f"{head}some_call:{n} NCCL WARN NET/OFI {what} failed for 0x7f{n}: Invalid argument"
        for n in (10, 20)
        for what in ("Creating an endpoint", "Opening an AV", "a third", "a fourth", "a fifth")
    ]
    findings = verdict_of([*chosen, *warnings]).findings
    strange = [finding for finding in findings if "not known here" in finding.text]
    assert [finding.evidence and finding.evidence.times for finding in strange] == [2, 2, 2, 2]
    assert strange[0].text == "node-1 pid 82 [0]: a warning that is not known here"
    assert "NET/OFI Creating an endpoint failed" in str(strange[0].evidence)
    assert strange[-1].text.endswith("; 1 more kinds are in the log")


def test_a_plugin_that_is_not_there_is_no_cause_of_staged_connections_over_infiniband() -> None:
    lines = [
        nccl_line("INFO NET/Plugin : No plugin found (libnccl-net.so), using internal one"),
        nccl_line("INFO Ring 00 : 1[41000] -> 0[1b000] [receive] via NET/IB/0"),
        nccl_line("INFO Connected all rings"),
    ]
    off = [f.text for f in verdict_of(lines).findings if f.severity is BAD]
    assert off == ["h0 pid 100 [0]: all connections are staged in host memory (no GDRDMA)"]


def test_a_completion_with_an_error_is_of_a_connection_that_was_there() -> None:
    head = "kol:25146:25827 [0] "
    lines = [
        f"{head}NCCL INFO ncclCommInitRank comm 0x5 rank 4 nranks 8 cudaDev 0 - Init COMPLETE",
        f"{head}ib_plugin.c:1105 NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with "
        "error 4, opcode 5327, len 5327, vendor err 81 (Send)",
    ]
    verdict = verdict_of(lines)
    assert verdict.code == 11
    assert whats(verdict, DOUBTFUL).count("a connection broke") == 1
    old = "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"
    assert verdict_of([lines[0], f"{head}transport/net_ib.cc:824 {old}"]).code == 11
    # NCCL 2.21 says COMPLETE before it connects: a rank that says no more has not connected yet.
    refused = "misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer b<5>"
    assert verdict_of([lines[0], f"{head}{refused}"]).code == 9


def test_a_trace_of_a_failed_call_does_not_deny_a_communicator_that_was_made() -> None:
    head = "kol:25146:25827 [0] NCCL INFO "
    lines = [
        f"{head}ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 - Init COMPLETE",
        f"{head}transport.cc:212 -> 3",
    ]
    verdict = verdict_of(lines)
    assert verdict.code == 9
    assert "communicator" not in whats(verdict, BAD)


@pytest.mark.parametrize("start", ["Using network IB", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"])
@pytest.mark.parametrize(
    "trace",
    [
        "transport/net_socket.cc:403 -> 3", "transport/net.cc:883 -> 3", "include/net.h:24 -> 2",
        "misc/socket.cc:628 -> 3", "init.cu:915 -> 2", "transport/net_ib.cu:407 -> 2",
    ],
)  # fmt: skip
def test_a_call_that_failed_by_its_own_trace_is_a_start_that_failed(start: str, trace: str) -> None:
    head = "node-0:5109:5177 [0] "
    warned = f"{head}misc/socket.cc:502 NCCL WARN socketFinalizeAccept: wrong type 4 != 3"
    comm = f"{head}NCCL INFO comm 0x5 rank 0 nranks 2 - Init START"
    lines = [comm, f"{head}NCCL INFO {start}", warned, f"{head}NCCL INFO {trace}"]
    verdict = verdict_of(lines)
    assert verdict.code == 9
    assert "failed before it had connected: a call failed" in verdict.headline
    (failed,) = [f for f in verdict.findings if f.severity is BAD]
    assert failed.evidence is not None
    assert failed.evidence.line is not None
    assert "wrong type" in failed.evidence.line.text
    assert verdict_of([*lines, f"{head}NCCL INFO Connected all rings"]).code == 11
    if not trace.startswith("init"):
        other = warned.replace("5109", "5110")
        assert verdict_of([*lines[:2], other, lines[3]]).code == 11
        moving = f"{head}NCCL INFO proxy.cc:912 -> 2 [Progress Thread]"
        assert verdict_of([*lines, moving]).code == 11
        lost = warned.replace("socketFinalizeAccept: wrong type 4 != 3", "async fatal event")
        assert "a call failed" not in verdict_of([*lines[:2], lost, lines[3]]).headline


def test_a_segment_that_is_not_there_is_not_a_lack_of_room() -> None:
    head = "d4:13737:13737 [4] misc/shmutils.cc:132 NCCL WARN "
    said = [nccl_line("INFO Using network IB")]
    gone = f"{head}Error while attaching to shared memory segment /dev/shm/nccl-x (size 0), error: "
    verdict = verdict_of([*said, f"{gone}No such file or directory (2)"])
    assert "room" not in whats(verdict, DOUBTFUL) + whats(verdict, BAD)
    assert "segment of shared memory is not there" in whats(verdict, DOUBTFUL)
    for full in (
        "Error while creating shared memory segment n (size), error: No space left on device",
        "Error while creating shared memory segment nccl-shm-recv-9 (size 9637888)",
        "Call to posix_fallocate failed: No space left on device",
        "Error: failed to extend /dev/shm/nccl-4Xa0pD to 9637892 bytes",
    ):  # fmt: skip
        assert "no room" in whats(verdict_of([*said, f"{head}{full}"]), DOUBTFUL), full


def test_what_follows_from_an_earlier_warning_is_no_warning_of_its_own() -> None:
    head = "c-57:815:864 [0] "
    lines = [
        f"{head}net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error",
        f"{head}misc/ibvwrap.cu:220 NCCL WARN Call to ibv_get_async_event failed",
        f"{head}proxy.cc:1143 NCCL WARN Socket recv failed while polling for opId=0x7fa0242685e0",
    ]
    said = whats(verdict_of(lines), DOUBTFUL)
    assert "the device failed" in said
    assert "a call of InfiniBand" not in said
    assert "not known here" not in said


def test_checks_of_a_machine_and_what_a_plugin_tries_do_no_harm() -> None:
    texts = (
        'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
        "NUMA auto balancing enabled which can lead to variability in the RCCL performance!",
        "RCCL_USE_AMD_SMI_LIB not set, but HIP_FABRIC_API is defined.",
        "NET/OFI Could not find ncclGetVersion symbol",
    )
    for text in texts:
        verdict = verdict_of([nccl_line(f"WARN {text}"), *networks("IB", "IB")])
        assert not whats(verdict, DOUBTFUL), text


def test_a_warning_comes_before_what_nccl_says_of_it() -> None:
    head = "user:16901:16967 [2] "
    chosen = [f"{head}NCCL INFO Using network IB", f"{head}NCCL INFO comm 0x5 rank 2 nranks 4"]
    wrapped = [
        f"{head}NCCL INFO proxy.cc:1306 -> 3",
        f"{head}proxy.cc:1519 NCCL WARN [Proxy Service 2] Failed to execute operation Connect from "
        "rank 2, retcode 3",
        f"{head}NCCL INFO init.cc:1358 -> 3",
    ]
    for where, cause, what in (
        ("misc/ibvwrap.cc:187", "Call to ibv_modify_qp failed with error 101", "InfiniBand failed"),
        ("ucx_plugin.c:498", "Failed: UCX error ucx_plugin.c:498 '-5'", "could not be made"),
        ("bootstrap.cc:37", "Bootstrap : no socket interface found", "no NIC has the name"),
    ):
        verdict = verdict_of([*chosen, f"{head}{where} NCCL WARN {cause}", *wrapped])
        assert verdict.code == 9
        assert what in verdict.headline
        (first, *_) = [finding for finding in verdict.findings if finding.text in verdict.headline]
        assert first.evidence is not None
        assert first.evidence.line is not None
        assert first.evidence.line.text == cause
    alone = verdict_of([*chosen, *wrapped])
    assert "a connection could not be made" in alone.headline
    assert verdict_of([*chosen, wrapped[-1]]).code == 9


@pytest.mark.parametrize(
    ("line", "advises", "never"),
    [
        (line, "NCCL_IB_GID_INDEX", "ulimit")
        for line in (
            "Call to ibv_modify_qp failed with error Network is unreachable",
            "Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_0:1",
            "Call to ibv_modify_qp failed with error 113",
            "Call to ibv_modify_qp failed with 113 No route to host, on dev mlx5_bond_0:1",
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1",
            "Call to ibv_create_ah failed with error No route to host",
        )
    ]
    + [
        (line, "ulimit -l", "NCCL_IB_GID_INDEX")
        for line in (
            "Call to ibv_reg_mr failed with error Cannot allocate memory",
            "Call to ibv_reg_mr_iova2 failed with error Bad address",
            "Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
            "Call to ibv_create_qp failed with error Cannot allocate memory",
        )
    ]
    + [("Call to ibv_create_cq failed with error Invalid argument", "ibv_devinfo", "ulimit")],
)
def test_memory_is_advised_on_where_memory_failed_and_routes_where_a_way_is_not_there(
    line: str, advises: str, never: str
) -> None:
    verdict = verdict_of([*networks("IB"), nccl_line(f"WARN {line}")])
    assert verdict.code == 9
    (failed,) = [f for f in verdict.findings if "a call of InfiniBand failed" in f.text]
    assert advises in failed.remedy
    assert never not in failed.remedy
    assert ("memory" in failed.text) == (advises == "ulimit -l")


@pytest.mark.parametrize("seen", [[], networks("IB"), networks("Socket", "Socket")])
@pytest.mark.parametrize(
    ("line", "what", "size"),
    [
        ("Bootstrap Root : rank 1 of 8 ranks has already checked in", "one rank number", 8),
        ("Bootstrap Root : rank 15 of 16 ranks has already checked in", "one rank number", 16),
        ("Bootstrap Root : mismatch in rank count from procs 6 : 3", "numbers of ranks", 0),
        ("Bootstrap Root : mismatch in info from procs, nranks 8 vs 16, nroots 1 vs 1",
         "numbers of ranks", 8),
        ("Invalid rank requested : 8/8", "numbers of ranks", 0),
    ],
)  # fmt: skip
def test_ranks_that_a_launcher_numbers_wrongly_are_no_matter_of_the_network(
    line: str, what: str, size: int, seen: list[str]
) -> None:
    start = nccl_line("INFO Bootstrap : Using eth0:10.0.0.1<0>")
    verdict = verdict_of([start, *seen, nccl_line(f"WARN {line}")])
    assert verdict.code == 9
    assert what in verdict.headline
    assert "which is no matter of the network" in verdict.headline
    assert "launcher" in next(f.remedy for f in verdict.findings if what in f.text)
    if size and seen:
        assert f" of {size} ranks" in verdict.headline

"""The verdict on logs: public reports' forms (tests/fixtures/doctor), and forms of our own."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.doctor import judge, lines, signatures
from tcpx_mpi.doctor.here import driver_version
from tcpx_mpi.doctor.text import lines as printed_lines
from tcpx_mpi.findings import Severity
from tcpx_mpi.machine import profiles

BAD, DOUBTFUL, NOTE, GOOD = Severity.BAD, Severity.DOUBTFUL, Severity.NOTE, Severity.GOOD

LOGS = Path(__file__).parents[2] / "fixtures" / "doctor"

# --- The logs of public reports -----------------------------------------------------------------

EXPECTED = {
    "01": (0, "on the fast path: GPUDirectTCPX_v7 on 4 of 4 ranks", ""),
    "02": (9, "Socket on 4 of 4 ranks", "NCCL did not find the plugin's library"),
    "03": (9, "GPUDirectTCPX_v7 on 3 of 4 ranks, Socket on 1", "node-1 pid 4103 [1]: sockets"),
    "04": (9, "no GPU memory can be registered", "node-1 pid 4102 [0]: the plugin's dma-buf call"),
    "05": (9, "manager is not there", "its socket is missing or does not answer"),
    "06": (0, "GPUDirectTCPX_v7 on 4 of 4 ranks", "start takes minutes (likely) [41 times]"),
    "07": (9, "Socket on 4 of 4 ranks", "does not read NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"),
    "08": (9, "without GPU memory", "each message is staged in host memory [4 times]"),
    "09": (0, "FasTrak on 4 of 4 ranks", "harmless  FasTrak's shim"),
    "10": (11, "cannot tell: no line of NCCL", "NCCL_DEBUG=INFO"),
}


@pytest.mark.parametrize("number", EXPECTED)
def test_a_log_of_a_public_report_is_judged_rightly(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, headline, finding = EXPECTED[number]
    (path,) = LOGS.glob(f"{number}-*.log")
    assert cli.main(["doctor", str(path)]) == code
    first, *rest = capsys.readouterr().out.splitlines()
    assert headline in first
    assert finding in "\n".join(rest)


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
    assert "4 of 4 ranks" in verdict.headline


def test_the_wrong_family_is_said_before_the_sockets_that_follow_from_it() -> None:
    (path,) = LOGS.glob("07-*.log")
    verdict = verdict_of(path.read_text())
    assert "FasTrak (A3 Mega), which does not read" in verdict.findings[0].text
    seen = verdict.findings[0].evidence
    assert seen is not None
    assert seen.line is not None
    assert seen.line.number == 5


# --- Our own ------------------------------------------------------------------------------------

TCPX = "GPUDirectTCPX_v7"


def nccl_line(text: str, rank: int = 0) -> str:
    return f"h{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL {text}"


def networks(*names: str) -> list[str]:
    return [nccl_line(f"INFO Using network {name}", rank) for rank, name in enumerate(names)]


def verdict_of(text: str | Sequence[str]) -> judge.Verdict:
    said = text.split("\n") if isinstance(text, str) else text
    return judge.judge(list(lines.read_lines([("job.log", said)])), profiles.recipes())


def whats(verdict: judge.Verdict, severity: Severity) -> str:
    return "\n".join(f.text for f in verdict.findings if f.severity is severity)


def test_an_empty_log_and_one_of_another_program_cannot_be_told() -> None:
    other = (
        "worker: Connection refused, retrying\n"
        "ImportError: libfoo.so: cannot open shared object file\nno interface found"
    )
    for text in ("", "\n\n", other):
        verdict = verdict_of(text)
        assert verdict.code == 11
        assert verdict.headline == "cannot tell: no line of NCCL"
        assert not whats(verdict, BAD)


def test_lines_of_nccl_without_a_network_cannot_be_told() -> None:
    verdict = verdict_of([nccl_line("INFO NCCL_DEBUG set by environment to INFO")])
    assert verdict.code == 11
    assert verdict.headline == "cannot tell: no rank says which network it uses"


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


def test_connections_that_are_staged_are_off_and_some_of_them_a_warning() -> None:
    def via(network: str, rank: int) -> str:
        return nccl_line(f"INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}", rank)

    on = networks(TCPX, TCPX)
    staged = verdict_of([*on, via(f"{TCPX}/0", 0), via(f"{TCPX}/0/GDRDMA", 1)])
    assert staged.code == 9
    assert "h0 pid 100 [0]: all connections are staged in host memory" in whats(staged, BAD)
    some = verdict_of([*on, via(f"{TCPX}/0", 0), via(f"{TCPX}/1/GDRDMA/Shared", 0)])
    assert some.code == 0
    assert "some connections are staged" in whats(some, DOUBTFUL)
    assert verdict_of([*on, via(f"{TCPX}/0/GDRDMA", 0)]).findings == []


def test_lines_of_the_manager_and_of_scripts_count_without_nccl() -> None:
    for line, what in (
        ("RxDM not ready after 300 seconds", "did not come up in time"),
        ("E0622 rxdm.cc:77] Failed to create dmabuf importer context", "no import of dma-buf"),
    ):
        verdict = verdict_of(line)
        assert verdict.code == 9
        assert what in whats(verdict, BAD)
        assert verdict.headline.startswith("off the fast path: no rank came to name its network; ")


def test_what_is_optional_does_no_harm_on_the_fast_path() -> None:
    asked = [
        nccl_line("INFO NET/IB : No device found."),
        nccl_line("INFO TUNER/Plugin: Could not find: libnccl-tuner.so"),
        nccl_line("INFO NET/Plugin: Plugin load (libnccl-tuner.so) returned 2"),
        nccl_line("INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol."),
    ]
    verdict = verdict_of([*asked, *networks(TCPX, TCPX)])
    assert verdict.code == 0
    assert {finding.severity for finding in verdict.findings} == {GOOD}


def test_a_first_name_of_the_plugin_that_fails_is_no_cause_on_a_rank_that_found_another() -> None:
    failed = "INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2"
    both = [nccl_line(failed, 0), nccl_line(failed, 1)]
    assert verdict_of([*both, *networks(TCPX, TCPX)]).code == 0
    one = verdict_of([*both, *networks(TCPX, "Socket")])
    assert one.code == 9
    assert "h0 pid 101 [1]: NCCL did not find the plugin's library" in whats(one, BAD)


def test_softtcpx_is_plain_sockets() -> None:
    verdict = verdict_of(networks("softtcpx_v7", "softtcpx_v7"))
    assert verdict.code == 9
    assert "softtcpx, which is plain sockets" in whats(verdict, BAD)


def test_versions_of_two_recipes_are_a_warning_with_what_belongs_together() -> None:
    def job(plugin: str, manager: str, nccl: str) -> judge.Verdict:
        images = [
            f"Pulling image nccl-plugin-gpudirecttcpx-dev:v{plugin}",
            f"Pulling image tcpgpudmarxd-dev:v{manager}",
            nccl_line(f"INFO NCCL version {nccl}+cuda12.2"),
        ]
        return verdict_of([*images, *networks(TCPX, TCPX)])

    mixed = job("3.1.9", "2.0.15", "2.19.3")
    assert mixed.code == 0
    (finding,) = [f for f in mixed.findings if f.severity is DOUBTFUL]
    assert finding.remedy == (
        "profile a3-highgpu-8g@2024-02 has plugin 3.1.9, manager 2.0.12, nccl 2.19.3"
    )
    whole = job("3.1.12", "2.0.15", "2.19.4")
    assert "as in profile a3-highgpu-8g@2026-06-22" in whats(whole, NOTE)
    assert not whats(whole, DOUBTFUL)


def test_ranks_that_say_nothing_are_counted_by_what_the_job_says_of_its_size() -> None:
    comm = nccl_line("INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 - Init START")
    verdict = verdict_of([comm, *networks(TCPX, TCPX)])
    assert verdict.code == 11
    assert verdict.headline.startswith("cannot tell: GPUDirectTCPX_v7 on 2 of 16 ranks; 14 of 16")
    assert "14 of 16 ranks do not say" in whats(verdict, DOUBTFUL)


def test_settings_that_the_recipe_has_otherwise_are_named_with_both_values() -> None:
    text = [
        nccl_line("INFO NCCL version 2.19.4+cuda12.2"),
        nccl_line("INFO NCCL_NSOCKS_PERTHREAD set by environment to 2."),
        nccl_line("INFO NCCL_PROTO set by environment to Simple"),
        *networks(TCPX, TCPX),
    ]
    verdict = verdict_of(text)
    (finding,) = [f for f in verdict.findings if f.severity is DOUBTFUL]
    assert finding.text == (
        "settings differ from profile a3-highgpu-8g@2026-06-22 (in brackets): "
        "NCCL_NSOCKS_PERTHREAD=2 (4)"
    )


def test_fastraks_environment_on_tcpx_is_the_other_wrong_family() -> None:
    text = [
        nccl_line("INFO NET/GPUDirectTCPX : plugin starts"),
        nccl_line("INFO NCCL_FASTRAK_CTRL_DEV set by environment to eth0"),
        *networks("Socket"),
    ]
    verdict = verdict_of(text)
    assert verdict.code == 9
    assert "the plugin is TCPX (A3 High), which does not read NCCL_FASTRAK_CTRL_DEV" in whats(
        verdict, BAD
    )


# --- Its command --------------------------------------------------------------------------------


def test_several_logs_are_one_job_packed_or_not_and_json_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log.gz"
    first.write_text(networks(TCPX)[0])
    second.write_bytes(gzip.compress(networks(TCPX, "Socket")[1].encode()))
    assert cli.main(["doctor", "--json", str(first), str(second)]) == 9
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 9
    assert document["verdict"] == "off the fast path: GPUDirectTCPX_v7 on 1 of 2 ranks, Socket on 1"
    assert document["findings"][0]["evidence"] == {
        "file": str(second), "line": 1, "text": "Using network Socket",
    }  # fmt: skip


def test_a_log_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "no.log"]) == 2
    assert "no.log: no such file" in capsys.readouterr().err


def test_without_a_log_this_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--plugin", "softtcpx"]) == 9
    out = capsys.readouterr().out
    assert "softtcpx, which is plain sockets" in out
    assert "driver: " in out


def test_the_driver_is_read_from_the_kernel_modules_word(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    assert driver_version(version) == "535.183.01"
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n"
    )
    assert driver_version(version) == "580.95.05"
    assert driver_version(tmp_path / "none") == "none"


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


def test_what_a_rank_printed_cannot_steer_the_terminal() -> None:
    printed = printed_lines(verdict_of(nccl_line("INFO Using network Socket\x9b2J\u202e")))
    assert all(line.isprintable() for line in printed)


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


def test_a_failure_of_a_process_with_several_gpus_is_named_as_its_line_is() -> None:
    lines = [
        "node-1:39:75 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to h<4> failed",
        "node-1:39:49 [5] NCCL INFO Channel 20 : 5[5] -> 4[4] via SHM/direct/direct",
    ]
    (failed,) = [f for f in verdict_of(lines).findings if "could not connect" in f.text]
    assert failed.text.startswith("node-1 pid 39 [0]: failed before it had connected")


def test_a_plugin_that_is_not_there_is_no_cause_of_staged_connections_over_infiniband() -> None:
    lines = [
        nccl_line("INFO NET/Plugin : No plugin found (libnccl-net.so), using internal one"),
        nccl_line("INFO Ring 00 : 1[41000] -> 0[1b000] [receive] via NET/IB/0"),
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


def test_the_choice_of_ranks_that_are_all_on_one_host_is_not_yet_off_the_fast_path() -> None:
    start = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank"
    some = [f"ip-0:{n}:{n} [{n}] {start} {n} nranks 4 - Init START" for n in range(4)]
    some += [f"ip-0:{n}:{n} [{n}] NCCL INFO Using network Socket" for n in (1, 2)]
    unfit = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    staged = [line.replace("Socket", "IB") for line in some]
    staged += [f"ip-0:{n}:{n} [{n}] NCCL INFO {unfit}" for n in (1, 2)]
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
    assert "no network on 1 of 4 ranks, Socket on 1" in verdict_of([*lines, net]).headline


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


def test_one_rank_and_a_rank_without_a_name_are_said_as_such() -> None:
    one = [nccl_line("INFO Using network Socket"), nccl_line("INFO comm 0x5 rank 0 nranks 1")]
    assert verdict_of(one).headline == "on the fast path: no network is needed for the one rank"
    bare = "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0"
    assert "a rank: all connections" in whats(verdict_of(bare), BAD)


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


#: What one rank says until its communicator begins.
ALONE = [
    nccl_line("INFO Bootstrap : Using eth0:10.0.0.1<0>"),
    nccl_line("INFO NET/IB : No device found."),
    nccl_line("INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"),
    nccl_line("INFO Using network Socket"),
]
ONE_NODE = "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1"
TWO_NODES = "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1"


@pytest.mark.parametrize(
    "more",
    [
        [],
        [nccl_line("INFO Using network Socket", 1)],
        [nccl_line("INFO Channel 00/02 :    0   1"), nccl_line(f"INFO {ONE_NODE}")],
        [nccl_line(f"INFO {ONE_NODE}")],
        [nccl_line("INFO Trees [0] -1->0->1/-1/-1 [1] -1->0->1/-1/-1")],  # NCCL 2.6
        [nccl_line("INFO comm 0x5 rank 3 nRanks 8 nNodes 1 localRanks 8 localRank 3 MNNVL 0")],
        [nccl_line("INFO comm 0x5 rank 0 nranks 8 - Init START"), nccl_line(f"INFO {ONE_NODE}")],
        [nccl_line("WARN socketStartConnect: Connect to 10.0.0.1<4> returned x, retrying")],
        [nccl_line("WARN Call to connect to localhost<4> returned Connection refused, retrying")],
        [nccl_line("WARN Call to connect to h0.lan<4> returned Connection refused, retrying")],
    ],
)
def test_sockets_of_what_may_be_one_node_cannot_be_told(more: list[str]) -> None:
    verdict = verdict_of([*ALONE, *more])
    assert verdict.code == 11
    assert "nothing says whether a connection leaves its node" in verdict.headline


def test_all_ranks_on_one_host_with_a_connection_need_no_network() -> None:
    def comm(rank: int) -> str:
        return nccl_line(f"INFO comm 0x5 rank {rank} nranks 2 cudaDev {rank} - Init COMPLETE", rank)

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


@pytest.mark.parametrize("network", ["Libfabric", "AWS Libfabric", "UCX", "Acme"])
def test_the_choice_of_a_layer_over_other_networks_says_nothing_of_gpu_memory(network: str) -> None:
    verdict = verdict_of(networks(network, network, network))
    assert verdict.code == 11
    assert "nothing says whether a connection is in GPU memory" in verdict.headline
    enabled = "INFO GPU Direct RDMA Enabled for GPU 1a000 / HCA 0 (distance 3 <= 5), read 0"
    known = [*networks(network, network), *(nccl_line(enabled, rank) for rank in (0, 1))]
    assert verdict_of(known).code == 0
    via = [
        nccl_line(f"INFO Channel 00/0 : {a}[0] -> {1 - a}[0] [send] via NET/{network}/0/GDRDMA", a)
        for a in (0, 1)
    ]
    assert verdict_of([*networks(network, network), *via]).code == 0


@pytest.mark.parametrize("network", ["IB", "gIB", TCPX, "FasTrak"])
def test_one_rank_on_a_network_is_not_all_ranks(network: str) -> None:
    verdict = verdict_of(networks(network))
    assert verdict.code == 11
    assert verdict.headline.endswith("one rank was seen, and nothing says how many there are")
    assert verdict_of(networks(network, network, network)).code == 0


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

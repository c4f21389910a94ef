"""The verdict by networks, versions, families and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from lines_of_logs import BAD, DOUBTFUL, GOOD, NOTE, TCPX, nccl_line, networks, verdict_of, whats

from tcpx_mpi.doctor import judge

LOGS = Path(__file__).parents[2] / "fixtures" / "doctor"


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


def test_softtcpx_is_plain_sockets() -> None:
    verdict = verdict_of(networks(*["softtcpx_v7"] * 3))
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


def test_the_wrong_family_is_said_before_the_sockets_that_follow_from_it() -> None:
    (path,) = LOGS.glob("07-*.log")
    verdict = verdict_of(path.read_text())
    assert "FasTrak (A3 Mega), which does not read" in verdict.findings[0].text
    seen = verdict.findings[0].evidence
    assert seen is not None
    assert seen.line is not None
    assert seen.line.number == 5


@pytest.mark.parametrize(
    ("lines", "headline"),
    [
        (networks("Socket", "Socket", "Socket"), "off the fast path: Socket on 3 of 3 ranks"),
        (
            [*networks("Socket"), nccl_line("INFO comm 0x5 rank 0 nranks 4")],
            "off the fast path: Socket on 1 of 4 ranks (likely)",
        ),
        (
            [*networks("IB"), nccl_line("WARN Call to ibv_create_cq failed")],
            "off the fast path: IB on 1 of 1 ranks seen; h0 pid 100 [0]: failed before it had "
            "connected: a call of InfiniBand failed (likely)",
        ),
        (
            [*networks("IB"), nccl_line("WARN gpu_tx_reg_mr failed -5")],
            "off the fast path: IB on 1 of 1 ranks seen; h0 pid 100 [0]: the plugin's dma-buf call "
            "is one that this driver does not have: no GPU memory can be registered",
        ),
        (
            [*networks("IB", "IB"), nccl_line("INFO Connected all rings"),
             nccl_line("WARN Call to ibv_create_cq failed")],
            "on the fast path: IB on 2 of 2 ranks; later h0 pid 100 [0]: a call of InfiniBand "
            "failed (likely)",
        ),
    ],
)  # fmt: skip
def test_the_first_line_says_how_sure_its_findings_are(lines: list[str], headline: str) -> None:
    verdict = verdict_of(lines)
    assert verdict.headline == headline
    assert "(likely)" not in "".join(finding.text for finding in verdict.findings)


@pytest.mark.parametrize(
    "texts",
    [
        ["NET/Socket : Using [0]eth0:10.0.0.1<0>"],
        ["NET/Socket : Using [0]eth0:10.0.0.1<0>", "NET/Plugin : No plugin found (x.so)."],
        ["Bootstrap : Using eth0:10.0.0.1<0>", "NET/IB : No device found."],
        ["cudaDriverVersion 12010", "Plugin Path : /x.so", "NET/IB : No device found."],
    ],
)
def test_what_nccl_came_to_is_no_choice_before_its_end_or_where_it_says_one(
    texts: list[str],
) -> None:
    verdict = verdict_of([nccl_line(f"INFO {text}", rank) for rank in (0, 2) for text in texts])
    assert verdict.code == 11
    assert "no rank says" in verdict.headline


@pytest.mark.parametrize(("network", "code"), [("IB", 0), ("Socket", 9), ("Acme", 11)])
def test_the_choice_of_a_process_is_that_of_all_its_gpus(network: str, code: int) -> None:
    lines = [f"node-{n}:7:7 [0] NCCL INFO Using network {network}" for n in range(2)]
    for rank in range(8):
        head = f"node-{rank // 4}:7:9{rank} [{rank % 4}] NCCL INFO "
        lines += [f"{head}comm 0x5{rank} rank {rank} nranks 8 cudaDev {rank % 4} - Init COMPLETE"]
    verdict = verdict_of(lines)
    assert verdict.code == code
    assert f"{network} on 8 of 8 ranks" in verdict.headline
    other = "node-0:7:9 [1] NCCL INFO Using network Other"
    assert f"{network} on 5 of 8 ranks, Other on 1" in verdict_of([*lines, other]).headline


@pytest.mark.parametrize("network", ["Libfabric", "AWS Libfabric", "UCX", "Acme"])
@pytest.mark.parametrize("near", [True, False])
def test_the_connections_of_a_node_tell_for_its_ranks_without_one(network: str, near: bool) -> None:
    lines = networks(network, network, network, network)
    lines += [nccl_line(f"INFO comm 0x5 rank {rank} nranks 4", rank) for rank in range(4)]
    lines += [nccl_line("INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC", 1)] if near else []
    via = f"INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/{network}/0"
    half = [*lines, nccl_line(f"{via}/GDRDMA")]
    verdict = verdict_of(half)
    assert verdict.code == 11  # the other node has none
    assert "nothing says whether a connection is in GPU memory" in verdict.headline
    assert verdict_of([*half, nccl_line(f"{via}/GDRDMA", 2)]).code == 0
    staged = verdict_of([*lines, nccl_line(f"{via}/Shared"), nccl_line(f"{via}/Shared", 2)])
    assert staged.code == 9
    assert not whats(staged, DOUBTFUL)


@pytest.mark.parametrize("network", ["IB", "AWS Libfabric"])
def test_a_line_that_is_cut_or_wrapped_proves_nothing_by_what_it_has_not(network: str) -> None:
    whole = nccl_line(f"INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/{network}/12/GDRDMA")
    comm = nccl_line("INFO comm 0x5 rank 0 nranks 2")
    for cut in range(whole.index("/12") + 2, len(whole)):
        assert verdict_of([comm, whole[:cut]]).code == 11, whole[:cut]
    assert verdict_of([comm, whole[:-3], comm]).code == 11
    for cut in range(whole.index("NET"), len(whole)):
        head, rest = whole[:cut], whole[cut:]
        for wrapped in ([head, rest], [head, rest, comm]):
            verdict = verdict_of([comm, *wrapped])
            assert verdict.code == 11, wrapped
            assert "GPU memory" not in verdict.headline
    staged = whole.removesuffix("/GDRDMA")
    for behind in (f"{staged}/Shared", f"{staged} comm 0x7f nRanks 02"):
        assert verdict_of([comm, behind]).code == 9
    for after in (comm, "", "Epoch 1"):
        assert verdict_of([comm, staged, after]).code == 9
    assert verdict_of([staged.replace(network, "Socket")]).code == 9

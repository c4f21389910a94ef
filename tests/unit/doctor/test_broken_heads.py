"""Heads that two ranks broke by writing at once: no further ranks."""

from __future__ import annotations

import pytest
from lines_of_logs import nccl_line, verdict_of

HEADS = [f"node-{rank // 2}:{41000 + rank}:7 [{rank % 2}] NCCL INFO " for rank in range(4)]
VIA = "Channel 00/0 : {0}[0] -> {1}[0] [send] via NET/IB/0/GDRDMA"
#: What is left of the head of rank 3 ("node-1:41003:7").
BROKEN = ["1:41003:7", ":41003:7", "1003:7", "3node-1:41003:7", "node-0node-1:41003:7"]


def job(numbers: bool = True) -> list[str]:
    lines = [f"{head}Using network IB" for head in HEADS]
    if numbers:
        lines += [f"{head}comm 0x5 rank {n} nranks 4" for n, head in enumerate(HEADS)]
    return lines + [f"{head}{VIA.format(n, (n + 2) % 4)}" for n, head in enumerate(HEADS)]


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("head", BROKEN)
@pytest.mark.parametrize("text", ["Using network IB", VIA.format(3, 1), "Connected all rings"])
def test_a_head_that_is_the_tail_of_another_is_no_rank(numbers: bool, head: str, text: str) -> None:
    whole = job(numbers)
    for at in (0, 3, len(whole)):
        lines = [*whole[:at], f"{head} [1] NCCL INFO {text}", *whole[at:]]
        assert verdict_of(lines).headline == "on the fast path: IB on 4 of 4 ranks", at


def test_what_a_broken_head_says_is_of_its_rank() -> None:
    lines = [line for line in job() if not line.startswith(f"{HEADS[3]}Using")]
    lines = [line for line in lines if not line.startswith(f"{HEADS[3]}Chan")]
    assert "IB on 3 of 4 ranks" in verdict_of(lines).headline
    for head in BROKEN:
        told = verdict_of([*lines, f"{head} [1] NCCL INFO Using network Socket"])
        assert "IB on 3 of 4 ranks, Socket on 1" in told.headline
        assert "rank 3, node-1 pid 41003 [1]: sockets" in told.findings[0].text


def test_a_rank_of_no_number_is_none_where_all_have_theirs() -> None:
    for head in ("", "[1] ", "what:99:9 [1] "):
        lines = [*job(), f"{head}NCCL INFO Channel 00 : 3[1] -> 2[0] via P2P/IPC"]
        assert verdict_of(lines).headline == "on the fast path: IB on 4 of 4 ranks"


def test_groups_alone_are_as_many_ranks_as_are_there() -> None:
    lines = [f"{head}Using network IB" for head in HEADS]
    lines += [f"{head}comm 0x5 rank {n % 2} nranks 2" for n, head in enumerate(HEADS)]
    assert "IB on 4 of 4 ranks" in verdict_of(lines).headline


def test_a_name_within_another_is_a_rank_if_its_number_says_so() -> None:
    lines = [nccl_line("INFO comm 0x5 rank 0 nranks 4")]
    for host, number in (("node-1", 1), ("a-node-1", 2)):
        lines += [f"{host}:25:7 [0] NCCL INFO comm 0x5 rank {number} nranks 4"]
        lines += [f"{host}:25:7 [0] NCCL INFO Using network IB"]
    assert "IB on 2 of 4 ranks" in verdict_of(lines).headline

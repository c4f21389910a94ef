"""Invented logs of nccl-tests, in its formats: every figure is made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).parent / "data"
TABLE = (DATA / "nccl_tests_table.txt").read_text()
DOCUMENT = (DATA / "nccl_tests_document.json").read_text()

_TITLE = (
    "#\n"
    "#                                                              out-of-place                       in-place          \n"  # noqa: E501 (as printed)
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n"  # noqa: E501 (as printed)
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n"  # noqa: E501 (as printed)
)


def header(test: str, ranks: int = 4, least: int = 1024, most: int = 4096) -> str:
    """The lines above the titles, of `ranks` ranks on two hosts, sizes by a factor of 2."""
    lines = [
        "# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703",
        f"# Collective test starting: {test}",
        f"# nThread 1 nGpus 1 minBytes {least} maxBytes {most} step: 2(factor) "
        "warmup iters: 50 iters: 40 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        host = f"node-{2 * rank // ranks}"
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {7000 + rank:6d} on {host:>10s} "
            f"device {rank % 2:2d} [0000:{4 + rank % 2:02x}:00] NVIDIA H100 80GB HBM3"
        )
    return "\n".join(lines) + "\n" + _TITLE


def row(size: int, sides: Sequence[Sequence[str]], redop: str = "none", kind: str = "float") -> str:
    """A row; a side is time, algbw, busbw and #wrong, as texts."""
    texts = [f"  {time:>7}  {alg:>6}  {bus:>6}  {wrong:>6}" for time, alg, bus, wrong in sides]
    return f"{size:>12}  {size // 4:>12}  {kind:>8}  {redop:>6}  {-1:>6}" + "".join(texts) + "\n"


def footer(test: str, wrong: int = 0, bandwidth: str = "1.25") -> str:
    return (
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {bandwidth} \n#\n# Collective test concluded: {test}\n#\n"
    )


def alltoall() -> str:
    """In place it cannot be checked: N/A. NCCL talks in between."""
    return (
        header("alltoall_perf")
        + "node-0:7000:7000 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
        + "node-0:7000:7000 [0] NCCL INFO NCCL_SECRET_KEY set by environment to 1234.\n"
        + row(1024, [("20.25", "0.05", "0.04", "0"), ("19.50", "0.05", "0.04", "N/A")])
        + "node-1:7002:7010 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[1]\n"
        + row(2048, [("21.00", "0.10", "0.07", "0"), ("20.75", "0.10", "0.07", "N/A")])
        + row(4096, [("22.50", "0.18", "0.14", "0"), ("22.25", "0.18", "0.14", "N/A")])
        + footer("alltoall_perf", bandwidth="0.083")
    )


def sendrecv() -> str:
    """Wrong elements on both sides of the second row."""
    return (
        header("sendrecv_perf")
        + row(1024, [("9.50", "0.11", "0.11", "0"), ("9.25", "0.11", "0.11", "0")], "sum", "int8")
        + row(2048, [("9.75", "0.21", "0.21", "3"), ("9.80", "0.21", "0.21", "4")], "sum", "int8")
        + row(4096, [("1234567", "12.00", "12.00", "N/A"), ("N/A", "N/A", "N/A", "N/A")], "sum")
        + footer("sendrecv_perf", wrong=7)
    )


def per_iteration() -> str:
    """With -I each side has four columns more."""
    more = "    i_min    i_max    i_p99    i_cv%"
    titles = _TITLE.replace("#wrong  ", f"#wrong {more} ").replace("#wrong \n", f"#wrong {more} \n")
    sides = "".join(
        f"  {time}    2.50    2.50       0    98.00   120.00   119.00     5.50"
        for time in ("101.25", "102.50")
    )
    return (
        header("all_reduce_perf", most=1024).removesuffix(_TITLE)
        + titles
        + f"{1024:>12}  {256:>12}  {'float':>8}  {'sum':>6}  {-1:>6}{sides}\n"
        + footer("all_reduce_perf")
    )

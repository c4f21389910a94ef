"""Logs of NCCL, RCCL and plugins, 2019 to 2026, made of what sources print, with right verdicts.

`CASES` is the list. The words after a line's head are those of the sources that its function names;
hosts, numbers and what wraps the lines are invented.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from logs_made_of import (
    IB,
    IB_GDR,
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
from logs_of_networks import chosen, first_years, google, one_node, other_plugins, started_again


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
    yield Case(
        "2.24, a completion fails, and its connection was not logged",
        [job(dies(on(IB), "transport/net_ib.cc:2360", status, "transport/net.cc:1137 -> 6"))],
        0,
        ["IB on 2 of 2 ranks"],
        warns=["a connection broke"],
        never=["failed before"],
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
        ("a page's HTML", lambda _, line: html.escape(f"<p> {line}")),
        ("HTML in HTML", lambda _, line: html.escape(html.escape(f"> {line}"))),
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
    node = job(on(IB, IB_GDR), size=4, per_node=2).split("\nnode-1")[0]
    far = "\n".join(f"'x' & {line}" for line in node.split("\n") if " via " in line)
    entry = json.dumps({"log": html.escape(far), "note": "&quot;"})
    for name, text in (
        ("a page", html.escape(far)),
        ("a page twice", html.escape(html.escape(far))),
        ("an entry of a store in a page", html.escape(json.dumps({"log": far}))),
        ("a page in an entry of a store", entry),
        ("a page of a number", html.escape(far).replace("&#x27;", "&#39;").replace(" ", "&nbsp;")),
    ):
        yield Case(f"connections in {name}", [text], 11, ["IB on 2 of 4 ranks"])
    tagged = html.escape(each(far, lambda n, line: f"[1,{n + 5}]<stdout>:{line}"))
    yield Case("Open MPI's tags in a page", [tagged], 11, ["IB on 2 of 9 ranks"])
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
    via = "[receive] via NET/IB/0/GDRDMA"
    again = [rank.says(f"Channel 00/0 : 0[0] -> {rank.number}[0] {via}") for rank in ranks(16, 8)]
    yield Case("Ray repeats ranks of other lines", ["\n".join([*ray, *again])], 0,
               ["IB on 16 of 16 ranks"])  # fmt: skip
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
    yield Case("two hosts in one line", [glued], 11, [f"{TCPX} on 2 of 2 ranks"])
    printed = four.replace("\n", "\\n")
    for quote in ("'", '"'):
        text = f"stdout = {quote}{printed}{quote}"
        yield Case(f"printed as a value in {quote}", [text], 9, mixed, third)
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
    yield Case("two files, one name, no communicator", plain, 11, [f"{TCPX} on 2 of 2 ranks"])
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
    yield Case("a process before it has its GPU", [whole], 11, [f"{TCPX} on 4 of 4 ranks"])
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
        started_again,
        failures,
        versions,
        wrappers,
        what_is_seen,
    )
    for case in kind()
]

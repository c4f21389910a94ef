"""The seeds of every target: what honest peers send, and each of it damaged in one place.

The formats come from tests/softtcpx/wire.py, a second writing of softtcpx's wire.h.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "softtcpx"))  # for wire
from wire import (
    ANSWER,
    CHALLENGE,
    HELLO,
    NO_TOKEN,
    PROOF,
    answer,
    credit,
    greeting,
    header,
    proof,
    returned,
    token_of,
)
from wire import handle as handle_of

SECRET, ATTEMPT = b"s" * 16, b"c" * 16  # handshake.cc knows these
CHALLENGES = {number: bytes([ord("0") + number]) * 16 for number in range(9)}

TO_LISTENER, TO_CALLER, PROVED, HANDLE = range(4)  # the judges of handshake.cc
PIECES, CREDITS, RETURNS = range(3)  # those of messages.cc
PIECE, RAW, TEST, POST, CONSUME, CONTROL, SHUT = 0, 2, 3, 4, 5, 6, 7  # operations of receiver.cc
ON_DEVICE, SEGMENTS, RANDOM = 4, 1 << 3, 2 << 3  # kinds of its connection


def handle(port: int = 4711, sockets: int = 2, threads: int = 1) -> bytes:
    return handle_of(("127.0.0.1", port), SECRET, sockets, threads, flags=1)


def damaged(seed: bytes, *places: int) -> dict[str, bytes]:
    return {f"byte-{at}": seed[:at] + bytes([seed[at] ^ 1]) + seed[at + 1 :] for at in places}


def handshake() -> dict[str, bytes]:
    seeds = {}

    def add(
        name: str, judge: int, sockets: int, said: bytes, places: tuple[int, ...] = (),
        about: bytes = b"",
    ) -> None:  # fmt: skip
        for suffix, bytes_ in {"": said, **damaged(said, *places)}.items():
            seeds[f"{name}-{suffix}".rstrip("-")] = bytes([judge, sockets - 1]) + about + bytes_

    everywhere = (0, 8, 12, 13, 14, 15, 16, 32, 47, 63)
    hello, challenge = greeting(HELLO, 0, 2, ATTEMPT), greeting(CHALLENGE, 1, 2, ATTEMPT, b"n" * 16)
    add("control", TO_LISTENER, 2, hello, everywhere)
    add("data", TO_LISTENER, 8, greeting(HELLO, 8, 8, ATTEMPT))
    add("data-beyond", TO_LISTENER, 2, greeting(HELLO, 3, 2, ATTEMPT))
    add("no-hello", TO_LISTENER, 2, greeting(ANSWER, 0, 2, ATTEMPT))
    add("half", TO_LISTENER, 2, hello[:33])
    add("challenge", TO_CALLER, 2, challenge, everywhere, about=bytes([1]))
    add("challenge-for-another-socket", TO_CALLER, 2, challenge, about=bytes([2]))

    def prove(name: str, sockets: int, number: int, said: bytes, *places: int) -> None:
        add(name, PROVED, sockets, said, places, about=bytes([number]))

    where = handle()
    all_of_two = {number: CHALLENGES[number] for number in range(3)}
    answered = answer(where, ATTEMPT, all_of_two)
    prove("proof-control", 2, 0, proof(where, 0, ATTEMPT, CHALLENGES[0]), *everywhere)
    prove("proof-data", 8, 8, proof(handle(sockets=8), 8, ATTEMPT, CHALLENGES[8]))
    prove("proof-of-another-socket", 2, 1, proof(where, 2, ATTEMPT, CHALLENGES[2]))
    prove("proof-of-nothing", 2, 1, greeting(PROOF, 1, 2, ATTEMPT, NO_TOKEN))
    prove("answer", 2, 3, answered, *everywhere)
    prove("answer-of-eight", 8, 9, answer(handle(sockets=8), ATTEMPT, CHALLENGES))
    prove("answer-as-proof", 2, 0, greeting(PROOF, 0, 2, ATTEMPT, token_of(answered)))
    add("handle", HANDLE, 1, handle(), (0, 8, 19, 21, 120))
    add("handle-without-port", HANDLE, 1, handle(port=0))
    add("handle-of-17-sockets", HANDLE, 1, handle(sockets=17))
    add("handle-of-0-sockets", HANDLE, 1, handle(sockets=0))
    add("handle-of-17-threads", HANDLE, 1, handle(threads=17))
    return seeds


def messages() -> dict[str, bytes]:
    def pieces(room: int, *headers: bytes) -> bytes:
        return bytes([PIECES]) + struct.pack("<Q", room) + b"".join(headers)

    def credits(granted: int, sent: int, *said: bytes) -> bytes:
        return bytes([CREDITS]) + struct.pack("<QQ", granted, sent) + b"".join(said)

    def returns(sockets: int, before: int, sent: int, *said: bytes) -> bytes:
        return struct.pack("<BBQQ", RETURNS, sockets, before, sent) + b"".join(said)

    most = 2**64 - 1
    one = header(5, 1000, 0, 1000)
    return {
        "whole": pieces(1000, one),
        "in-three": pieces(1000, *(header(5, 900, at, 300) for at in (300, 0, 600))),
        "empty": pieces(0, header(0, 0, 0, 0)),
        "empty-piece": pieces(10, header(0, 10, 10, 0)),
        "empty-twice": pieces(10, header(0, 0, 0, 0), header(0, 0, 0, 0)),
        "too-large": pieces(999, one),
        "twice": pieces(1000, one, one),
        "two-totals": pieces(1000, header(5, 1000, 0, 10), header(5, 999, 10, 10)),
        "offset-far-behind-the-end": pieces(most, header(0, 100, most - 1, 100)),
        "end-wraps-around": pieces(most, header(0, most, most, 100)),
        "offset-behind-the-end": pieces(most, header(0, 100, 101, 1)),
        "one-too-long": pieces(100, header(0, 100, 1, 100)),
        "lent": pieces(1000, header(5, 1000, 0, 1000, 1)),
        "lent-and-more": pieces(1000, header(5, 1000, 0, 1000, 3)),
        "lent-and-empty": pieces(0, header(0, 0, 0, 0, 1)),
        "largest": pieces(most, header(most, most, most - 2**32 + 1, 2**32 - 1)),
        **{f"piece-{k}": pieces(1000, v) for k, v in damaged(one, 0, 4, 16, 24, 32, 63).items()},
        "credits": credits(0, 0, credit(1), credit(16)),
        "credit-too-high": credits(0, 0, credit(17)),
        "credit-again": credits(5, 0, credit(5)),
        "credit-taken-back": credits(5, 0, credit(4)),
        "credit-below-sent": credits(3, 9, credit(8)),
        "credit-near-the-end": credits(most - 1, most - 1, credit(most)),
        "credit-wraps-around": credits(0, most - 3, credit(5), credit(most)),
        "returns": returns(2, 0, 9, returned(0, 1), returned(1, 9)),
        "return-too-high": returns(2, 0, 9, returned(0, 10)),
        "return-again": returns(2, 5, 9, returned(0, 5)),
        "return-taken-back": returns(2, 5, 9, returned(0, 4)),
        "return-of-no-socket": returns(2, 0, 9, returned(2, 1)),
        "return-near-the-end": returns(1, most - 1, most, returned(0, most)),
        **{
            f"return-{k}": returns(1, 0, 1, v)
            for k, v in damaged(returned(0, 1), 0, 4, 8, 15).items()
        },
        **{f"credit-{k}": credits(0, 0, v) for k, v in damaged(credit(1), 0, 4, 8, 15).items()},
    }


def interfaces() -> dict[str, bytes]:
    names = "\n".join(["eth0", "eth10", "eth1", "*lo", "docker0", "ib0", "*lo2", ""])
    specs = ["", "eth", "=eth1", "=eth1,ib0", "^docker", "^=eth0", "lo", "=lo", "^", "=", "^=", ",",
             ",,eth,", "eth,=ib", "^^eth", "=^eth0", "eth1,eth", " eth"]  # fmt: skip
    return {f"list-{number:02}": f"{spec}\n{names}".encode() for number, spec in enumerate(specs)}


def receiver() -> dict[str, bytes]:
    def post(room: int) -> bytes:
        return struct.pack("<BH", POST, room)

    def piece(
        socket: int, seq: int, total: int, offset: int, length: int, missing: int = 0
    ) -> bytes:
        return struct.pack("<BBBHHHB", PIECE, socket, seq, total, offset, length, missing)

    def raw(socket: int, *said: bytes) -> bytes:
        return b"".join(bytes([RAW, socket, len(part)]) + part for part in said)

    test, consume = bytes([TEST]), bytes([CONSUME])
    message = header(0, 30, 0, 30) + bytes(30)
    many = b"".join(post(9) + piece(0, n, 9, 0, 9) + test + consume for n in range(20))
    three = (
        post(9000)
        + piece(0, 0, 9000, 0, 3000)
        + piece(1, 0, 9000, 6000, 3000)
        + piece(2, 0, 9000, 3000, 3000)
    )
    talk = {
        "one": post(100) + piece(0, 0, 100, 0, 100) + test,
        "large": post(60000) + piece(0, 0, 60000, 0, 60000) + test * 3,
        "empty": post(0) + post(5) + piece(0, 0, 0, 0, 0) + piece(0, 1, 0, 0, 0) + test * 2,
        "many": many,
        "early": piece(0, 1, 8, 0, 8) + post(8) + test + post(8) + test * 2,
        "never-posted": post(8) + piece(0, 200, 8, 0, 8) + test,
        "again": post(8)
        + piece(0, 0, 8, 0, 8)
        + test
        + consume
        + post(8)
        + piece(0, 0, 8, 0, 8)
        + test,
        "too-large": post(8) + piece(0, 0, 9, 0, 9) + test,
        "behind-the-end": post(50) + piece(0, 0, 50, 40, 20) + test,
        "overlapping": post(50) + piece(0, 0, 50, 0, 30) + piece(0, 0, 50, 20, 30) + test,
        "split-header": post(30)
        + raw(0, message[:10])
        + test
        + raw(0, message[10:70], message[70:])
        + test,
        "noise": post(30) + raw(0, bytes(range(200))) + test * 2,
        "zeros": post(30) + raw(0, bytes(64)) + test,
        "cut": post(100) + piece(0, 0, 100, 0, 100, 7) + bytes([SHUT, 0]) + test,
        "closed": post(100) + bytes([SHUT, 0]) + test,
        "control": post(100) + piece(0, 0, 100, 0, 100) + bytes([CONTROL, 3]) + b"abc" + test,
        "over-three-sockets": three + test * 2,
    }
    kinds = {"": 2, "-device": 2 | ON_DEVICE, "-segments": 2 | ON_DEVICE | SEGMENTS,
             "-random": 2 | ON_DEVICE | RANDOM}  # fmt: skip
    return {
        name + kind: bytes([byte]) + said
        for name, said in talk.items()
        for kind, byte in kinds.items()
    }


def nixl_stream() -> dict[str, bytes]:
    """A second writing of native/library/nixl/wire.h."""

    def text(said: bytes) -> bytes:
        return struct.pack("<I", len(said)) + said

    def frame(kind: int, body: bytes = b"", magic: int = 0x4C585854, version: int = 4) -> bytes:
        return struct.pack("<IHHQ", magic, version, kind, len(body)) + body

    def transfer(kind: int, flags: int, note: bytes, segments: list[int], more: bytes) -> bytes:
        table = b"".join(struct.pack("<3Q", 99, at, 7) for at in segments)
        count = struct.pack("<I", len(segments))
        return frame(kind, struct.pack("<QB", 5, flags) + text(note) + count + table + more)

    (challenge, hello, welcome, refuse, begun, up, write, read, grant, credit, cancel, done, data,
     note) = range(1, 15)  # fmt: skip
    terms = text(b"softtcpx") + struct.pack("<HQQQ", 2, 1 << 19, 1 << 15, 1 << 18)
    tokens = b"p" * 16 + b"a" * 16  # the proof, the attempt
    greeting = tokens + terms + b"e" * 16 + text(b"a") + text(b"b") + text(b"path")
    number = struct.pack("<Q", 5)
    info = text(b"TCPX-NIXL-2") + terms + b"t" * 16 + text(b"here") + struct.pack("<HH", 4711, 1)
    streams = {
        "challenge": frame(challenge, b"c" * 16),
        "hello": frame(hello, greeting),
        "welcome-and-up": frame(welcome, greeting) + frame(up),
        "begun": frame(begun),
        "refuse": frame(refuse, b"no"),
        "write": transfer(write, 6, b"note", [0, 7], b""),
        "write-with-bytes": transfer(write, 1, b"", [3], b"7 bytes"),
        "read": transfer(read, 2, b"", [1, 2, 3], b"") + frame(credit, number),
        "answers": frame(grant, number) + frame(credit, number) + frame(cancel, number),
        "done": frame(done, number + struct.pack("<i", -6) + text(b"why")),
        "data-and-note": frame(data, number + b"7 bytes") + frame(note, b"hello"),
        "other-version": frame(up, version=3),
        "other-magic": frame(up, magic=1),
        "cut": frame(note, b"hello")[:-1],
    }
    made = {name: b"\0" + said for name, said in streams.items()}
    made |= {
        f"hello-{name}": said
        for name, said in damaged(made["hello"], 1, 5, 7, 9, 16, 17, 49, 53, 61, 63, 71).items()
    }
    made |= {
        f"write-{name}": said
        for name, said in damaged(made["write"], 24, 25, 26, 33, 34, 37, 60).items()
    }
    made["info"] = b"\1" + info + text(b"10.0.0.1")
    made["region"] = b"\2" + text(b"TCPX-MEM-1") + struct.pack("<QQQI", 7, 4096, 100, 0)
    return made


TARGETS = {
    each.__name__: each() for each in (handshake, messages, interfaces, receiver, nixl_stream)
}


def write_seeds(target: str, folder: Path) -> None:
    """Make a folder that has the seeds of a target, a file each, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, seed in TARGETS[target].items():
        (folder / name).write_bytes(seed)

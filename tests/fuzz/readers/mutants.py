"""Mutants of what people give to read: of bytes, of text, of JSON."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: What stands where a number or a text was.
NUMBERS = (
    "-1", "0", "1", "2", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "1e999", "nan", "-inf", "1" * 4301, "9" * 400, "0x" + "f" * 5000, "1.5", "1_000", "\u0663",
    "", "true", "abc", "4294967296", "1000000000000", "65536", "1e18", "-0", "00", "0-65535",
)  # fmt: skip
TEXTS = (
    "", "\x1bc\x1b]0;t\x07", "\x9b2J", "\u202e", "a" * 100_000, " " * 20_000, "a b " * 5_000,
    "[" * 3_000, '{"a":' * 3_000, "0-65535," * 3_000, "../" * 1_000, "/.." * 2_000, "\x00",
    "\ufffe", "a." * 4_000, "a=" * 3_000, "a:" * 3_000, "Rank 1 " * 2_000,
    "# nThread 1 nGpus 1 " * 500,
    "$(touch X)", "\r" * 500, "x " * 24 + "# nThread 1 nGpus 1", "1 1 int " * 2_000, "'''", '"""',
)  # fmt: skip
#: Values of JSON, of every type.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**62, 2**63, 2**64, -(2**63), 10**30, 1.5, 1e308,
    float("nan"), float("inf"), "", "1", "abc", "\x1bc", "a" * 70_000, [], {}, [[]], [1] * 1000,
    {"a": 1}, [[["a"]]], "0-65535", 65536, 1_000_000_000, "/../..", ["x", "<i8", 2**40],
)  # fmt: skip


def bytes_of(seed: bytes, random_: random.Random) -> bytes:
    """Some bytes changed, taken out, put in, repeated, or the end cut off."""
    found = bytearray(seed)
    for _ in range(random_.choice((1, 1, 1, 2, 4, 16))):
        at = random_.randrange(len(found) + 1)
        length = random_.choice((1, 1, 2, 4, 8, 64, 1024))
        match random_.randrange(6):
            case 0:
                found[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                del found[at : at + length]
            case 2:
                found[at:at] = random_.randbytes(length)
            case 3:
                found[at:at] = found[at : at + length] * random_.choice((1, 2, 50))
            case 4:
                number = random_.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1, 2**62, 2**64 - 1))
                wide = random_.choice((4, 8))
                found[at : at + wide] = (number % 2 ** (8 * wide)).to_bytes(wide, "little")
            case 5 if random_.random() < 0.3:
                del found[at:]
    return bytes(found)


def text_of(seed: str, random_: random.Random) -> bytes:
    """Words, lines and letters of a text changed; sometimes its bytes."""
    if random_.random() < 0.2:
        return bytes_of(seed.encode(), random_)
    for _ in range(random_.choice((1, 1, 2, 3))):
        lines = seed.split("\n")
        at = random_.randrange(len(lines))
        match random_.randrange(7):
            case 0 | 1:
                words = lines[at].split(" ")
                words[random_.randrange(len(words))] = random_.choice(NUMBERS)
                lines[at] = " ".join(words)
            case 2:
                letter = random_.randrange(len(lines[at]) + 1)
                text = random_.choice(TEXTS)
                lines[at] = lines[at][:letter] + text + lines[at][letter:]
            case 3:
                lines[at : at + 1] = [lines[at]] * random_.choice((0, 2, 1000))
            case 4:
                other = random_.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 5:
                lines[at] = random_.choice(TEXTS)
            case 6:
                lines[at] = lines[at][: random_.randrange(len(lines[at]) + 1)]
        seed = "\n".join(lines)[: 1 << 17]
    return seed.encode("utf-8", "replace")


def value_of(seed: Any, random_: random.Random) -> Any:
    """A document of which a part is another, gone, doubled or deeper."""
    found = json.loads(json.dumps(seed))
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        places = list(_places(found))
        if not places:
            break
        parent, key = random_.choice(places)
        match random_.randrange(7):
            case 0 | 1 | 2:
                parent[key] = copy.deepcopy(random_.choice(VALUES))
            case 3:
                del parent[key]
            case 4 if isinstance(parent, list):
                parent[key:key] = [parent[key]] * random_.choice((1, 3, 200))
            case 4:
                parent[random_.choice(TEXTS)[:3000]] = parent[key]
            case 5:
                other, its = random_.choice(places)
                try:
                    parent[key] = json.loads(json.dumps(other[its]))
                except (LookupError, TypeError):
                    parent[key] = None
            case 6:
                parent[key] = [parent[key]]
    return found


def _places(value: Any) -> Any:
    """Every (container, key) within a document."""
    if not isinstance(value, (dict, list)):
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(inner):
        yield value, key
        yield from _places(each)

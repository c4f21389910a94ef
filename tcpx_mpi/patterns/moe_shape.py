"""Shapes of mixture-of-experts layers, and classes of skew: what `--moe` and `--skew` may say.

A shape is a model's by name, or numbers over one: `deepseek-v3,batch=128`. NAME-small has a 32nd
of its tokens, which 4 ranks of a machine with 24 GiB have room for with any skew.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.slips import did_you_mean

#: Classes of skew, with what each means in a few words.
SKEWS = {
    "balanced": "every expert is as likely",
    "zipf": "the expert in place i of an order that is drawn once is 1/i as likely as the first",
    "hot-expert": "one expert is chosen by every token",
    "hot-rank": "all tokens go to the experts of one rank",
    "bursts": "balanced, but in 1 of 8 iterations one rank is hot",
    "rotating": "the hot rank is another one in each iteration",
    "ragged": "balanced, with another number of tokens on each rank",
    "idle": "half of the ranks have experts that no token goes to",
}
_SMALL = "-small"
#: Of a rank; drawing them takes time, and a file of results has other things to tell by then.
MOST_TOKENS = 1 << 20
_MOST = {"batch": MOST_TOKENS, "hidden": 1 << 20, "experts": 1 << 16, "topk": 1 << 10}
_WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class Shape:
    """One layer: tokens of a rank (`batch`), elements of a token, experts, how many of them a token
    goes to, and bytes of an element on the way there (`dispatch`) and back (`combine`)."""

    batch: int
    hidden: int
    experts: int
    topk: int
    dispatch: int = 2
    combine: int = 2

    @property
    def token_bytes(self) -> int:
        """The bytes of a token on its way to an expert."""
        return self.hidden * self.dispatch

    @property
    def answer_bytes(self) -> int:
        """The bytes of the answer to a token."""
        return self.hidden * self.combine

    def text(self) -> str:
        names = ", ".join(f"{key} {value}" for key, value in dataclasses.asdict(self).items())
        return f"{names} (bytes of an element)"


#: Numbers of hidden, experts and top-k: each model's own configuration file (config.json on
#: huggingface.co, read in November 2026); tokens and widths of deepseek-v3: the README of DeepEP,
#: "pretraining setting"; of the others 4,096 tokens in bfloat16 both ways, as they are trained.
PRESETS = {
    "deepseek-v3": Shape(4096, 7168, 256, 8, dispatch=1),
    "mixtral": Shape(4096, 4096, 8, 2),
    "qwen3-235b": Shape(4096, 4096, 128, 8),
    "gpt-oss-120b": Shape(4096, 2880, 128, 4),
}
DEFAULT = "deepseek-v3"


def shape_of(text: str) -> Shape:
    """The shape that `--moe` names. Raises UsageError, one line."""
    words = text.split(",")
    name = words[0].strip().lower() if "=" not in words[0] else DEFAULT
    shape = PRESETS.get(name.removesuffix(_SMALL))
    if shape is None:
        known = ", ".join(PRESETS)
        raise UsageError(
            f"--moe ({name[:40]}) is unknown{did_you_mean(name, PRESETS)}: use one of {known}, "
            f"each also with {_SMALL} behind it, or numbers like batch=128,hidden=4096"
        )
    if name.endswith(_SMALL):
        shape = dataclasses.replace(shape, batch=shape.batch // 32)
    for word in words if "=" in words[0] else words[1:]:
        shape = dataclasses.replace(shape, **_number_of(word))
    if shape.topk > shape.experts:
        raise UsageError(
            f"--moe: topk ({shape.topk}) is more than the experts there are ({shape.experts}): a "
            "token goes to an expert once; use a smaller topk"
        )
    return shape


def _number_of(word: str) -> dict[str, int]:
    key, _, text = (part.strip() for part in word.partition("="))
    names = [each.name for each in dataclasses.fields(Shape)]
    if key not in names:
        raise UsageError(
            f"--moe ({word[:40]}): {key[:40] or 'an empty word'} is none of {', '.join(names)}"
            f"{did_you_mean(key, names)}; write NAME=NUMBER"
        )
    most = _MOST.get(key)
    limits = f"a number from 1 to {most}" if most else f"one of {', '.join(map(str, _WIDTHS))}"
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not (1 <= number <= most if most else number in _WIDTHS):
        raise UsageError(f"--moe: {key} ({text[:40]}) cannot be; use {limits}")
    return {key: number}


def refuse_ranks(shape: Shape, world: int) -> str | None:
    """Why so many ranks cannot share the experts; None: they can."""
    if shape.experts % world == 0:
        return None
    fits = [ranks for ranks in range(2, shape.experts + 1) if shape.experts % ranks == 0]
    near = sorted(fits, key=lambda ranks: abs(ranks - world))[:2]
    counts = " or ".join(map(str, sorted(near)))
    return (
        f"--moe: {world} ranks do not divide {shape.experts} experts; start {counts} ranks, or "
        "give experts=N, a multiple of the ranks"
    )

"""What an agent asks for: blocks in slots, by a size or by the shape of a KV cache. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.units import MAX_BYTES, counted, format_size

#: Descriptors of a request: NIXL's Python makes a tuple of each.
MOST_BLOCKS = 1 << 20
#: Of a number of `--kv`.
_MOST_NUMBER = 1 << 24
#: Slots begin on pages.
_PAGE_BYTES = 4096
_SMALL = "-small"


@dataclass(frozen=True)
class Request:
    """One request: so many blocks of so many bytes, each `stride_bytes` behind the one before."""

    operation: str
    blocks: int
    block_bytes: int
    stride_bytes: int

    @property
    def extent_bytes(self) -> int:
        return (self.blocks - 1) * self.stride_bytes + self.block_bytes

    @property
    def payload_bytes(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def slot_bytes(self) -> int:
        """The distance from one request's memory to the next one's."""
        return -(-self.extent_bytes // _PAGE_BYTES) * _PAGE_BYTES


@dataclass(frozen=True)
class KvShape:
    """The KV cache of a prompt: for each layer `parts` (keys, values) of each block of tokens."""

    layers: int
    heads: int
    #: Elements of a head.
    dim: int
    #: Tokens of a block, and of the prompt.
    block: int
    tokens: int
    #: 2: keys and values; 1: one latent vector for both.
    parts: int = 2
    element_bytes: int = 2

    @property
    def block_bytes(self) -> int:
        return self.block * self.heads * self.dim * self.element_bytes

    @property
    def blocks(self) -> int:
        return self.layers * self.parts * -(-self.tokens // self.block)

    def text(self) -> str:
        what = "keys and values" if self.parts == 2 else "one latent vector a token"
        return (
            f"{counted(self.layers, 'layer')}, {counted(self.heads, 'head')} of {self.dim}, "
            f"{what}, {self.tokens} tokens in blocks of {self.block}: "
            f"{counted(self.blocks, 'descriptor')} of {format_size(self.block_bytes)}"
        )


#: Layers, key-value heads and their length: each model's own configuration file (config.json on
#: huggingface.co, read in November 2026); of deepseek-v3 its kv_lora_rank 512 and
#: qk_rope_head_dim 64 are cached together. In bfloat16, blocks of 16 tokens (vLLM's default; 64
#: for a latent cache), 4,096 tokens, of all heads: divide heads by the ranks that share them.
PRESETS = {
    "llama-3.1-8b": KvShape(32, 8, 128, 16, 4096),
    "llama-3.1-70b": KvShape(80, 8, 128, 16, 4096),
    "mixtral-8x7b": KvShape(32, 8, 128, 16, 4096),
    "qwen3-235b-a22b": KvShape(94, 4, 128, 16, 4096),
    "deepseek-v3": KvShape(61, 1, 576, 64, 4096, parts=1),
}


def kv_shape(text: str) -> KvShape:
    """The shape that `--kv` names. Raises UsageError, one line."""
    name = text.strip().lower()
    if preset := PRESETS.get(name.removesuffix(_SMALL)):
        small = name.endswith(_SMALL)
        return dataclasses.replace(preset, tokens=preset.tokens // 32) if small else preset
    words = [word.strip() for word in text.split(",")]
    names = ("layers", "heads", "dim", "block", "tokens")
    if len(words) != len(names):
        known = ", ".join(PRESETS)
        raise UsageError(
            f"--kv ({text[:60]}) is neither {','.join(names)} nor a preset"
            f"{did_you_mean(name, PRESETS)}: give 5 numbers, or one of {known}, each also with "
            f"{_SMALL} behind it"
        )
    numbers = {}
    for key, word in zip(names, words, strict=True):
        number = int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else 0
        if not 1 <= number <= _MOST_NUMBER:
            raise UsageError(
                f"--kv: {key} ({word[:40]}) cannot be; use a number from 1 to {_MOST_NUMBER}"
            )
        numbers[key] = number
    return KvShape(**numbers)


def request_of_kv(operation: str, shape: KvShape) -> Request:
    """The request of all blocks of a cache, with a gap behind each: a paged cache has them
    anywhere. Raises UsageError."""
    return _checked("--kv", operation, shape.blocks, shape.block_bytes)


def request_of_size(operation: str, size_bytes: int, blocks: int) -> Request:
    """The request of so many blocks of a part of the size each. Raises UsageError."""
    if size_bytes < blocks:
        raise UsageError(f"--size ({size_bytes}) is less than a byte for --descriptors {blocks}")
    return _checked("--size", operation, blocks, size_bytes // blocks)


def _checked(option: str, operation: str, blocks: int, block_bytes: int) -> Request:
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"{option}: {blocks} descriptors a request are more than {MOST_BLOCKS}: use larger "
            "blocks, or fewer"
        )
    request = Request(operation, blocks, block_bytes, block_bytes * (1 if blocks == 1 else 2))
    if request.slot_bytes > MAX_BYTES:
        raise UsageError(
            f"{option}: a request of {counted(blocks, 'descriptor')} of {block_bytes} bytes is "
            f"too large: the limit is {MAX_BYTES} bytes"
        )
    return request

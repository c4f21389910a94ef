"""Mutants that know the form: HDF5 by its parts, journals with checksums put right."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mutants import VALUES, bytes_of, value_of

PREFIX = struct.Struct("<4sIQI")
ATTRIBUTES: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63), np.uint64(2**64 - 1), 1.5, float("nan"),
    float("inf"), "", "abc", "\x1bc\x9b", "a" * 60_000, True, np.zeros(3), np.zeros((0,)),
    h5py.Empty("f"), b"\xff\xfe", np.int8(-1), 65536, 65537, 10**12,
)  # fmt: skip


def hdf5_of(seed: Path, target: Path, random_: random.Random) -> None:
    """The file of a run of which some parts are others."""
    if random_.random() < 0.3:
        target.write_bytes(bytes_of(seed.read_bytes(), random_))
        return
    shutil.copyfile(seed, target)
    with h5py.File(target, "r+") as file:
        for _ in range(random_.choice((1, 1, 1, 2, 3))):
            names: list[str] = []
            file.visit(names.append)
            try:
                _change(file, random_.choice([*names, "/"]), random_)
            except (ValueError, TypeError, KeyError, OSError, RuntimeError, OverflowError):
                continue  # HDF5 itself refuses it


def _change(file: Any, name: str, random_: random.Random) -> None:
    part = file[name]
    kind = random_.randrange(10)
    if part.attrs and (kind < 4 or name == "/"):
        attribute = random_.choice(list(part.attrs))
        if random_.random() < 0.15:
            del part.attrs[attribute]
        else:
            part.attrs[attribute] = random_.choice(ATTRIBUTES)
        return
    if name == "/":
        return
    parent, _, last = name.rpartition("/")
    inside = file[parent or "/"]
    if kind == 4:
        del inside[last]
        return
    if kind == 5:
        inside[f"{last}_again"] = random_.choice((part, h5py.SoftLink(f"/{name}"), inside))
        return
    if kind == 6:
        other = random_.choice(list(inside))
        del inside[last]
        inside[last] = random_.choice(
            (h5py.SoftLink("/"), h5py.ExternalLink("/dev/zero", "/"), h5py.SoftLink(other), file)
        )
        return
    if not isinstance(part, h5py.Dataset):
        return
    if kind == 7 and part.dtype.names and part.size:
        values = part[()]
        column = random_.choice(part.dtype.names)
        value = random_.choice((0, -1, 2**31 - 1, 65536, 2**62))
        if not part.dtype[column].hasobject:
            values[random_.randrange(values.size)][column] = value
        part[...] = values
        return
    dtype, shape = part.dtype, part.shape
    del inside[last]
    large = random_.choice((2**20, 2**33, 2**40))
    match random_.randrange(7):
        case 0:  # never written: much of it, and nothing in the file
            inside.create_dataset(last, (large, *shape[1:]), dtype)
        case 1:
            inside.create_dataset(last, (large, *shape[1:]), dtype, chunks=True)
        case 2:  # packs to little
            values = np.zeros((random_.choice((2**16, 2**22)),), "<i8")
            inside.create_dataset(last, data=values, compression="gzip", compression_opts=1)
        case 3:
            shape = tuple(min(each, 1 << 16) for each in shape)  # another change's may be large
            inside.create_dataset(last, data=np.full(shape, random_.choice((0, -1, 2**62)), "<i8"))
        case 4:
            kinds: Any = ("<f8", "i1", "S3", h5py.string_dtype(), [("a", "<i8")], "<u8", "?")
            inside.create_dataset(last, shape or (1,), random_.choice(kinds))
        case 5:
            inside.create_dataset(last, tuple(reversed(shape)) or (2,), dtype)
        case 6:
            place = [("/etc/passwd", 0, 1 << 20)]
            inside.create_dataset(last, (1 << 17,), "<i8", external=place)


def records_of(journal: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """The header and the data of each record."""
    found, at = [], 0
    while at < len(journal):
        _, text, data, _ = PREFIX.unpack_from(journal, at)
        body = journal[at + PREFIX.size :][: text + data]
        found.append((json.loads(body[:text]), body[text:]))
        at += PREFIX.size + text + data
    return found


def journal_of(seed: bytes, random_: random.Random) -> bytes:
    """A journal of which some fields are others, or records gone, doubled or elsewhere; the
    checksums are right."""
    if random_.random() < 0.1:
        return bytes_of(seed, random_)
    records = records_of(seed)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        at = random_.randrange(len(records))
        header, data = records[at]
        match random_.randrange(8):
            case 0 | 1 | 2 | 3:
                records[at] = (value_of(header, random_), data)
            case 4:
                records[at] = (header, bytes_of(data, random_))
            case 5 if len(records) > 1:
                del records[at]
            case 6:
                records.insert(random_.randrange(len(records) + 1), records[at])
            case 7:
                records[at] = (random_.choice(VALUES), data)
    return b"".join(_record(header, data) for header, data in records)


def _record(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    checksum = zlib.crc32(data, zlib.crc32(text))
    return PREFIX.pack(b"TJR1", len(text), len(data), checksum) + text + data

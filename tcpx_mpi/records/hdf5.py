"""Looks into an HDF5 file by the library's own calls.

A row is some twenty objects and as many attributes. h5py's own way to one of them takes a dozen
objects of Python more, and makes the type of a table anew each time: 6 ms a row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from tcpx_mpi.arrays import np

#: Of a text in a file: its length, the address of a heap, its index there; and in memory.
TEXT_BYTES, POINTER_BYTES = 16, 8
#: As many types as a file of ours has, and more.
_MOST_TYPES = 256


class Kind(NamedTuple):
    """A type of values in a file."""

    dtype: np.dtype[Any]
    #: For HDF5: the same in memory.
    memory: Any
    #: Whether an array of this type has the bytes that are in the file.
    lies_so: bool
    #: Offsets in the file of the texts of a value, or of a table's row.
    texts: tuple[int, ...]


def kind_of(values: Any) -> Kind:
    """The kind of a dataset or an attribute."""
    return _kind_of(values.get_type().encode())


@functools.lru_cache(_MOST_TYPES)
def _kind_of(encoded: bytes) -> Kind:
    import h5py

    stored = h5py.h5t.decode(encoded)
    dtype = stored.dtype
    memory = h5py.h5t.py_create(dtype)
    lies_so = not dtype.hasobject and memory.equal(stored)
    return Kind(dtype, memory, lies_so, tuple(_places_of_texts(stored)))


def dataset_of(group: Any, name: str) -> Any:
    """A dataset of a group. Raises KeyError if there is none, ValueError for one of nothing."""
    import h5py

    found = h5py.h5d.open(group.id, name.encode())
    if not found.shape and found.get_space().get_simple_extent_type() != h5py.h5s.SCALAR:
        raise ValueError(f"{name} has no values")
    return found


def group_of(group: Any, name: str) -> Any:
    """A group within a group. Raises KeyError if there is none."""
    import h5py

    return h5py.Group(h5py.h5g.open(group.id, name.encode()))


def has(group: Any, name: str) -> bool:
    """Whether something in a group has that name."""
    return bool(group.id.links.exists(name.encode()))


def names(group: Any) -> list[str]:
    """The names in a group."""
    return [name.decode() for name in group.id]


def attribute(group: Any, name: str) -> Any:
    """A value as numpy's type, or a text. Raises KeyError if there is none."""
    import h5py

    found = h5py.h5a.open(group.id, name.encode())
    kind = kind_of(found)
    whole = found.get_storage_size() == (TEXT_BYTES if kind.texts else kind.dtype.itemsize)
    if not whole or kind.dtype.names or (kind.dtype.hasobject and not kind.texts):
        return group.attrs[name]
    value = np.empty((), kind.dtype)
    found.read(value, mtype=kind.memory)
    one: Any = value[()]
    return one.decode("utf-8", "surrogateescape") if kind.texts else one


def has_attribute(group: Any, name: str) -> bool:
    """Whether there is one of that name."""
    import h5py

    return bool(h5py.h5a.exists(group.id, name.encode()))


def groups(parent: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The groups in a group, in the order of their names; none if that is not there.

    Raises ValueError for what is no group of this file: a link to another, one that another place
    has too, which makes few bytes many rows, or one within itself.
    """
    import h5py

    if not has(parent, name):
        return
    inside = parent[name].id
    for inner in sorted(inside):
        text = inner.decode()
        hard = inside.links.get_info(inner).type == h5py.h5l.TYPE_HARD
        group = h5py.h5o.open(inside, inner) if hard else None
        if not isinstance(group, h5py.h5g.GroupID):
            raise ValueError(f"{name}/{text} is no group of it")
        if h5py.h5o.get_info(group).rc != 1:
            raise ValueError(f"{name}/{text} is there twice")
        yield text, h5py.Group(group)


def _places_of_texts(value: Any) -> list[int]:
    """None of a type that has other objects, too."""
    if not value.dtype.names:
        return [0] if _is_text(value) else []
    columns = [value.get_member_type(index) for index in range(value.get_nmembers())]
    if any(column.dtype.hasobject and not _is_text(column) for column in columns):
        return []
    offsets = [
        value.get_member_offset(index) for index, column in enumerate(columns) if _is_text(column)
    ]
    # HDF5 tells offsets in memory, where a text is a pointer.
    return [
        offset + before * (TEXT_BYTES - POINTER_BYTES)
        for before, offset in enumerate(sorted(offsets))
    ]


def _is_text(stored: Any) -> bool:
    return hasattr(stored, "is_variable_str") and bool(stored.is_variable_str())

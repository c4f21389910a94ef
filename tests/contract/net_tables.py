"""The tables and properties of net plugins in each version, as ctypes has structures."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_int, _void_p, _char_p, _size_t = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_void_pp, _int_p = ctypes.POINTER(_void_p), ctypes.POINTER(_int)
_size_p = ctypes.POINTER(_size_t)
_context = _void_p
OLDEST, NEWEST = 6, 12
#: Bytes of a table and of the properties, by version.
TABLE_BYTES = {6: 136, 7: 152, 8: 152, 9: 160, 10: 160, 11: 176, 12: 176}
PROPERTIES_BYTES = {6: 48, 7: 56, 8: 64, 9: 104, 10: 104, 11: 112, 12: 128}


def _call(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(_int, *arguments)


@functools.cache
def properties_of(abi: int) -> Any:
    """ncclNetProperties_vN_t."""
    fields: list[tuple[str, Any]] = [
        ("name", _char_p), ("pci_path", _char_p), ("guid", ctypes.c_uint64), ("ptr_support", _int),
        *([("reg_is_global", _int)] if abi >= 8 else []),
        *([("force_flush", _int)] if abi >= 9 else []),
        ("speed_mbps", _int), ("port", _int), ("latency_us", ctypes.c_float), ("max_comms", _int),
        ("max_recvs", _int),
        *([("net_device_type", _int), ("net_device_version", _int)] if abi >= 7 else []),
    ]  # fmt: skip
    if abi >= 9:
        devices = 8 if abi >= 12 else 4
        fields += [("ndevs", _int), ("devs", _int * devices)]
        fields += [("max_p2p_bytes", _size_t), ("max_coll_bytes", _size_t)]
    fields += [("max_multi_request", _int)] if abi >= 11 else []
    fields += [("rail_id", ctypes.c_int16), ("plane_id", ctypes.c_int16)] if abi >= 12 else []
    made = type(f"PropertiesV{abi}", (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(made) == PROPERTIES_BYTES[abi]
    return made


@functools.cache
def table_of(abi: int) -> Any:
    """ncclNet_vN_t."""
    context = [_context] if abi >= 11 else []
    config = [_void_p] if abi == 10 else []
    device = [_void_pp] if abi >= 7 else []
    region = _size_t if abi >= 8 else _int
    size, sizes = (_size_t, _size_p) if abi >= 9 else (_int, _int_p)
    phandle, phandles = ([_void_p], [_void_pp]) if abi >= 10 else ([], [])
    if abi >= 11:
        init = _call(_void_pp, ctypes.c_uint64, _void_p, _void_p, _void_p)
    else:
        init = _call(_void_p, _void_p) if abi == 10 else _call(_void_p)
    fields: list[tuple[str, Any]] = [
        ("name", _char_p),
        ("init", init),
        ("devices", _call(_int_p)),
        ("get_properties", _call(_int, ctypes.POINTER(properties_of(abi)))),
        ("listen", _call(*context, _int, _void_p, _void_pp)),
        ("connect", _call(*context, _int, *config, _void_p, _void_pp, *device)),
        ("accept", _call(_void_p, _void_pp, *device)),
        ("reg_mr", _call(_void_p, _void_p, region, _int, _void_pp)),
        ("reg_mr_dma_buf", _void_p),
        ("dereg_mr", _call(_void_p, _void_p)),
        ("isend", _call(_void_p, _void_p, size, _int, _void_p, *phandle, _void_pp)),
        ("irecv", _call(_void_p, _int, _void_pp, sizes, _int_p, _void_pp, *phandles, _void_pp)),
        ("iflush", _call(_void_p, _int, _void_pp, _int_p, _void_pp, _void_pp)),
        ("test", _call(_void_p, _int_p, _int_p)),
        ("close_send", _call(_void_p)),
        ("close_recv", _call(_void_p)),
        ("close_listen", _call(_void_p)),
    ]
    if abi >= 7:
        fields += [("get_device_mr", _call(_void_p, _void_p, _void_pp)),
                   ("irecv_consumed", _call(_void_p, _int, _void_p))]  # fmt: skip
    fields += [("make_v_device", _void_p)] if abi >= 9 else []
    fields += [("finalize", _call(_context)), ("set_net_attr", _void_p)] if abi >= 11 else []
    made = type(f"TableV{abi}", (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(made) == TABLE_BYTES[abi]
    return made

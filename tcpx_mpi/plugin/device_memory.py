"""Memory kinds of a plugin's device, and who puts received data in place, by NCCL's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcpx_mpi import _native

#: Device types by their number in NCCL 2.31: who puts what is received where it belongs.
_DEVICE_TYPES = ("HOST", "UNPACK", "GIN proxy", "GIN GDAKI", "GIN GPI", "EFA GDA")


def memory_of(properties: _native.DeviceProperties) -> dict[str, Any]:
    """The kinds of memory that a device offers, by NCCL's names."""
    support, kind = properties["ptr_support"], properties["device_type"]
    known = 0 <= kind < len(_DEVICE_TYPES)
    return {
        "host": bool(support & _native.PTR_HOST),
        "cuda": bool(support & _native.PTR_CUDA),
        "dma_buf": bool(support & _native.PTR_DMABUF),
        "device_type": _DEVICE_TYPES[kind] if known else str(kind),
        "force_flush": properties["force_flush"],
        "reg_is_global": properties["reg_is_global"],
    }


def memory_text(memory: Mapping[str, Any]) -> str:
    """The same in words: `host, CUDA, dma-buf; device type HOST, forceFlush 1, regIsGlobal 0`."""
    names = {"host": "host", "cuda": "CUDA", "dma_buf": "dma-buf"}
    kinds = ", ".join(name for key, name in names.items() if memory[key]) or "no memory"
    return (
        f"{kinds}; device type {memory['device_type']}, forceFlush {memory['force_flush']}, "
        f"regIsGlobal {memory['reg_is_global']}"
    )

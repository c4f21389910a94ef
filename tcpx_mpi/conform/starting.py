"""Clauses of a plugin's start: its table, init, devices and properties."""

from __future__ import annotations

import ctypes
from typing import Any

from tcpx_mpi.conform.bench import Bench
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.outcome import Broken, NotOffered
from tcpx_mpi.conform.properties import decode, implausible, unwritten

#: Bytes that no field of any meaning, nor an address, has in common.
_FILLS = (0xAA, 0x55, 0x3C)


def _table(bench: Bench) -> str:
    table = bench.load()
    if table.name in ("", "(unnamed)"):
        raise Broken("its table has no name")
    if "init" in table.missing():
        raise Broken("its table has no init")
    return f"{table.name}, a table of v{table.abi}"


def _init(bench: Bench) -> str:
    table = bench.load()
    name, before = table.name, table.missing()
    bench.good("init")
    if missing := table.missing():
        raise Broken(f"after init its table has no {', '.join(missing)}")
    if table.name != name:
        raise Broken(f"its name was {name} before init, and is {table.name} after it")
    return "its table is filled by init" if before else "its table is whole"


def _devices(bench: Bench) -> str:
    bench.load()
    bench.good("init")
    count = bench.good("devices")
    if count < 1:
        raise Broken(f"it has {count} devices: see what its log says of interfaces")
    if again := bench.good("devices") - count:
        raise Broken(f"asked again it has {count + again} devices, not {count}")
    return "at least one device"


def _every_device(bench: Bench, fill: int) -> list[bytes]:
    found = []
    for device in range(bench.good("devices")):
        bench.stage = f"of device {device}"
        found.append(bench.good("raw_properties", device, fill))
    bench.stage = ""
    return found


def _started(bench: Bench) -> Bench:
    bench.load()
    bench.good("init")
    return bench


def _written(bench: Bench) -> str:
    _started(bench)
    every = [_every_device(bench, fill) for fill in _FILLS]
    for writings in zip(*every, strict=True):
        if names := unwritten(bench.abi, dict(zip(_FILLS, writings, strict=True))):
            raise Broken(f"not written: {', '.join(names)}")
    return "every field is written"


def _plausible(bench: Bench) -> str:
    _started(bench)
    every = _every_device(bench, 0)
    for device, raw in enumerate(every):
        found = decode(bench.abi, raw)
        if problems := list(implausible(bench.abi, found, len(every))):
            raise Broken(
                f"device {device}: {', '.join(problems)}: is it the layout of another version?"
            )
    return "every field is plausible"


def _strings(bench: Bench) -> str:
    bench.start()
    before = [decode(bench.abi, raw) for raw in _every_device(bench, 0)]
    texts = [_texts(bench, one.name, one.pci_path) for one in before]
    _every_device(bench, _FILLS[0])
    bench.close(bench.connect())
    for device, one in enumerate(before):
        if _texts(bench, one.name, one.pci_path) != texts[device]:
            raise Broken(f"device {device}: its name or pciPath has changed where it was")
    return "the strings stay as they are"


def _texts(bench: Bench, *addresses: int) -> list[bytes]:
    bench.tell("reading name and pciPath")
    return [ctypes.string_at(address) if address else b"" for address in addresses]


def _device_entries(bench: Bench) -> str:
    if not bench.start().unpacks:
        raise NotOffered("its netDeviceType is not UNPACK")
    for entry in ("getDeviceMr", "irecvConsumed"):
        if entry not in bench.table.extras():
            raise Broken(f"its netDeviceType is UNPACK, without {entry}")
    return "with both"


def _dma_buf(bench: Bench) -> str:
    bench.start()
    there = "regMrDmaBuf" in bench.table.extras()
    if bench.properties.ptr_support & 4 and not there:
        raise Broken("its ptrSupport has DMABUF, and regMrDmaBuf is NULL")
    if not there:
        raise NotOffered("regMrDmaBuf is NULL")
    return "regMrDmaBuf is there"


def _second_init(bench: Bench) -> str:
    bench.start()
    count = bench.good("devices")
    again = _second_table(bench)
    bench.tell("a second init")
    code = again.init()
    if again.has_contexts and code != 0:
        raise Broken(f"a second init, of another communicator, returned {code}")
    found = bench.good("devices")
    if code == 0 and again.devices() != (0, count):
        raise Broken(f"a second init returned 0, but then it has {again.devices()[1]} devices")
    if found != count:
        raise Broken(f"after a second init it has {found} devices, not {count}")
    bench.close(bench.connect())
    return "a second init is taken" if code == 0 else "a second init is refused and harms nothing"


def _second_table(bench: Bench) -> Any:
    table, bench.table = bench.table, None
    second = bench.load()
    bench.table = table
    return second


def _finalize(bench: Bench) -> str:
    bench.start()
    if "finalize" not in bench.table.extras():
        raise Broken("finalize is NULL")
    bench.close(bench.connect())
    bench.good("finalize")
    return "finalize returned 0"


def _contexts(bench: Bench) -> str:
    first = bench.start().table
    second = _second_table(bench)
    bench.tell("a second init")
    if code := second.init():
        raise Broken(f"a second init returned {code}")
    pair = bench.connect()
    bench.tell("finalize of the second context")
    if code := second.finalize():
        raise Broken(f"finalize of the second context returned {code}")
    bench.close(pair)
    bench.close(bench.connect())
    bench.tell("init of a third context")
    if code := second.init():
        raise Broken(f"an init after a finalize returned {code}")
    bench.tell("finalize")
    if code := first.finalize():
        raise Broken(f"finalize of the first context returned {code}")
    bench.table = second
    bench.close(bench.connect())
    bench.good("finalize")
    return "one context ends without harm to another"


def _load_again(bench: Bench) -> str:
    _use(bench)
    _unload(bench)
    _use(bench)
    try:
        _use(bench)
    except Broken as broken:
        raise Broken(f"where its library stays mapped: {broken}") from None
    return "loaded again when it was unloaded, and initialised again where it stays mapped"


def _use(bench: Bench) -> None:
    """From the loading of the library to the end of what a communicator has of it."""
    bench.start().close(bench.connect())
    if bench.table.has_contexts:
        bench.good("finalize")


def _unload(bench: Bench) -> None:
    """Both what `Table` has of the library, which keeps it for ever, and what is had here."""
    from _ctypes import dlclose

    bench.tell("unloading the plugin")
    held = ctypes.CDLL(bench.table.path)
    bench.table = None
    dlclose(held._handle)
    dlclose(held._handle)


def _attributes(bench: Bench) -> str:
    bench.start()
    if "setNetAttr" not in bench.table.extras():
        raise NotOffered("setNetAttr is NULL")
    bench.good("set_net_attr")
    bench.good("set_net_attr", 4, 1, 1, 1, 1)
    bench.close(bench.connect())
    return "taken as undefined and as numbers"


CLAUSES = (
    Clause(
        "table", _table,
        what="The library exports the table of this version, with a name and init.",
        why="Nothing else can be called before.",
        source="ncclNet_vN_t of NCCL's net headers",
        nccl="Takes the newest version that the library exports, and logs the name.",
    ),
    Clause(
        "init", _init,
        what="init returns 0, and afterwards every required entry is there; the name stays.",
        why="Tables that init fills are common: entries may be NULL before it, not after it.",
        source="ncclNet_vN_t; tables of plugins in the wild",
        nccl="Drops a plugin whose init fails, and calls the entries unseen.",
        needs=("table",),
    ),
    Clause(
        "devices", _devices,
        what="devices returns 0 and at least 1, the same when asked again.",
        why="Without a device there is nothing to connect.",
        source="ncclNet_vN_t",
        nccl="Drops a plugin without a device and uses its own sockets, without an error.",
        needs=("init",),
    ),
    Clause(
        "properties-written", _written,
        what="getProperties writes every field of the structure of its version.",
        why="Patterns of bytes below tell what is left as it was.",
        source="ncclNetProperties_vN_t",
        nccl="Hands the structure over uninitialised: what is not written is garbage to it.",
        needs=("devices",),
    ),
    Clause(
        "properties-plausible", _plausible,
        what="Every field of the properties is one that a device can have.",
        why="The structure of another version puts fields where others are read.",
        source="ncclNetProperties_vN_t",
        nccl="Chooses devices and rings by them, takes no plugin of a netDeviceType or version that"
        " it does not know, and makes no connection with maxP2pBytes 0 or above 1 TiB. A speed that"
        " is 0 or below is 10 Gb/s to it.",
        needs=("properties-written",),
    ),
    Clause(
        "strings", _strings,
        what="name and pciPath stay as they are while the plugin is loaded.",
        why="The caller keeps the pointers.",
        source="ncclNetProperties_vN_t",
        nccl="Reads them when it has asked for those of other devices, too.",
        needs=("connect",),
    ),
    Clause(
        "device-entries", _device_entries,
        what="A plugin whose netDeviceType is UNPACK has getDeviceMr and irecvConsumed.",
        why="Receives of such a plugin end on the device, and their slots are given back by these.",
        source="ncclNet_v7_t and later",
        nccl="Calls each where it is there: without irecvConsumed no slot would come back.",
        needs=("devices",), since=7, hurts=False,
    ),
    Clause(
        "dma-buf", _dma_buf,
        what="A plugin whose ptrSupport has DMABUF has regMrDmaBuf.",
        why="The bit is a promise of the entry.",
        source="ncclNet_vN_t",
        nccl="Calls it for GPU memory where the bit is set.",
        needs=("devices",),
    ),
    Clause(
        "second-init", _second_init,
        what="A second init in one process does no harm; from v11 on it makes a second context.",
        why="A plugin that fails silently here takes the first user's connections away.",
        source="init of ncclNet_vN_t; plugins in the wild",
        nccl="Up to v10 calls init once a process; from v11 on once a communicator.",
        needs=("devices", "connect"),
    ),
    Clause(
        "finalize", _finalize,
        what="finalize is there and returns 0.",
        why="It ends a communicator's context.",
        source="ncclNet_v11_t",
        nccl="Calls it at the end of each communicator, without looking whether it is NULL.",
        needs=("connect",), since=11,
    ),
    Clause(
        "contexts", _contexts,
        what="A context may end while another lives, in any order, and one may begin later.",
        why="Communicators end in the order that the program likes.",
        source="ncclNet_v11_t",
        nccl="Has a context for each communicator, all in one process.",
        needs=("second-init", "finalize"), since=11,
    ),
    Clause(
        "load-again", _load_again,
        what="The library can be loaded, used, unloaded, and loaded and used again, also where it"
        " stays mapped when it is unloaded.",
        why="Threads that run on in unmapped code, or state that outlives it, end the process. What"
        " stays mapped (by unique symbols, or another user of the file) is initialised twice.",
        source="NCCL's loader of plugins",
        nccl="2.22 to 2.25, and 2.28 and later, unload a plugin after its last communicator, load"
        " it again for the next and call init, behind whose error they go on over own sockets.",
        needs=("connect",),
    ),
    Clause(
        "attributes", _attributes,
        what="setNetAttr takes undefined and defined attributes, and connections work after it.",
        why="It is a hint, never a reason to fail.",
        source="ncclNet_v11_t",
        nccl="Calls it before it connects, where it is not NULL.",
        needs=("connect",), since=11,
    ),
)  # fmt: skip

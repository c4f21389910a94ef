"""Clauses of a GPU's memory: how it is registered, by address and as a dma-buf, and on two GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.conform.bench import Bench, Pair
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import POISON
from tcpx_mpi.conform.memory import PAGE, Area, Gpu, GpuArea
from tcpx_mpi.conform.outcome import Broken, NotOffered, NotTried

#: Large enough for an allocation to begin at a page.
_WHOLE = 2 << 20
_ODD = (4097, 63, 1)
#: Registers memory for a comm: (comm, address, bytes) to a region.
_Register = Callable[[int, int, int], int]


def _allocation_and_parts(bench: Bench) -> str:
    gpu = _gpu_of(bench)
    pair = bench.connect()
    source, target = (GpuArea(gpu, _WHOLE, gpu.allocation(_WHOLE)) for _ in range(2))
    if source.address % PAGE or target.address % PAGE:
        raise NotTried("the driver begins no allocation at a page")
    for offset, size, what in (
        (0, _WHOLE, "a whole allocation"),
        (PAGE, 2 * PAGE, "a part of an allocation"),
        (_WHOLE - PAGE, PAGE, "the last page of an allocation"),
    ):
        bench.stage = f"of {what}"
        _message(bench, pair, source, target, _by_address(bench), offset, size)
    bench.close(pair)
    return "a whole allocation, a part, and its last page"


def _odd(bench: Bench) -> str:
    gpu = _gpu_of(bench)
    if bench.unpacks:
        raise NotOffered("a plugin that unpacks takes whole pages")
    pair = bench.connect()
    source, target = GpuArea(gpu, 4 * PAGE), GpuArea(gpu, 4 * PAGE)
    for size in _ODD:
        bench.stage = f"of {size} bytes of a GPU's memory"
        _message(bench, pair, source, target, _by_address(bench), 3, size)
    bench.close(pair)
    return f"{', '.join(map(str, _ODD))} bytes"


def _reused(bench: Bench) -> str:
    gpu = _gpu_of(bench)
    pair = bench.connect()
    source, first = GpuArea(gpu, _WHOLE), gpu.allocation(_WHOLE)
    _message(bench, pair, source, GpuArea(gpu, PAGE, first), _by_address(bench), 0, PAGE)
    gpu.free(first)
    again = gpu.allocation(_WHOLE + PAGE)
    bench.stage = "of memory that came to the address of what was freed"
    _message(bench, pair, source, GpuArea(gpu, PAGE, again), _by_address(bench), 0, PAGE)
    bench.close(pair)
    same = "the same address" if again == first else "another address"
    return f"what was allocated after a free, at {same}, took its message"


def _freed(bench: Bench) -> str:
    gpu = _gpu_of(bench)
    pair = bench.connect()
    address = gpu.allocation(_WHOLE)
    gpu.free(address)
    open_before = set(os.listdir("/proc/self/fd"))
    for comm in (pair.send, pair.receive):
        bench.stage = "of memory that was freed"
        code, _ = bench.call("reg_mr", comm, address, _WHOLE, _native.PTR_CUDA)
        if code == 0:
            raise Broken("regMr took memory of a GPU that was freed")
    bench.stage = ""
    if open_before - set(os.listdir("/proc/self/fd")):
        raise Broken("regMr, which has refused memory that was freed, has closed a descriptor")
    _one_message(bench, pair, gpu, _by_address(bench), 0, PAGE)
    return "refused, and the connection goes on"


def _host_pointer(bench: Bench) -> str:
    _gpu_of(bench)
    pair = bench.connect()
    source, target = Area(PAGE), Area(PAGE)
    bench.stage = "of host memory as a GPU's"
    code, region = bench.call("reg_mr", pair.receive, target.address, PAGE, _native.PTR_CUDA)
    if code == 0:
        bench.good("dereg_mr", pair.receive, region)
        _message(bench, pair, source, target, _by_address(bench), 0, PAGE)
    bench.close(pair)
    return f"refused: regMr returned {code}" if code else "taken, and a message arrived there"


def _dma_buf(bench: Bench) -> str:
    gpu = _dma_buf_of(bench)
    _one_message(bench, bench.connect(), gpu, _by_dma_buf(bench, gpu, 0), 0, 2 * PAGE)
    return "the descriptor was closed when it was registered, and a message arrived"


def _dma_buf_offset(bench: Bench) -> str:
    gpu = _dma_buf_of(bench)
    _one_message(bench, bench.connect(), gpu, _by_dma_buf(bench, gpu, PAGE), PAGE, PAGE)
    return f"{PAGE} bytes at {PAGE} of a dma-buf took their message"


def _dma_buf_closed(bench: Bench) -> str:
    gpu = _dma_buf_of(bench)
    pair, area = bench.connect(), GpuArea(gpu, PAGE)
    file = gpu.exported(area.address, PAGE)
    os.close(file)
    for comm in (pair.send, pair.receive):
        bench.stage = "of a descriptor that is closed"
        where = (comm, area.address, PAGE, _native.PTR_CUDA, 0, file)
        code, _ = bench.call("reg_mr_dma_buf", *where)
        if code == 0:
            raise Broken("regMrDmaBuf took a descriptor that is closed")
    bench.stage = ""
    bench.close(pair)
    return f"refused: regMrDmaBuf returned {code}"


def _two_gpus(bench: Bench) -> str:
    first = _gpu_of(bench)
    if (count := len(_native.cuda_devices())) < 2:
        raise NotTried(f"CUDA shows {count} GPU")
    gpus = (first, Gpu(1))
    crossing = ((gpus[0], gpus[1]), (gpus[1], gpus[0]), (gpus[1], gpus[1]))
    pairs = [_connected(bench, sends, receives) for sends, receives in crossing]
    posted = []
    for seed, ((sends, receives), pair) in enumerate(zip(crossing, pairs, strict=True)):
        bench.stage = f"from GPU {gpus.index(sends)} to GPU {gpus.index(receives)}"
        bench.use(receives)
        target = GpuArea(receives, 2 * PAGE).poison(POISON)
        there = bench.register(pair.receive, target)
        receive = bench.receive(pair, target, PAGE, there)
        bench.use(sends)
        source = GpuArea(sends, PAGE).fill(seed)
        here = bench.register(pair.send, source)
        posted.append((receive, bench.send(pair, source, PAGE, here), source, here, there))
    for (sends, receives), (receive, sent, source, here, there) in zip(
        crossing, posted, strict=True
    ):
        bench.stage = f"from GPU {gpus.index(sends)} to GPU {gpus.index(receives)}"
        bench.use(receives)
        bench.finish(receive, sent)
        bench.expect(receive.target, source, PAGE, whose=f"a message {bench.stage}")
        bench.good("dereg_mr", receive.comm, there)
        bench.use(sends)
        bench.good("dereg_mr", sent.comm, here)
        bench.close(receive.pair)
    return "messages between two GPUs of a process, each way and within one"


def _connected(bench: Bench, sends: Gpu, receives: Gpu) -> Pair:
    """A connection of which each end has its own GPU current in every call."""
    bench.use(receives)
    listener, handle = bench.listen()
    pair = Pair(listener=listener, block=bench.new_block())

    def step() -> bool:
        bench.use(sends)
        pair.send = pair.send or bench.connecting(handle)
        bench.use(receives)
        pair.receive = pair.receive or bench.accepting(pair)
        return bool(pair.send and pair.receive)

    bench.until(step, "connect and accept did not both come to a comm")
    return pair


def _one_message(
    bench: Bench, pair: Pair, gpu: Gpu, register: _Register, offset: int, size: int
) -> None:
    """A message between two new areas of a GPU, the last of its connection."""
    source, target = (GpuArea(gpu, offset + size + PAGE) for _ in range(2))
    _message(bench, pair, source, target, register, offset, size)
    bench.close(pair)


def _message(
    bench: Bench, pair: Pair, source: Area, target: Area, register: _Register, offset: int,
    size: int,
) -> None:  # fmt: skip
    """A message to the end of this place of both, which is registered for it alone."""
    source.fill(offset + size)
    target.poison(POISON)
    expected = target.bytes.copy()
    here = register(pair.send, source.address + offset, size)
    there = register(pair.receive, target.address + offset, size)
    moved = bench.largest(size)
    at = offset + size - moved
    receive = bench.receive(pair, target, moved, there, at)
    bench.finish(bench.send(pair, source, moved, here, at), receive)
    for comm, region in ((pair.send, here), (pair.receive, there)):
        bench.good("dereg_mr", comm, region)
    expected[at : at + moved] = source.bytes[at : at + moved]
    if (wrong := np.flatnonzero(target.bytes != expected)).size:
        where = f"a message of {moved} bytes {bench.stage}".rstrip()
        raise Broken(f"{wrong.size} bytes are wrong of or around {where}, the first is {wrong[0]}")


def _by_address(bench: Bench) -> _Register:
    def register(comm: int, address: int, size: int) -> int:
        return int(bench.good("reg_mr", comm, address, size, _native.PTR_CUDA))

    return register


def _by_dma_buf(bench: Bench, gpu: Gpu, offset: int) -> _Register:
    """Registers by a dma-buf that begins `offset` bytes before; closes its descriptor right
    after."""

    def register(comm: int, address: int, size: int) -> int:
        bench.stage = f"of {size} bytes at {offset} of a dma-buf"
        file = gpu.exported(address - offset, size + offset)
        where = (comm, address, size, _native.PTR_CUDA, offset, file)
        try:
            return int(bench.good("reg_mr_dma_buf", *where))
        finally:
            os.close(file)

    return register


def _gpu_of(bench: Bench) -> Gpu:
    """The GPU whose memory the clause is of, of a plugin that takes it and is started."""
    if not bench.start().takes_gpus:
        raise NotOffered("its ptrSupport has no GPU memory")
    if bench.gpu is None:
        raise NotTried("this is of memory of a GPU: --memory cuda")
    return bench.gpu


def _dma_buf_of(bench: Bench) -> Gpu:
    gpu = _gpu_of(bench)
    if not bench.properties.ptr_support & _native.PTR_DMABUF:
        raise NotOffered("its ptrSupport has no DMABUF")
    if not gpu.facts["dma_buf"]:
        raise NotTried("the driver makes no dma-bufs of this GPU")
    return gpu


CLAUSES = (
    Clause(
        "register-whole", _allocation_and_parts,
        what="regMr takes a whole allocation of a GPU, a part of it and its last page, and each"
        " takes its message.",
        why="A buffer may fill its allocation, or share it.",
        source="regMr of ncclNet_vN_t with NCCL_PTR_CUDA",
        nccl="Cuts its buffers out of allocations, and registers those of programs from the page of"
        " their first byte to that of their last (ncclRegister).",
        needs=("message",),
    ),
    Clause(
        "register-odd", _odd,
        what="regMr takes memory of a GPU of odd sizes at odd addresses; of a plugin that unpacks,"
        " whole pages alone.",
        why="Buffers of programs lie where they lie.",
        source="regMr of ncclNet_vN_t with NCCL_PTR_CUDA",
        nccl="Registers whole pages of programs' buffers, and its own as long as NCCL_BUFFSIZE is,"
        " whose defaults are whole pages.",
        needs=("register-whole",), hurts=False,
    ),
    Clause(
        "register-reused", _reused,
        what="What is allocated at the address of memory that was deregistered and freed is"
        " registered anew, and takes its message.",
        why="A plugin that keeps registrations by address writes into memory that is gone.",
        source="regMr and deregMr of ncclNet_vN_t; caches of plugins in the wild",
        nccl="Frees a communicator's buffers and allocates those of the next.",
        needs=("register-whole",),
    ),
    Clause(
        "register-freed", _freed,
        what="regMr refuses memory of a GPU that was freed, closes no descriptor of others, and the"
        " connection goes on.",
        why="It is a program's mistake, which must not become another's.",
        source="regMr of ncclNet_vN_t with NCCL_PTR_CUDA",
        nccl="Registers what it has allocated, or what CUDA has just described.",
        needs=("register-whole",), hurts=False,
    ),
    Clause(
        "register-host-as-gpu", _host_pointer,
        what="regMr of host memory as NCCL_PTR_CUDA is refused, or the memory takes its message.",
        why="The type is the caller's word; the address says what it is.",
        source="regMr of ncclNet_vN_t with NCCL_PTR_CUDA",
        nccl="Gives host memory the type NCCL_PTR_HOST.",
        needs=("register-whole",), hurts=False,
    ),
    Clause(
        "dma-buf-message", _dma_buf,
        what="regMrDmaBuf takes a dma-buf of memory of a GPU, whose descriptor is closed right"
        " after, and the memory takes its message.",
        why="Who registers has to keep what it needs of the descriptor.",
        source="regMrDmaBuf of ncclNet_vN_t",
        nccl="Exports whole pages, registers with offset 0, and closes the descriptor before any"
        " message; an error ends the job, but for buffers of programs.",
        needs=("dma-buf", "message"),
    ),
    Clause(
        "dma-buf-offset", _dma_buf_offset,
        what="regMrDmaBuf takes memory that begins within its dma-buf.",
        why="A driver exports whole pages, and memory begins where it begins.",
        source="regMrDmaBuf of ncclNet_vN_t",
        nccl="Its offset is always 0.",
        needs=("dma-buf-message",), hurts=False,
    ),
    Clause(
        "dma-buf-closed", _dma_buf_closed,
        what="regMrDmaBuf refuses a descriptor that is closed.",
        why="What it names by then is nobody's, or another's.",
        source="regMrDmaBuf of ncclNet_vN_t",
        nccl="Hands over what the driver has just made.",
        needs=("dma-buf-message",), hurts=False,
    ),
    Clause(
        "two-gpus", _two_gpus,
        what="Comms of two GPUs of a process carry messages between them, each way, and within.",
        why="What belongs to a GPU must not be taken for the process's.",
        source="ncclNet_vN_t",
        nccl="Has a communicator's ranks in one process where the program wants it so, each with"
        " its own GPU current.",
        needs=("register-whole",),
    ),
)  # fmt: skip

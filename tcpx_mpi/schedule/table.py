"""The form of a schedule: what one rank does in one iteration, as numbers that native code can run.

A pattern is data. Its schedule is a table with one row a step, written in *blocks*; a row of the
result table (a size) supplies the block tables that turn blocks into bytes. The engine cuts each
step into chunks and never learns which pattern it is running.

Columns of the table, -1 if one does not apply:

    op          `Op`
    peer, lane  the other rank and the set of connections to it (SEND, RECV, RECV_REDUCE)
    src_buffer, src_block   where the bytes come from (SEND, COPY, SCALE); of a RECV_REDUCE the
                            local operand
    dst_buffer, dst_block   where the bytes go to (all but SEND and PAUSE)
    blocks      how many consecutive blocks, which are contiguous in memory; of a PAUSE, how many
                microseconds
    pred0, wait0, pred1, wait1   up to two earlier steps of this rank, and how to wait for them

Steps of one rank that share no predecessor run at the same time, in any order; only steps on the
same (peer, lane, channel, direction) start in the order of the table. So a schedule is right only
if, for each ordered pair of ranks and each lane, sends and receives agree in order and length:
`tcpx_mpi.schedule.interpreter.prove` proves that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tcpx_mpi.arrays import np
from tcpx_mpi.errors import TcpxError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ScheduleError(TcpxError):
    """A schedule is malformed, or does not do what its pattern promises: a defect of ours."""


class Op(IntEnum):
    """The operation of a step.

    RECV_REDUCE: dst = reduction of (src, what the peer sends), element by element; src and dst may
    be the same blocks. SCALE: dst = src times the factor of this rank (before the steps of a
    `mulsum`, after those of an `avg`); src and dst may be the same blocks. The type of the
    elements, the operation and the factor are the same for all steps: they are the program's, not
    the table's. PAUSE: nothing moves for a while.
    """

    SEND = 0
    RECV = 1
    COPY = 2
    RECV_REDUCE = 3
    SCALE = 4
    PAUSE = 5


#: Steps that have a peer; steps that take bytes from a peer; steps that read and that write blocks.
REMOTE_OPS = (Op.SEND, Op.RECV, Op.RECV_REDUCE)
RECEIVE_OPS = (Op.RECV, Op.RECV_REDUCE)
READING_OPS = (Op.SEND, Op.COPY, Op.RECV_REDUCE, Op.SCALE)
WRITING_OPS = (Op.RECV, Op.COPY, Op.RECV_REDUCE, Op.SCALE)
#: Steps whose source and destination must have the same length.
LOCAL_OPS = (Op.COPY, Op.RECV_REDUCE, Op.SCALE)


class BufferId(IntEnum):
    """The buffers of one slot. SEND is only read: the payload stands there before the start."""

    SEND = 0
    RECV = 1
    SCRATCH = 2


class Wait(IntEnum):
    """The way that a step waits for a predecessor.

    CHUNK: chunk c waits for chunk c, so both steps must have the same number of bytes.
    WHOLE: every chunk waits for all chunks. A chunk of a RECV is complete when its bytes can be
    used, one of a SEND when its bytes may be overwritten.
    """

    CHUNK = 0
    WHOLE = 1


class Column(IntEnum):
    """Columns of `Schedule.table`."""

    OP = 0
    PEER = 1
    LANE = 2
    SRC_BUFFER = 3
    SRC_BLOCK = 4
    DST_BUFFER = 5
    DST_BLOCK = 6
    BLOCKS = 7
    PRED0 = 8
    WAIT0 = 9
    PRED1 = 10
    WAIT1 = 11


#: The value of a column that does not apply to a step.
NONE = -1


# --- Blocks and chunks -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockTable:
    """The place of the blocks of a buffer, in bytes: int64[n] each, without gaps, from offset 0."""

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | NDArray[np.int64]) -> BlockTable:
        """Blocks of these lengths, one behind the other."""
        # A copy: the caller's array must not be frozen, nor change ours later.
        own = np.array(lengths, dtype=np.int64).reshape(-1)
        if own.size and int(own.min()) < 0:
            raise ScheduleError(f"a block cannot have a negative length; found {int(own.min())}")
        offsets = np.cumsum(own, dtype=np.int64) - own
        own.flags.writeable = False
        offsets.flags.writeable = False
        return cls(offsets, own)

    @property
    def blocks(self) -> int:
        return int(self.lengths.size)

    @property
    def total_bytes(self) -> int:
        return int(self.lengths.sum())


#: The block tables of one rank for one size. All three buffers are present, perhaps without blocks.
Layout = Mapping[BufferId, BlockTable]


def ragged_division(total: int, parts: int) -> BlockTable:
    """The one rule of division: the floor, and one byte more for the first total % parts blocks."""
    if total < 0 or parts < 1:
        raise ScheduleError(f"cannot divide {total} bytes into {parts} blocks")
    floor, longer = divmod(total, parts)
    lengths = np.full(parts, floor, dtype=np.int64)
    lengths[:longer] += 1
    return BlockTable.of_lengths(lengths)


def make_layout(
    send: BlockTable | None = None,
    recv: BlockTable | None = None,
    scratch: BlockTable | None = None,
) -> dict[BufferId, BlockTable]:
    """A layout with all three buffers; one that is not named has no blocks."""
    empty = BlockTable.of_lengths(())
    return {
        BufferId.SEND: empty if send is None else send,
        BufferId.RECV: empty if recv is None else recv,
        BufferId.SCRATCH: empty if scratch is None else scratch,
    }


def chunks_of(length: int, chunk_bytes: int) -> int:
    """The number of chunks of a step. An empty step is one chunk of 0 bytes, so that it is seen.

    Chunk c is the bytes [c * chunk_bytes, min((c + 1) * chunk_bytes, length)) of the step and
    travels on channel c % channels, in every step.
    """
    if length < 0 or chunk_bytes < 1:
        raise ScheduleError(f"cannot cut {length} bytes into chunks of {chunk_bytes}")
    return max(1, -(-length // chunk_bytes))


# --- The table ---------------------------------------------------------------------------------


def _refuse(bad: NDArray[np.bool_], text: str) -> None:
    """Raise ScheduleError that names the first row where `bad` is true."""
    if bad.any():
        raise ScheduleError(f"step {int(np.argmax(bad))}: {text}")


def _block_text(buffer: int, block: int) -> str:
    return "nothing" if buffer == NONE else f"{BufferId(buffer).name} block {block}"


@dataclass(frozen=True, eq=False)
class Schedule:
    """The steps of one rank in one iteration; see the module for the columns.

    table: int32[steps, 12], C-contiguous; it is checked here and read-only from then on, so that
    a Schedule that exists is well formed.
    """

    table: NDArray[np.int32]

    def __post_init__(self) -> None:
        self.validate()
        self.table.flags.writeable = False

    @property
    def steps(self) -> int:
        return int(self.table.shape[0])

    def column(self, column: Column) -> NDArray[np.int32]:
        """One column, int32[steps]; a view."""
        values: NDArray[np.int32] = self.table[:, column]
        return values

    @property
    def peers_sent(self) -> list[tuple[int, int]]:
        """Every (peer, lane) that this rank sends to, sorted."""
        return self._peers((Op.SEND,))

    @property
    def peers_received(self) -> list[tuple[int, int]]:
        """Every (peer, lane) that this rank receives from, sorted."""
        return self._peers(RECEIVE_OPS)

    @property
    def sends(self) -> bool:
        return bool((self.column(Column.OP) == Op.SEND).any())

    @property
    def receives(self) -> bool:
        return bool(np.isin(self.column(Column.OP), RECEIVE_OPS).any())

    @property
    def reduces(self) -> bool:
        """Whether elements are computed with, so that their type and the operation matter."""
        return bool(np.isin(self.column(Column.OP), (Op.RECV_REDUCE, Op.SCALE)).any())

    def _peers(self, ops: Sequence[Op]) -> list[tuple[int, int]]:
        rows = self.table[np.isin(self.column(Column.OP), ops)]
        return sorted({(int(row[Column.PEER]), int(row[Column.LANE])) for row in rows})

    def describe(self, step: int) -> str:
        """A step in words, for messages."""
        row = self.table[step]
        op, peer, lane = Op(row[Column.OP]), int(row[Column.PEER]), int(row[Column.LANE])
        source = _block_text(row[Column.SRC_BUFFER], row[Column.SRC_BLOCK])
        target = _block_text(row[Column.DST_BUFFER], row[Column.DST_BLOCK])
        words = {
            Op.SEND: f"send of {source} to rank {peer} on lane {lane}",
            Op.RECV: f"receive of {target} from rank {peer} on lane {lane}",
            Op.COPY: f"copy of {source} to {target}",
            Op.RECV_REDUCE: f"reduction of {source} and what rank {peer} sends on lane {lane} "
            f"into {target}",
            Op.SCALE: f"scaling of {source} into {target}",
            Op.PAUSE: f"pause of {int(row[Column.BLOCKS])} us",
        }
        return f"step {step} ({words[op]})"

    def validate(self) -> None:
        """Check everything that one rank's table says by itself. Raises ScheduleError."""
        table = self.table
        if (
            not isinstance(table, np.ndarray)
            or table.dtype != np.int32
            or table.ndim != 2
            or table.shape[1] != len(Column)
            or not table.flags.c_contiguous
        ):
            raise ScheduleError(
                f"a schedule is a C-contiguous int32 array of {len(Column)} columns; "
                f"found {getattr(table, 'dtype', type(table).__name__)} "
                f"of shape {getattr(table, 'shape', '?')}"
            )
        op = self.column(Column.OP)
        _refuse(~np.isin(op, list(Op)), "unknown operation")
        self._validate_ends(op)
        _refuse(self.column(Column.BLOCKS) < 1, "a step moves at least one block")
        self._validate_predecessors()

    def _validate_ends(self, op: NDArray[np.int32]) -> None:
        for column, applies in (
            (Column.PEER, np.isin(op, REMOTE_OPS)),
            (Column.LANE, np.isin(op, REMOTE_OPS)),
            (Column.SRC_BLOCK, np.isin(op, READING_OPS)),
            (Column.DST_BLOCK, np.isin(op, WRITING_OPS)),
        ):
            values = self.column(column)
            name = column.name.lower()
            _refuse(applies & (values < 0), f"{name} is missing")
            _refuse(~applies & (values != NONE), f"{name} does not apply and must be {NONE}")
        source, target = self.column(Column.SRC_BUFFER), self.column(Column.DST_BUFFER)
        reads, writes = np.isin(op, READING_OPS), np.isin(op, WRITING_OPS)
        _refuse(reads & ~np.isin(source, list(BufferId)), "unknown src_buffer")
        _refuse(~reads & (source != NONE), f"src_buffer does not apply and must be {NONE}")
        writable = [BufferId.RECV, BufferId.SCRATCH]
        _refuse(writes & (target == BufferId.SEND), "the SEND buffer is only read")
        _refuse(writes & ~np.isin(target, writable), "unknown dst_buffer")
        _refuse(~writes & (target != NONE), f"dst_buffer does not apply and must be {NONE}")

    def _validate_predecessors(self) -> None:
        row = np.arange(self.steps)
        for pred_column, wait_column in (
            (Column.PRED0, Column.WAIT0),
            (Column.PRED1, Column.WAIT1),
        ):
            pred, wait = self.column(pred_column), self.column(wait_column)
            name = pred_column.name.lower()
            _refuse(pred < NONE, f"{name} is neither a step nor {NONE}")
            # Only earlier steps: so no circle of predecessors within a rank can be written down.
            _refuse(pred >= row, f"{name} is not an earlier step")
            known = np.isin(wait, list(Wait))
            _refuse((pred != NONE) & ~known, f"unknown wait for {name}")
            _refuse((pred == NONE) & (wait != NONE), f"a wait without {name}")
        first, second = self.column(Column.PRED0), self.column(Column.PRED1)
        _refuse((first == NONE) & (second != NONE), "pred1 without pred0")
        _refuse((first != NONE) & (first == second), "pred0 and pred1 are the same step")


# --- A schedule with a size --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StepBytes:
    """A schedule's steps in bytes, int64[steps] each; an offset that does not apply is -1."""

    src_offset: NDArray[np.int64]
    dst_offset: NDArray[np.int64]
    length: NDArray[np.int64]


def step_bytes(schedule: Schedule, layout: Layout) -> StepBytes:
    """Turn blocks into bytes and check what only the size can tell.

    Raises ScheduleError for a block outside its buffer, a local step between unequal lengths, or a
    chunk-by-chunk wait for a step of another length.
    """
    blocks = schedule.column(Column.BLOCKS)
    src_offset, src_length = _place(
        schedule.column(Column.SRC_BUFFER), schedule.column(Column.SRC_BLOCK), blocks, layout
    )
    dst_offset, dst_length = _place(
        schedule.column(Column.DST_BUFFER), schedule.column(Column.DST_BLOCK), blocks, layout
    )
    op = schedule.column(Column.OP)
    unequal = np.isin(op, LOCAL_OPS) & (src_length != dst_length)
    _refuse(unequal, "source and destination have unequal lengths")
    length = np.where(op == Op.RECV, dst_length, src_length)
    for pred_column, wait_column in ((Column.PRED0, Column.WAIT0), (Column.PRED1, Column.WAIT1)):
        pred, wait = schedule.column(pred_column), schedule.column(wait_column)
        unequal = (wait == Wait.CHUNK) & (length != length[pred])
        _refuse(unequal, f"waits chunk by chunk for {pred_column.name.lower()} of another length")
    return StepBytes(src_offset, dst_offset, length)


def _place(
    buffer: NDArray[np.int32], block: NDArray[np.int32], blocks: NDArray[np.int32], layout: Layout
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offset and length in bytes of block ranges, int64[steps] each; (-1, 0) where none."""
    offset = np.full(buffer.size, NONE, dtype=np.int64)
    length = np.zeros(buffer.size, dtype=np.int64)
    for buffer_id in BufferId:
        here = buffer == buffer_id
        if not here.any():
            continue
        table = layout[buffer_id]
        end = block.astype(np.int64) + blocks
        _refuse(
            here & (end > table.blocks), f"beyond the {table.blocks} blocks of {buffer_id.name}"
        )
        bounds = np.append(table.offsets, table.total_bytes)
        offset[here] = bounds[block[here]]
        length[here] = bounds[end[here]] - bounds[block[here]]
    return offset, length


# --- Several messages at once ------------------------------------------------------------------


def repeated_schedule(
    schedule: Schedule, blocks: Mapping[BufferId, int], messages: int
) -> Schedule:
    """`messages` independent copies of a schedule, posted together; copy k uses its own blocks.

    `blocks` says how many blocks each buffer has for one copy.
    """
    copies = []
    for copy in range(messages):
        table = schedule.table.copy()
        for buffer_column, block_column in (
            (Column.SRC_BUFFER, Column.SRC_BLOCK),
            (Column.DST_BUFFER, Column.DST_BLOCK),
        ):
            for buffer_id in BufferId:
                here = table[:, buffer_column] == buffer_id
                table[here, block_column] += copy * blocks[buffer_id]
        for column in (Column.PRED0, Column.PRED1):
            table[table[:, column] != NONE, column] += copy * schedule.steps
        copies.append(table)
    return Schedule(np.concatenate(copies))


def repeated_layout(layout: Layout, messages: int) -> dict[BufferId, BlockTable]:
    """The layout of `messages` copies: each buffer's blocks, again and again."""
    return {
        buffer_id: BlockTable.of_lengths(np.tile(table.lengths, messages))
        for buffer_id, table in layout.items()
    }

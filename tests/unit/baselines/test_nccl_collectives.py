"""NCCL's own collectives for the programs: which bytes they are called with, and what it lacks."""

from __future__ import annotations

import numpy as np
import pytest

from tcpx_mpi.baselines.nccl.collectives import Arithmetic, Call, arithmetic_of, calls_of
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.patterns import PROGRAMS, find_program, repeated
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.pattern import Pattern, held_bytes
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.workload import workload_of

ROOT, COPIES, INT32 = 1, 2, 4
NEWEST = Arithmetic(22809, 90, 2)


def facts(name: str, count: int) -> RowFacts:
    return RowFacts(
        index=0, cycle=0, size_bytes=count * INT32, count=count, type_name="int32",
        redop="sum" if find_program(name).reduces else "none", root=ROOT, agg=COPIES,
        chunk_bytes=64, slots=1, iterations=1, warmup_iterations=0,
    )  # fmt: skip


def made_by_calls(pattern: Pattern, name: str, world: int, size: int) -> list[np.ndarray]:
    """What the RECV buffers hold after the calls of all ranks, by NCCL's definition of each."""
    layouts = [pattern.layout(rank, world, size) for rank in range(world)]
    memory = [
        {buffer: np.full(table.total_bytes // INT32, -1, np.int32) for buffer, table in
         layout.items()}
        for layout in layouts
    ]  # fmt: skip
    for rank in range(world):
        own = payload(rank, pattern.payload_of(rank, world, size).total_bytes // INT32)
        buffer = BufferId.SEND if pattern.held is None else BufferId.RECV
        for offset, length, _, of_payload in held_bytes(pattern, rank, world, size) // INT32:
            memory[rank][buffer][offset:][:length] = own[of_payload:][:length]
    everybody = [
        calls_of(find_program(name), facts(name, size // INT32), layout, 1.0, rank, world)
        for rank, layout in enumerate(layouts)
    ]
    for calls in zip(*everybody, strict=True):
        count, root = calls[0].count, calls[0].root
        assert {(call.name, call.count, call.root) for call in calls} == {
            (find_program(name).nccl_call, count, root)
        }
        sent = count * world if name == "reduce_scatter" else count

        def at(rank: int, place: tuple[BufferId, int]) -> np.ndarray:
            buffer, offset = place
            return memory[rank][buffer][offset // INT32 :]

        inputs = [at(rank, call.source)[:sent].copy() for rank, call in enumerate(calls)]
        for rank, call in enumerate(calls):
            if name == "reduce" and rank != root:
                continue
            result = result_of(name, inputs, rank, call)
            at(rank, call.target)[: result.size] = result
    return [each[BufferId.RECV] for each in memory]


def result_of(name: str, inputs: list[np.ndarray], rank: int, call: Call) -> np.ndarray:
    if name == "broadcast":
        return inputs[call.root]
    if name == "all_gather":
        return np.concatenate(inputs)
    whole = np.sum(inputs, axis=0, dtype=np.int32)
    return whole[rank * call.count :][: call.count] if name == "reduce_scatter" else whole


def payload(rank: int, elements: int) -> np.ndarray:
    return np.arange(elements, dtype=np.int32) * 7 + rank * 1000


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if find_program(name).nccl_call])
def test_a_call_has_what_the_pattern_promises(name: str, world: int, in_place: bool) -> None:
    form = Form("ring", INT32, ROOT, in_place=in_place)
    pattern = repeated(find_program(name).pattern(form), COPIES)
    size = 48 * world
    found = made_by_calls(pattern, name, world, size)
    for rank in range(world):
        expected = pattern.expected(rank, world)
        recv = pattern.layout(rank, world, size)[BufferId.RECV]
        rows = (expected.dst_block, expected.origin_rank, expected.origin_block)
        wanted: dict[int, np.ndarray] = {}
        for block, origin, part in zip(*(each.tolist() for each in rows), strict=True):
            blocks = pattern.payload_of(origin, world, size)
            begin, length = int(blocks.offsets[part]) // INT32, int(blocks.lengths[part]) // INT32
            values = payload(origin, blocks.total_bytes // INT32)[begin:][:length]
            wanted[block] = wanted.get(block, 0) + values
        for block, values in wanted.items():
            begin = int(recv.offsets[block]) // INT32
            assert found[rank][begin:][: values.size].tolist() == values.tolist(), (rank, block)


def test_a_row_without_elements_calls_nothing() -> None:
    pattern = find_program("all_reduce").pattern(Form("ring", INT32))
    layout = repeated(pattern, COPIES).layout(0, 2, 0)
    assert calls_of(find_program("all_reduce"), facts("all_reduce", 0), layout, 1.0, 0, 2) == []


@pytest.mark.parametrize(
    ("arithmetic", "type_name", "redop", "lacks"),
    [
        (NEWEST, "float", "avg", False),
        (NEWEST, "f8e5m2", "mulsum", False),
        (Arithmetic(22809, 80, 2), "f8e4m3", "sum", True),
        (Arithmetic(22304, 90, 2), "f8e4m3", "max", True),
        (Arithmetic(20903, 70, 2), "bfloat16", "sum", True),
        (Arithmetic(20903, 70, 2), "float", "avg", True),
        (Arithmetic(21003, 70, 2), "float", "mulsum", True),
        (Arithmetic(22809, 90, 3), "float", "avg", True),
        (Arithmetic(22809, 90, 4), "half", "avg", False),
        (Arithmetic(22809, 90, 3), "int64", "avg", False),
    ],
)
def test_what_nccl_lacks_is_known_by_its_version_and_the_gpu(
    arithmetic: Arithmetic, type_name: str, redop: str, lacks: bool
) -> None:
    assert arithmetic.lacks(type_name, redop) is lacks


def test_all_ranks_lack_what_one_of_them_lacks() -> None:
    told = [{"version": "22809", "capability": "80"}, {"version": "22304", "capability": "90"}]
    assert arithmetic_of(told, 2) == Arithmetic(22304, 80, 2)


def test_the_reason_names_types_and_operations() -> None:
    given = {"pattern": "reduce", "datatype": "all", "op": "all"}
    everything = workload_of(load_settings(given, {}), 3)
    assert NEWEST.lacks_text(everything) == ""
    assert Arithmetic(22809, 80, 3).lacks_text(everything) == (
        "n/a for f8e4m3, f8e5m2 (NCCL reduces it on GPUs of compute capability 9.0 and later) and "
        "avg in floating point (NCCL divides before it adds, which rounds with 3 ranks)"
    )
    moving = workload_of(load_settings({"pattern": "all_gather", "datatype": "all"}, {}), 3)
    assert Arithmetic(20903, 70, 3).lacks_text(moving) == ""


def test_numbers_of_types_are_those_of_nccl() -> None:
    # ncclDataType_t since 2.24, which our types follow: a call is given their numbers.
    names = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double",
             "bfloat16", "f8e4m3", "f8e5m2")  # fmt: skip
    assert [ElementType.of_label(name) for name in names] == list(range(12))

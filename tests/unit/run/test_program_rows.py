"""What rows a program has, which algorithm each, and what is refused beforehand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tcpx_mpi.config.parsers import split_of
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import canonical, find_program
from tcpx_mpi.patterns.groups import group_numbers, in_groups
from tcpx_mpi.patterns.matrix import parse_matrix
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.run.choose_algorithm import Costs, as_many_bytes, choose_algorithm, costs_of
from tcpx_mpi.run.plan import RowFacts
from tcpx_mpi.run.program_rows import ProgramRows, program_rows
from tcpx_mpi.schedule.interpreter import EngineModel, prove


def settings(pattern: str, environ: Mapping[str, str] | None = None, **cli: str) -> Settings:
    return load_settings({"pattern": pattern, **cli}, environ or {})


def rows(pattern: str, world: int = 4, **cli: str) -> ProgramRows:
    found = program_rows(settings(pattern, **cli), world)
    assert found is not None
    return found


def facts(program: ProgramRows, size: int) -> RowFacts:
    of_program = program.facts(program.variants[0], size)
    return RowFacts(
        index=0, cycle=0, chunk_bytes=64, slots=2, iterations=1, warmup_iterations=0, **of_program
    )


def test_names_may_end_as_those_of_nccl_tests() -> None:
    assert [canonical(name) for name in ("all_reduce_perf", "all_reduce", "ring_perf")] == [
        *("all_reduce", "all_reduce", "ring_perf")
    ]


def test_types_come_first_then_operations_then_roots() -> None:
    found = rows("reduce", 2, datatype="all", op="all", root="all").variants
    assert len(found) == 12 * 6 * 2
    assert [(v.type_name, v.redop, v.root) for v in found[:3]] == [
        ("int8", "sum", 0), ("int8", "sum", 1), ("int8", "prod", 0)
    ]  # fmt: skip
    assert [(v.redop, v.root) for v in rows("all_gather", op="all", root="1").variants] == [
        ("none", -1)
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("AND 0x1", [0, 1, 0, 1]),
        ("& 0b10", [0, 0, 2, 2]),
        ("or 2", [2, 3, 2, 3]),
        ("|2", [2, 3, 2, 3]),
        ("MOD 2", [0, 1, 0, 1]),
        ("%2", [0, 1, 0, 1]),
        ("div 2", [0, 0, 1, 1]),
        ("/ 2", [0, 0, 1, 1]),
    ],
)
def test_groups_are_written_as_in_nccl_tests(text: str, numbers: list[int]) -> None:
    split = split_of(("AND", "OR", "MOD", "DIV"))("NCCL_TESTS_SPLIT", text)
    assert group_numbers(split, 4) == numbers
    assert split_of(("AND",))("NCCL_TESTS_SPLIT_MASK", "0x7") == "AND 7"


@pytest.mark.parametrize("text", ["XOR 2", "MOD", "MOD 0", "2", "AND x", "AND -1", "MOD 2 3"])
def test_other_ways_to_make_groups_are_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"NCCL_TESTS_SPLIT \(.*\)") as caught:
        split_of(("AND", "OR", "MOD", "DIV"))("NCCL_TESTS_SPLIT", text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("split", ["MOD 2", "DIV 3"])
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "alltoall"])
def test_a_program_keeps_its_promise_in_groups(split: str, name: str) -> None:
    program = find_program(name)
    for in_place in (False, True) if program.in_place else (False,):
        pattern = program.pattern(Form(program.algos[0], 4, in_place=in_place))
        outcome = prove(in_groups(pattern, group_numbers(split, 6)), 6, 96, EngineModel(8))
        numbers = group_numbers(split, 6)
        assert all(numbers[a] == numbers[b] for a, b in outcome.link_bytes)


@pytest.mark.parametrize(
    ("pattern", "world", "cli", "environ", "words"),
    [
        ("broadcast", 4, {"root": "4"}, {}, "-r/--root (4) is none of 4 ranks; use 0 to 3, or all"),
        ("all_reduce", 4, {"algo": "tree"}, {}, "--algo (tree) is none of all_reduce"),
        ("all_reduce", 1, {}, {}, "all_reduce needs at least 2 ranks; found 1"),
        ("all_reduce", 4, {}, {"NCCL_TESTS_SPLIT": "DIV 3"}, "makes groups of 1, 3 of 4 ranks"),
        ("ring", 4, {}, {"NCCL_TESTS_SPLIT": "MOD 2"}, "makes groups for nccl-tests' programs"),
        ("hypercube", 4, {"against": "nccl"}, {}, "--against nccl has no hypercube; use --against"),
        ("alltoallv", 4, {"matrix": "/no/such"}, {}, "--matrix (/no/such): no such file"),
        (
            "alltoallv", 4, {"matrix": "m", "minbytes": "4", "maxbytes": "8", "stepfactor": "2"},
            {}, "-b/--minbytes and -e/--maxbytes must be equal with --matrix",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    pattern: str, world: int, cli: Mapping[str, str], environ: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        program_rows(settings(pattern, environ, **cli), world)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("1 2\n3 x\n", "line 2, column 3: x is no number of bytes"),
        ("1 -2\n3 4\n", "line 1, column 3: -2 is no number of bytes"),
        ("1 2\n\n3\n", "line 3: 1 numbers, and 2 in the rows above it"),
        ("1 2\n", "1 rows of 2 numbers"),
        ("1e13 2\n3 4\n", "line 1, column 1: 1e13 is no number of bytes"),
        ("nan 2\n3 4\n", "line 1, column 1: nan is no number of bytes"),
    ],
)
def test_a_malformed_matrix_is_named_by_line_and_column(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_matrix(text, 1.0, "--matrix (m)")
    assert words in str(caught.value)


def test_numbers_of_a_matrix_are_scaled_and_rounded_down_to_sixteen_bytes() -> None:
    assert parse_matrix("0 40\n15.9\t100\n", 2.0, "m") == ((0, 80), (16, 192))


def test_small_sizes_have_few_messages_and_large_ones_few_bytes() -> None:
    program = rows("all_reduce", 16)
    costs = Costs(latency_ns=20_000, ns_a_byte=1.0)
    assert choose_algorithm(facts(program, 1024), program, costs).algo == "doubling"
    assert choose_algorithm(facts(program, 1 << 30), program, costs).algo == "ring"
    asked = rows("all_reduce", 16, algo="ring")
    assert choose_algorithm(facts(asked, 8), asked, costs).algo == "ring"


def test_latency_and_bandwidth_come_from_a_small_and_a_large_row() -> None:
    program = rows("all_reduce", 4)
    # Ring: 6 messages of 10 us, and 1.5 bytes sent a byte at 2 GB/s.
    small, large = 64, 64 << 20
    times = [60_000 + int(1.5 * size * 0.5) for size in (small, large)]
    found = costs_of(program, [small, large], times)
    assert found.latency_ns == pytest.approx(10_000, rel=0.01)
    assert found.ns_a_byte == pytest.approx(0.5, rel=0.01)
    assert costs_of(program, [small, small], [60_000, 60_000]).ns_a_byte == 0


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("alltoall", ["pairwise"]), ("alltoallv", ["pairwise"]), ("all_gather", ["doubling"]),
        ("reduce_scatter", ["halving"]), ("all_reduce", []), ("broadcast", []),
    ],
)  # fmt: skip
def test_algorithms_that_send_as_many_bytes_are_each_measured(name: str, others: list[str]) -> None:
    assert as_many_bytes(rows(name, 8), 1 << 20) == others
    assert as_many_bytes(rows(name, 8), 0) == []


def test_pairwise_is_taken_where_it_was_faster_and_not_where_latency_counts() -> None:
    program = rows("alltoall", 8)
    sizes, large = [128, 8 << 20], 7 << 20
    spread, pairwise = round(10_000 + 0.5 * large), round(7 * 10_000 + 0.3 * large)
    costs = costs_of(program, sizes, [10_056, spread], {"pairwise": pairwise})
    assert costs.of_byte("pairwise") == pytest.approx(0.3, rel=0.01)
    assert costs.facts()["algo_others_gb_per_s"].startswith("pairwise 3.3")
    chosen = [choose_algorithm(facts(program, size), program, costs).algo for size in sizes]
    assert chosen == ["spread", "pairwise"]
    slower = costs_of(program, sizes, [10_056, spread], {"pairwise": 2 * pairwise})
    assert choose_algorithm(facts(program, sizes[1]), program, slower).algo == "spread"

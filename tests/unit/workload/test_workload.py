"""What a run sends: its rows, what runs in each, which algorithm, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from tcpx_mpi.config.parsers import split_of
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import NAMES, RECORDED, canonical, find_program, load
from tcpx_mpi.patterns.groups import group_numbers, in_groups
from tcpx_mpi.patterns.matrix import parse_matrix, read_sequence
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.records import RowFacts
from tcpx_mpi.run.admission import warnings
from tcpx_mpi.run.choose_algorithm import Costs, as_many_bytes, choose_algorithm, costs_of
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.workload import Variant, Workload, memory, workload_of


def settings(pattern: str, environ: Mapping[str, str] | None = None, **cli: str) -> Settings:
    return load_settings({"pattern": pattern, **cli}, environ or {})


def workload(pattern: str, world: int = 4, **cli: str) -> Workload:
    return workload_of(settings(pattern, **cli), world)


def facts(of: Workload, size: int, **more: str) -> RowFacts:
    """Of the first row."""
    return RowFacts(
        index=0, cycle=0, chunk_bytes=64, slots=2, iterations=1, warmup_iterations=0,
        **{**of.facts(of.variants[0], size), **more},
    )  # fmt: skip


def pattern_of(name: str, world: int = 4, **cli: str) -> Pattern:
    return workload(name, world, **cli).single


# --- Forms ----------------------------------------------------------------------------------------


def test_a_pattern_of_bytes_has_one_variant_and_what_its_row_runs_is_itself() -> None:
    ring = workload("ring", root="1", op="max", algo="tree")
    assert ring.variants == [Variant()]
    (runs,) = ring.runs(facts(ring, 10))
    assert (runs.name, ring.chooses, ring.cycles) == ("ring", False, 1)
    assert runs.schedule(0, 4).table.tolist() == load("ring").schedule(0, 4).table.tolist()
    assert ring.connecting_pattern.schedule(0, 4).peers_sent == [(1, 0)]


def test_the_settings_choose_the_root_of_a_fan_and_the_seed_of_a_permutation() -> None:
    for name in ("fan_in", "fan_out"):
        assert pattern_of(name, 5, root="3").schedule(3, 5).steps == 4
        assert warnings([], settings(name, root="3")) == []
    notes = [pattern_of("permutation", seed=seed).notes for seed in ("1", "2")]
    assert notes == [(f"who sends to whom is drawn by --seed {seed}",) for seed in (1, 2)]


def test_a_matrix_is_read_once_and_has_the_numbers_of_its_file_times_the_scale(
    tmp_path: Path,
) -> None:
    file = tmp_path / "weights"
    file.write_text("0 1.5\n1 0\n")
    cli = {"matrix": str(file), "matrix_scale": "2"}
    assert warnings([], settings("matrix", **cli)) == []
    found = workload("matrix", 2, **cli)
    file.unlink()
    assert found.fingerprint() == "matrix=((0, 3), (2, 0))"
    layout = found.single.layout(1, 2, 300)
    assert layout[BufferId.SEND].lengths.tolist() == [200, 0]
    assert workload("ring", 2, **cli).fingerprint() == ""


def test_a_load_is_that_of_the_settings_and_the_row_runs_alone_first() -> None:
    loaded = workload("loaded_pingpong", 2, load="1000")
    alone, both = loaded.runs(facts(loaded, 8))
    assert both.layout(0, 2, 8)[BufferId.SEND].lengths.tolist() == [8, 500, 500]
    assert alone.layout(0, 2, 8)[BufferId.SEND].lengths.tolist() == [8]
    assert loaded.connecting_pattern.schedule(0, 2).peers_sent == [(1, 0), (1, 1), (1, 2)]


def test_a_row_of_rounds_runs_the_round_of_its_cycle_or_the_pairs_that_it_is_given() -> None:
    for cli, cycles in (({}, 2), ({"all": "1"}, 6)):
        pairs = workload("pairs", **cli)
        assert pairs.cycles == cycles
        sent = []
        for cycle in range(cycles):
            (one,) = pairs.runs(dataclasses.replace(facts(pairs, 8), cycle=cycle))
            sent += [peer for rank in range(4) for peer, _ in one.schedule(rank, 4).peers_sent]
        assert len(sent) == 2 * cycles
    (chosen,) = pairs.runs(facts(pairs, 8, pairs="0>1 3>2"))
    assert chosen.schedule(3, 4).peers_sent == [(2, 0)]


def test_a_program_runs_out_of_place_and_in_place_with_the_peers_of_all_its_rows() -> None:
    reduce = workload("reduce", 4, root="all", algo="tree", agg_iters="2")
    assert [each.held is None for each in reduce.runs(facts(reduce, 64))] == [True, False]
    peers = {peer for peer, _ in reduce.connecting_pattern.schedule(1, 4).peers_sent}
    assert peers == {
        peer
        for root in range(4)
        for peer, _ in find_program("reduce")
        .pattern(Form("tree", root=root))
        .schedule(1, 4)
        .peers_sent
    }


# --- Rows -----------------------------------------------------------------------------------------


def test_names_may_end_as_those_of_nccl_tests() -> None:
    assert [canonical(name) for name in ("all_reduce_perf", "all_reduce", "ring_perf")] == [
        *("all_reduce", "all_reduce", "ring_perf")
    ]


def test_types_come_first_then_operations_then_roots() -> None:
    found = workload("reduce", 2, datatype="all", op="all", root="all").variants
    assert len(found) == 12 * 6 * 2
    assert [(v.type_name, v.redop, v.root) for v in found[:3]] == [
        ("int8", "sum", 0), ("int8", "sum", 1), ("int8", "prod", 0)
    ]  # fmt: skip
    assert [(v.redop, v.root) for v in workload("all_gather", op="all", root="1").variants] == [
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


LARGE = "that it may have; use a larger --chunk, or a smaller -m or -e"


@pytest.mark.parametrize(
    ("pattern", "cli", "environ", "words"),
    [
        ("broadcast", {"root": "4"}, {}, "-r/--root (4) is none of 4 ranks; use 0 to 3, or all"),
        ("fan_in", {"root": "4"}, {}, "-r/--root (4) is none of 4 ranks; use 0 to 3"),
        ("fan_in", {"root": "all"}, {}, "give fan_in one rank, or use gather or scatter"),
        ("all_reduce", {"algo": "tree"}, {}, "--algo (tree) is none of all_reduce"),
        ("all_reduce", {}, {"NCCL_TESTS_SPLIT": "DIV 3"}, "makes groups of 1, 3 of 4 ranks"),
        ("ring", {}, {"NCCL_TESTS_SPLIT": "MOD 2"}, "makes groups for nccl-tests' programs"),
        ("hypercube", {"against": "nccl"}, {}, "--against nccl has no hypercube; use --against"),
        ("alltoallv", {"matrix": "/no/such"}, {}, "--matrix (/no/such): no such file"),
        ("matrix", {"matrix": "/no/such"}, {}, "--matrix (/no/such): no such file"),
        (
            "alltoallv", {"matrix": "m", "minbytes": "4", "maxbytes": "8", "stepfactor": "2"},
            {}, "-b/--minbytes and -e/--maxbytes must be equal with --matrix",
        ),
        ("loaded_pingpong", {"against": "raw"}, {}, "has no loaded_pingpong: run pingpong beside"),
        ("loaded_pingpong", {"agg_iters": "2"}, {}, "-m/--agg_iters (2) is more than the one"),
        ("moe", {"moe": "mixtral,experts=6"}, {}, "--moe: 4 ranks do not divide 6 experts; start"),
        ("moe", {"moe": "experts=4,topk=8"}, {}, "topk (8) is more than the experts there are (4)"),
        ("moe", {"sizes": "1T"}, {}, "(1099511627776) is more than 1048576 tokens of 7168 bytes"),
        ("moe", {"agg_iters": "2"}, {}, "-m/--agg_iters (2) is more than the one matrix"),
        ("moe", {"moe": "mixtral", "chunk": "8"}, {}, LARGE),
        ("incast", {"stagger": "1ms"}, {}, "--stagger (0.001s) is of iterations that start"),
        ("incast", {"senders": "4"}, {}, "--senders (4) is more than the 3 other ranks"),
        ("matrix", {"sequence": "/no/such"}, {}, "--sequence (/no/such): no such file"),
        ("matrix", {"sequence": "a", "matrix": "b"}, {}, "both say who sends how much"),
        ("all_reduce", {"unalign": "1", "against": "mpi"}, {}, "is not of mpi's own Allreduce"),
        ("torus", {}, {}, "unknown pattern torus: use one of pair"),
        # A schedule, or a buffer, that no rank has memory for.
        *(
            (name, {"sizes": "1T", "agg_iters": "100000000"}, {},
             "(1099511627776) times -m/--agg_iters (100000000) is more than any buffer")
            for name in ("all_reduce", "ring")
        ),
        ("ring", {"sizes": "1G", "chunk": "1"}, {}, LARGE),
        ("all_reduce", {"sizes": "4K,1G", "chunk": "8"}, {}, LARGE),
        ("alltoall", {"sizes": "1K", "agg_iters": "100000000"}, {}, LARGE),
        ("pair", {"sizes": "8", "agg_iters": "100000000"}, {}, LARGE),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    pattern: str, cli: Mapping[str, str], environ: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        workload_of(settings(pattern, environ, **cli), 4)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_schedule_that_users_run_is_refused_and_few_steps_need_no_closer_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload("mesh", 4096, sizes="16G")
    workload("ring", 2, agg_iters="4096")

    def made(*of: object) -> int:
        raise AssertionError("few steps need no closer look")

    monkeypatch.setattr(memory, "_bytes_of_a_copy", made)
    for name in NAMES.keys() - {RECORDED}:
        workload(name, 16, sizes="1G")


def test_where_ranks_have_taken_their_places_a_smaller_chunk_is_seen() -> None:
    found = workload("ring", 2, sizes="1G")
    with pytest.raises(UsageError, match="makes a schedule of"):
        found.placed(dataclasses.replace(found.settings, chunk_bytes=1))


def test_a_sequence_is_files_of_a_matrix_or_of_a_matrix_a_line(tmp_path: Path) -> None:
    one, many, odd = (tmp_path / name for name in ("one", "many", "odd"))
    one.write_text("0 1\n2 0\n")
    many.write_text("0 3 0 0\n\n0 0 4 0\n0 5 6 0\n")
    found = read_sequence([str(many), str(one)], 10)
    assert found == [((0, 30), (0, 0)), ((0, 0), (40, 0)), ((0, 50), (60, 0)), ((0, 10), (20, 0))]
    odd.write_text("0 3 0 0\n0 0 4\n0 1 1 0\n")
    with pytest.raises(UsageError, match="line 2: 3 numbers, and 4 in the first line"):
        read_sequence([str(odd)], 1)
    odd.write_text("0 3 0 x\n0 0 4 1\n")
    with pytest.raises(UsageError, match="line 1, number 4: x is no number of bytes"):
        read_sequence([str(odd)], 1)


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
    program = workload("all_reduce", 16)
    costs = Costs(latency_ns=20_000, ns_a_byte=1.0)
    assert choose_algorithm(facts(program, 1024), program, costs).algo == "doubling"
    assert choose_algorithm(facts(program, 1 << 30), program, costs).algo == "ring"
    asked = workload("all_reduce", 16, algo="ring")
    assert choose_algorithm(facts(asked, 8), asked, costs).algo == "ring"


def test_latency_and_bandwidth_come_from_a_small_and_a_large_row() -> None:
    program = workload("all_reduce", 4)
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
    assert as_many_bytes(workload(name, 8), 1 << 20) == others
    assert as_many_bytes(workload(name, 8), 0) == []


def test_pairwise_is_taken_where_it_was_faster_and_not_where_latency_counts() -> None:
    program = workload("alltoall", 8)
    sizes, large = [128, 8 << 20], 7 << 20
    spread, pairwise = round(10_000 + 0.5 * large), round(7 * 10_000 + 0.3 * large)
    costs = costs_of(program, sizes, [10_056, spread], {"pairwise": pairwise})
    assert costs.of_byte("pairwise") == pytest.approx(0.3, rel=0.01)
    assert costs.facts()["algo_others_gb_per_s"].startswith("pairwise 3.3")
    chosen = [choose_algorithm(facts(program, size), program, costs).algo for size in sizes]
    assert chosen == ["spread", "pairwise"]
    slower = costs_of(program, sizes, [10_056, spread], {"pairwise": 2 * pairwise})
    assert choose_algorithm(facts(program, sizes[1]), program, slower).algo == "spread"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": "10"}, "--multi-recv (4) and --rate exclude each other: give one of them"),
        ({"trace": "8"}, "--multi-recv (4) and --trace exclude each other: give one of them"),
        ({"window_send": "3"}, "--window-send (3) is smaller than the 4 messages of one request "),
        ({"window_recv": "2"}, "--window-recv (2) is smaller than the 4 messages of one request "),
    ],
)
def test_what_several_messages_a_chunk_cannot_be_with(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        workload("pair", multi_recv="4", **options)
    assert said in str(refused.value)
    workload("pair", multi_recv="4", window_send="4", window_recv="4")
    workload("pair", **options)

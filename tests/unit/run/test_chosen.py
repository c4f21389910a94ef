"""Which pattern of a family the settings choose, and what of them has an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import load
from tcpx_mpi.run.admission import warnings
from tcpx_mpi.run.chosen import pattern_of, weights_of
from tcpx_mpi.schedule.table import BufferId


def settings(pattern: str, **cli: str) -> Settings:
    return load_settings({"pattern": pattern, **cli}, {})


def test_other_patterns_are_those_of_their_name() -> None:
    assert pattern_of(settings("ring", root="1")) is load("ring")


@pytest.mark.parametrize("name", ["fan_in", "fan_out"])
def test_a_fan_has_the_root_of_the_settings(name: str) -> None:
    asked = settings(name, root="3")
    assert warnings([], asked) == []
    pattern = pattern_of(asked)
    assert pattern.refuse(3) == "-r/--root (3) is none of 3 ranks; use 0 to 2"
    assert pattern.schedule(3, 5).steps == 4
    assert pattern_of(settings(name)) is load(name)


def test_a_fan_has_one_root() -> None:
    with pytest.raises(UsageError, match="give fan_in one rank, or use gather or scatter"):
        pattern_of(settings("fan_in", root="all"))


def test_a_permutation_has_the_seed_of_the_settings() -> None:
    one, two = (pattern_of(settings("permutation", seed=seed)) for seed in ("1", "2"))
    assert one is load("permutation")
    assert one.notes == ("who sends to whom is drawn by --seed 1",)
    assert two.notes == ("who sends to whom is drawn by --seed 2",)


def test_a_matrix_has_the_numbers_of_its_file_times_the_scale(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("0 1.5\n1 0\n")
    asked = settings("matrix", matrix=str(file), matrix_scale="2")
    assert warnings([], asked) == []
    assert weights_of(asked) == ((0, 3), (2, 0))
    layout = pattern_of(asked).layout(1, 2, 300)
    assert layout[BufferId.SEND].lengths.tolist() == [200, 0]
    assert weights_of(settings("ring", matrix=str(file))) is None


def test_a_matrix_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("0 1\n1 x\n")
    with pytest.raises(UsageError, match=r"weights\), line 2, column 3: x is no number of bytes"):
        pattern_of(settings("matrix", matrix=str(file)))


def test_a_matrix_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("0 1\n1 0\n")
    asked = settings("matrix", matrix=str(file))
    agreed = weights_of(asked)
    file.unlink()
    assert weights_of(asked) == agreed


def test_a_load_is_that_of_the_settings_and_nothing_else_takes_turns_with_it() -> None:
    pattern = pattern_of(settings("loaded_pingpong", load="1000"))
    assert pattern.layout(0, 2, 8)[BufferId.SEND].lengths.tolist() == [8, 500, 500]
    for options, words in (
        ({"against": "raw"}, "--against has no loaded_pingpong: run pingpong beside peers"),
        ({"agg_iters": "2"}, "-m/--agg_iters (2) is more than the one round trip"),
    ):
        with pytest.raises(UsageError) as caught:
            pattern_of(settings("loaded_pingpong", **options))
        assert words in str(caught.value)

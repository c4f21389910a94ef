"""What a rank is refused for, what its parent has refused for it, and what is only warned of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.launch.launcher_rank import LauncherRank
from tcpx_mpi.run.admission import RUN, admit_parent, admit_rank, read_settings, warnings


def admitted(
    values: Mapping[str, str | None],
    rank: int = 0,
    world: int | None = 2,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a rank of `run`."""
    environ = environ or {}
    return admit_rank(read_settings(values, environ), environ, LauncherRank(rank, world), RUN)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_ranks_must_agree_with_a_launcher(tmp_path: Path) -> None:
    values = {"pattern": "ring", "ranks": "4", "spool": str(tmp_path)}
    with pytest.raises(UsageError, match=r"--ranks \(4\).*launcher \(2\)"):
        admitted(values, world=2)
    assert admitted(values, world=4).ranks == 4
    assert admitted(values, world=None).ranks == 4


def test_ranks_of_a_file_give_way_to_a_launcher_and_say_so(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('pattern = "ring"\nranks = 2\n')
    values = {"pattern": None, "config": str(file), "spool": str(tmp_path), "hdf5": "none"}
    found = admitted(values, world=4)
    assert (found.ranks, found.sources["ranks"]) == (4, f"by the launcher, not 2 of file {file}")
    assert admitted(values, world=2).sources["ranks"] == f"file {file}: ranks"
    with pytest.raises(UsageError, match=r"--ranks \(3\).*launcher \(4\)"):
        admitted({**values, "ranks": "3"}, world=4)


def test_only_a_process_that_writes_results_needs_to_be_able_to() -> None:
    values = {"pattern": "ring", "hdf5": "/no/such/x.h5", "output_file": "/no/such/x.json"}
    assert admitted(values, rank=1).pattern == "ring"
    with pytest.raises(UsageError, match="/no/such"):
        admitted(values, rank=0)


def test_no_hdf5_file_needs_no_place_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = {"pattern": "ring", "hdf5": "none"}
    assert admitted(values, world=2).hdf5_path == "none"


# --- What a parent has seen -----------------------------------------------------------------------

PARENT = {"TCPX_MPI_PARENT": "1"}
#: Each a mistake that a rank sees by itself: options, and variables.
MISTAKES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "chunk": ({}, {"NCCL_DYNAMIC_CHUNK_SIZE": "4096"}),
    "limit": ({}, {"NCCL_TESTS_MIN_BW": "much"}),
    "gate": ({"gate": "/no/such.toml"}, {}),
    "spool": ({"spool": "/no/such"}, {}),
    "output": ({"output_file": "/no/such/o.json"}, {}),
}
OF_THE_NODE = ("gate", "spool", "output")


def test_a_profile_that_is_not_there_is_seen_with_the_options_that_it_may_have() -> None:
    with pytest.raises(UsageError, match=r"--profile: /no/such\.toml: no such file"):
        read_settings({"pattern": "ring", "profile": "/no/such.toml"}, {})


def is_refused(mistake: str, environ: Mapping[str, str]) -> bool:
    options, variables = MISTAKES[mistake]
    try:
        admitted({"pattern": "ring", **options}, environ={**environ, **variables})
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_rank_does_not_repeat_what_its_parent_has_seen(mistake: str) -> None:
    assert is_refused(mistake, {})
    assert not is_refused(mistake, PARENT)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_rank_looks_at_its_own_node_if_its_parent_may_be_on_another(mistake: str) -> None:
    assert is_refused(mistake, {**PARENT, "SLURM_JOB_ID": "7"}) == (mistake in OF_THE_NODE)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_parent_sees_all_that_ranks_would(mistake: str) -> None:
    options, variables = MISTAKES[mistake]
    settings = read_settings({"pattern": "ring", "plugin": "null", **options}, variables)
    with pytest.raises(UsageError):
        admit_parent(settings, variables, 2, RUN)


# --- Without effect -----------------------------------------------------------------------------


def given(**cli_values: object) -> Settings:
    return load_settings({"pattern": "ring", **cli_values}, {})


def test_everything_without_effect_is_named_in_one_warning() -> None:
    found = warnings(["-g", "-t"], given(op="sum", root="1"))
    assert len(found) == 1
    assert all(flag in found[0] for flag in ("-g", "-t", "-o", "-r"))
    assert "-d" not in found[0]


def test_nothing_without_effect_is_no_warning() -> None:
    assert warnings([], given(channels="4")) == []
    (idle,) = warnings([], given(max_time="3s"))
    assert "--max-time (it bounds --ci, which is not given)" in idle
    assert warnings([], given(max_time="3s", ci="0.05")) == []


@pytest.mark.parametrize(
    ("option", "values", "used"),
    [
        ("--all", {"all": "1"}, {"pattern": "pairs"}),
        ("--unpack", {"unpack": "d2d", "memory": "host"}, {"memory": "emulated"}),
        ("--nccl-preset", {"nccl_preset": "tuned"}, {"against": "nccl"}),
        ("--nccl-env", {"nccl_env": "NCCL_X=1"}, {"against": "nccl"}),
    ],
)
def test_an_option_of_something_that_is_not_there_is_named(
    option: str, values: dict[str, str], used: dict[str, str]
) -> None:
    (line,) = warnings([], given(**values))
    assert line.startswith("ignored: ")
    assert option in line
    assert warnings([], given(**{**values, **used})) == []

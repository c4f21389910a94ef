"""The JSON of a run: the keys of nccl-tests, real values, and files that are never overwritten."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import invented
import numpy as np
import pytest
from judged import run_of

from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import Fault, Plan
from tcpx_mpi.report import json_text, to_json, write_json, write_run_json


def document_of(*args: Any, **more: Any) -> dict[str, Any]:
    """The document as a reader gets it, strictly by the standard."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = json.dumps(to_json(run_of(*args, **more)))
    parsed: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return parsed


#: The keys of nccl-tests' version 3, by the object that has them.
DOCUMENT_KEYS = """version start_time args env nccl_version config results out_of_bounds
    average_bus_bandwidth errors end_time"""
CONFIG_KEYS = """nthreads ngpus minimum_bytes maximum_bytes warmup_iters iterations
    aggregated_iterations validation graph blocking_collectives per_iter_timing per_iter_skip
    parallel_init devices"""
DEVICE_KEYS = "rank group pid hostname device device_hex device_info"
RESULT_KEYS = """size count type redop root out_of_place out_of_place_per_iter in_place
    actual_iterations experiment_name"""
PER_ITER_KEYS = """skipped_iterations min_us max_us avg_us p50_us p95_us p99_us stdev_us cv_pct
    times_us"""


def test_the_keys_of_nccl_tests_are_all_there() -> None:
    document = document_of([invented.row(0)])
    (result,) = document["results"]
    assert document["version"] == 3
    assert document.keys() >= set(DOCUMENT_KEYS.split())
    assert document["config"].keys() >= set(CONFIG_KEYS.split())
    assert document["config"]["devices"][0].keys() >= set(DEVICE_KEYS.split())
    assert result.keys() >= set(RESULT_KEYS.split())
    assert set(result["out_of_place"]) == {"time", "alg_bw", "bus_bw", "nwrong"}
    assert result["out_of_place_per_iter"].keys() >= set(PER_ITER_KEYS.split())


def test_values_are_numbers_booleans_and_null_and_not_text() -> None:
    document = document_of([invented.row(0)])
    (result,) = document["results"]
    assert (result["size"], result["root"], result["out_of_place"]["nwrong"]) == (1024, -1, 0)
    assert result["out_of_place"]["time"] == pytest.approx(1.1595)
    assert result["in_place"] is None
    assert result["checked"] is True
    assert document["config"]["blocking_collectives"] is False
    assert document["out_of_bounds"] == {"count": 0, "okay": True}
    assert document["average_bus_bandwidth"]["okay"] is None
    assert document["config"]["step_factor"] == 2
    assert document["config"]["step_bytes"] is None
    assert document["env"] == ["NCCL_DEBUG=INFO"]


def test_what_is_unknown_is_null() -> None:
    row = invented.row(0, receives=np.zeros(4, dtype=bool))
    row.net_sent[0] = -1
    (result,) = document_of([row])["results"]
    assert result["out_of_place"] == {
        "time": None,
        "alg_bw": None,
        "bus_bw": None,
        "nwrong": None,
    }
    assert result["out_of_place_per_iter"]["p50_us"] is None
    assert result["net_bytes_sent"] is None
    assert result["t_max_rank"] is None
    assert result["time_us_by_rank"] == [None] * 4
    assert document_of([])["average_bus_bandwidth"]["bandwidth"] is None


def test_percentiles_of_too_few_iterations_are_null() -> None:
    (result,) = document_of([invented.row(0)])["results"]
    per_iteration = result["out_of_place_per_iter"]
    assert per_iteration["p50_us"] == pytest.approx(1.309)
    assert per_iteration["p95_us"] is None
    assert per_iteration["p99_9_us"] is None


def test_every_iteration_is_there_when_asked_for() -> None:
    plan = Plan(sizes=(1024,), per_iter_timing=True)
    header = invented.run_header(plan=plan)
    (result,) = document_of([invented.row(0)], header)["results"]
    times = result["out_of_place_per_iter"]["times_us"]
    assert times == pytest.approx([1.3 + index / 1000 for index in range(20)])


def test_wrong_bytes_and_faults_are_errors() -> None:
    row = invented.row(0, wrong=np.array([0, 3, 0, 0], dtype=np.int64), faults=["rank 1: byte 7"])
    document = document_of([row], complete=False, fault=Fault("wrong bytes", 5, {0: "no"}, (2,)))
    assert document["out_of_bounds"] == {"count": 3, "okay": False}
    assert document["errors"] == ["rank 1: byte 7", "no"]
    ours = document["tcpx_mpi"]
    assert ours["complete"] is False
    assert ours["fault"]["missing_ranks"] == [2]
    assert "an answer of rank 2" in ours["missing"]


def test_the_circumstances_go_with_the_result() -> None:
    ours = document_of([invented.row(0)])["tcpx_mpi"]
    assert ours["plugin"]["abi"] == 7
    assert ours["settings"][1] == {"name": "seed", "value": "7", "source": "command line --seed"}
    assert ours["setup"][0] == {
        "rank": 0,
        "phase": "listen",
        "peer": -1,
        "lane": 0,
        "channel": -1,
        "ns": 1000,
    }


def test_an_existing_document_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    path.write_text("precious")
    document = to_json(run_of([invented.row(0)]))
    assert write_json(str(path), document) == f"{path}.0"
    assert write_json(str(path), document) == f"{path}.1"
    assert path.read_text() == "precious"
    assert json.loads(Path(f"{path}.0").read_text()) == json.loads(json.dumps(document))


def test_a_document_that_is_no_json_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(str(tmp_path / "o.json"), {"x": math.nan})
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot create"):
        write_json(str(tmp_path / "no" / "o.json"), {})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_document_of_a_run_is_written_as_it_is(tmp_path: Path, count: int) -> None:
    header = invented.run_header(notes=['"results": []'], plan=Plan((1,), per_iter_timing=True))
    run = run_of([invented.row(index) for index in range(count)], header)
    path = write_run_json(str(tmp_path / "o.json"), run, ["o.h5"], {"results": []})
    expected = to_json(run, ["o.h5"], {"results": []})
    assert len(expected["results"]) == count
    assert json.loads(Path(path).read_text()) == expected
    if count:
        assert Path(path).read_text() == json.dumps(expected, indent=1) + "\n"


def test_a_row_that_cannot_be_read_leaves_no_half_of_a_document(tmp_path: Path) -> None:
    run = run_of([invented.row(0), invented.row(1, slots=None)])
    with pytest.raises(TypeError):
        write_run_json(str(tmp_path / "o.json"), run)
    assert list(tmp_path.iterdir()) == []


def test_the_text_has_all_the_times_that_the_document_has() -> None:
    head = invented.run_header(plan=Plan(sizes=(1024,), per_iter_timing=True))
    run = run_of([invented.row(0), invented.row(1)], head)
    document = to_json(run)
    times = document["results"][1]["out_of_place_per_iter"]["times_us"]
    assert len(times) == run.rows[1].iterations
    text = "".join(json_text(run)) + "\n}"
    assert json.loads(text) == json.loads(json.dumps(document))
    assert text.count("\n     ") > 2 * len(times)  # one a line, as everything

"""docs/reference/file-format.md: its program runs, and its tables name what is in a file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import h5py
import invented
import numpy as np
import pytest

from tcpx_mpi.records import PartialRow, Run, RunWriter, SideKey
from tcpx_mpi.records.described import DESCRIBED
from tcpx_mpi.report import to_json

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "file-format.md").read_text()
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
NAMES = set(re.findall(r"[A-Za-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", PROSE))))


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    arrivals = {"arrivals": np.zeros((4, 4, 8)), "arrival_blocks": np.full(8, 2, np.int64)}
    writer.append_row(
        invented.row(
            0, sides={SideKey("raw"): invented.row(0)}, clock=invented.row_clock(), **arrivals
        )
    )
    writer.append_partial(PartialRow(1, 2048, (0,), {}, {}))
    writer.fail("stall", 6, {0: "text"})
    return Path(writer.path)


def test_the_program_on_the_page_reads_a_file(run_file: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    child = subprocess.run(
        [sys.executable, "-c", program],
        cwd=run_file.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.stderr == ""
    assert child.stdout == "1024 1.3095 us, slowest of 4\n"


def test_the_page_names_everything_in_a_file(run_file: Path) -> None:
    found: set[str] = set()

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        found.add(name.split("/")[-1])
        found.update(item.attrs)
        if isinstance(item, h5py.Dataset) and item.dtype.names:
            found.update(item.dtype.names)

    with h5py.File(run_file, "r") as file:
        visit("rows", file)
        file.visititems(visit)
    # The columns of the plan and of text tables are as in the command line, or obvious.
    found -= {"text", "plan", "row_000001", "raw"}
    with h5py.File(run_file, "r") as file:
        found -= set(file["plan"].attrs)
    assert found - NAMES == set()


def lines_of_tables(title: str) -> dict[str, list[str]]:
    """By what the first cell names: the other cells of each line of the tables below a title."""
    (section,) = re.findall(rf"^### {title}\n(.*?)^##", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


@pytest.mark.parametrize("key", DESCRIBED)
def test_the_page_says_of_a_dataset_what_the_file_says(key: str) -> None:
    said = DESCRIBED[key]
    within, _, name = key.partition("/")
    if within != "rows":
        name = key.replace("partial/", "partial/.../")
        (text,) = lines_of_tables("The root")[name]
    elif name.startswith("warmup/"):
        shape, unit, text = lines_of_tables("A row")["warmup/..."]
        assert shape == f"[{', '.join(said.dimensions)}]"
        assert unit == said.units
        assert text.startswith("the same of the warm-ups")
        return
    else:
        shape, unit, text = lines_of_tables("A row")[name]
        assert shape == f"[{', '.join(said.dimensions) or 'n'}]"
        assert unit == (said.units if isinstance(said.units, str) else "by column")
    assert said.text in text


def test_the_page_has_no_other_datasets_of_a_row() -> None:
    said = {key.removeprefix("rows/") for key in DESCRIBED if key.startswith("rows/")}
    named = lines_of_tables("A row").keys() - {"dataset"}
    assert named - said == {"warmup/...", "against/NAME/"}


def test_the_page_names_every_key_of_a_result() -> None:
    run = Run("", invented.run_header(), invented.setup_times(), [invented.row(0)], True)
    document = json.loads(json.dumps(to_json(run)))
    (result,) = document["results"]
    keys = document.keys() | result.keys() | document["tcpx_mpi"].keys()
    keys |= document["config"]["devices"][0].keys() | result["out_of_place"].keys()
    keys |= result["out_of_place_per_iter"].keys() | {"devices"}
    # In-place has no figures; its keys are those of nccl-tests.
    assert keys - NAMES - {"in_place_per_iter"} == set()

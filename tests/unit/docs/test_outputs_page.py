"""docs/reference/outputs.md: its commands and programs run, its tables name every column."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import invented
import numpy as np
import pytest

from tcpx_mpi.cli.export import TABLES
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.exchange.tidy import tables_of
from tcpx_mpi.records import RunWriter, read_run
from tcpx_mpi.records.trace import COLUMNS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "outputs.md").read_text()
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
NAMES = set(re.findall(r"[A-Za-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", PROSE))))


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    writer = RunWriter(str(tmp_path / "o.h5"))
    ranks = [invented.rank_info(rank, clock=0) for rank in range(4)]
    writer.write_header(invented.run_header(ranks=ranks))
    writer.write_setup(invented.setup_times())
    for index in range(3):
        writer.append_row(invented.row(index, trace=np.zeros((1, len(COLUMNS)), np.int64)))
    writer.finish()
    return tmp_path


def ran(place: Path, *command: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, cwd=place, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_program_on_the_page_runs(place: Path) -> None:
    said = ran(place, sys.executable, "-c", block("python"))
    assert said.startswith("whole\n")
    # Rank 2 takes 1200 to 1219 ns.
    assert "1209.5" in said


@pytest.mark.variant
def test_the_commands_on_the_page_write_what_they_say(place: Path) -> None:
    said = ran(place, "sh", "-ec", block("sh"))
    assert "rank,host,node" in said
    written = {
        "o.csv",
        "o.rows.csv",
        "all.parquet",
        "o.json",
        "o.json.gz",
        *(f"{t}.csv" for t in TABLES),
    }
    assert {path.name for path in place.iterdir()} == {"o.h5", *written}
    assert (place / "samples.csv").read_text() == (place / "o.csv").read_text()
    assert json.loads((place / "o.json").read_text())["version"] == 3


def test_the_settings_on_the_page_are_settings(place: Path) -> None:
    (place / "run.toml").write_text(block("toml"))
    found = load_settings({"config": str(place / "run.toml")}, {})
    assert (found.pattern, found.sizes, found.channels) == ("ring", (1024, 65536, 1 << 20), 4)


def test_the_page_names_every_table_and_column(place: Path) -> None:
    tables = tables_of(read_run(str(place / "o.h5")))
    for name in ("samples", "rows", "against", "batches", "arrivals", "peers", "setup", "settings"):
        assert name in NAMES
        assert set(tables[name].columns) - NAMES == set()

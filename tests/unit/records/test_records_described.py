"""A file explains itself: to h5py, h5dump, pandas and xarray, and to whoever opens it first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import invented
import needs
import numpy as np
import pytest

from tcpx_mpi.records import FLUSH, Average, GpuRow, PartialRow, RunWriter, SideKey
from tcpx_mpi.records.described import DESCRIBED, NUMBER, README, TEXT
from tcpx_mpi.records.trace import COLUMNS

#: What a name that ends so says itself.
_SUFFIXES = {"ns": "ns", "us": "us", "bytes": "bytes", "gbps": "GB/s", "mbps": "Mbit/s"}
_VARIABLE = re.compile(r"^(rows|partial|clock)/row_[0-9]+/(against/[^/]+/)*(rank_[0-9]+/)?")
ITERATION = "rows/row_000000/samples/iteration"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with a dataset of every kind."""
    more: dict[str, Any] = {
        "arrivals": np.zeros((4, 4, 8)),
        "arrival_blocks": np.full(8, 2, np.int64),
        "trace": np.zeros((2, len(COLUMNS)), np.int64),
        "gpu": [GpuRow()] * 4,
        "averages": [Average("in_place", 1.0, 1.0, 1.0, 0)],
    }
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    clock = invented.row_clock()
    row = invented.row(0, sides={SideKey("raw"): invented.row(0)}, clock=clock, **more)
    for samples in (row.samples, row.warmup):  # as of a run that flushes its receives
        samples[FLUSH] = samples["receive"]  # type: ignore[index]  # not from a file
    writer.append_row(row)
    writer.append_row(invented.row(1, algo="ring"))
    samples = {0: invented.rank_row(0, invented.row_facts(2)).samples}
    writer.append_partial(PartialRow(2, 2048, (1, 2, 3), samples, samples))
    writer.fail("stall", 6, {0: "text"}, (3,))
    return writer.path


def datasets(path: str) -> Iterator[tuple[str, h5py.Dataset]]:
    """Each dataset, by its key in `DESCRIBED`."""
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visit(names.append)
        for name in names:
            if isinstance(file[name], h5py.Dataset):
                of_samples = "/samples/" in name or "/warmup/" in name
                kept = "partial/" if name.startswith("partial/") and not of_samples else "rows/"
                kept = "clock/" if name.startswith("clock/") else kept
                yield _VARIABLE.sub(kept, name), file[name]


def units_of(table: h5py.Dataset) -> dict[str, str]:
    """As a reader gets them who knows the page only."""
    return dict(item.split(": ") for item in table.attrs["units"].split("; "))


def test_every_dataset_says_what_it_is(path: str) -> None:
    found = set()
    for key, dataset in datasets(path):
        said = DESCRIBED[key]
        assert dataset.attrs["description"] == said.text, key
        assert dataset.attrs["units"], key
        # One word for one thing, and the one that xarray and netCDF know.
        assert "unit" not in dataset.attrs, key
        assert "unit" not in dataset.parent.attrs, key
        labels = [each.label for each in dataset.dims]
        assert labels in (list(said.dimensions[-dataset.ndim :]), [""]), key
        found.add(key)
    assert found == DESCRIBED.keys()


def test_of_one_rank_samples_have_one_dimension(path: str) -> None:
    with h5py.File(path, "r") as file:
        (dimension,) = file["partial/row_000002/rank_000000/samples/iteration"].dims
        assert dimension.label == "iteration"


def test_units_are_those_of_the_columns(path: str) -> None:
    for key, table in datasets(path):
        if not table.dtype.names or table.attrs["units"] == TEXT:
            continue
        units = units_of(table)
        assert units.keys() <= set(table.dtype.names), key
        for column in table.dtype.names:
            unit = _SUFFIXES.get(column.rpartition("_")[2], units.get(column))
            assert units.get(column) == unit, f"{key}: {column}"


def test_units_of_arrays_are_those_of_their_type(path: str) -> None:
    for key, array in datasets(path):
        if not array.dtype.names:
            assert (array.attrs["units"] == TEXT) == (array.dtype.kind == "O"), key
            assert array.dtype.kind != "b" or array.attrs["units"] == NUMBER, key


def test_wrong_counts_elements_in_a_row_of_a_program_of_nccl_tests(path: str) -> None:
    with h5py.File(path, "r") as file:
        wrong = [units_of(file[f"rows/row_00000{row}/ranks"])["wrong"] for row in (0, 1)]
    assert wrong == ["bytes", "elements"]


def test_the_readme_is_in_a_file_that_has_nothing_else_yet(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.close()
    with h5py.File(writer.path, "r") as file:
        assert file.attrs["README"] == README


def test_the_program_in_the_readme_reads_the_file(path: str) -> None:
    with h5py.File(path, "r") as file:
        text = file.attrs["README"]
    program = "\n".join(line[2:] for line in text.partition("In Python:\n\n")[2].splitlines())
    program = program.partition("\n\n")[0]
    child = subprocess.run(
        [sys.executable, "-c", f"path = {path!r}\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.stderr == ""
    assert child.stdout.splitlines()[0] == "row_000000 1024 bytes 1.3095 us"


def test_the_readme_names_what_is_there(path: str) -> None:
    with h5py.File(path, "r") as file:
        row = file["rows/row_000000"]
        for name in ("/ranks", "/settings", "/setup", "/fault"):
            assert f"{name} " in README
            assert name in file
        for name in re.findall(r"^  ([a-z]+/?[a-z]+(?:, [a-z/]+)*)  ", README, re.MULTILINE):
            if name == "attributes":
                continue
            for each in name.split(", "):
                assert each in row


H5DUMP = needs.program("h5dump", "apt-get install hdf5-tools")


def h5dump(*arguments: str) -> str:
    if not H5DUMP.is_here(os.environ["PATH"]):
        pytest.skip(f"needs {H5DUMP.what}: {H5DUMP.get}")
    done = subprocess.run(
        ["h5dump", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_h5dump_shows_values_with_their_units_and_dimensions(path: str) -> None:
    shown = h5dump("-d", f"/{ITERATION}", path)
    with h5py.File(path, "r") as file:
        first = file[ITERATION][0, :3].tolist()
    assert f"(0,0): {', '.join(map(str, first))}," in shown
    for text in ('"ns"', '"rank", "iteration"', f'"{DESCRIBED["rows/samples/iteration"].text}"'):
        assert f"(0): {text}" in shown
    assert "This is one run of tcpx-mpi" in h5dump("-a", "/README", path)


def test_a_table_is_a_frame_of_pandas(path: str) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
    with h5py.File(path, "r") as file:
        row = file["rows/row_000000"]
        frame = pandas.DataFrame(row["ranks"][()])
        labels = [each.label for each in row["samples/iteration"].dims]
        times = pandas.DataFrame(row["samples/iteration"][()]).rename_axis(
            index=labels[0], columns=labels[1]
        )
        units = units_of(row["ranks"])
    assert units["prepare_ns"] == "ns"
    assert frame["receives"].sum() == len(frame) == 4
    assert times.stack().index.names == ["rank", "iteration"]
    assert times[frame["receives"]].max().mean() == 1309.5


def test_a_row_is_a_dataset_of_xarray(path: str) -> None:
    """Its names of dimensions are those of the file's labels."""
    xarray = pytest.importorskip("xarray", reason="needs xarray: pip install xarray h5netcdf")
    pytest.importorskip("h5netcdf", reason="needs h5netcdf: pip install xarray h5netcdf")
    with xarray.open_dataset(
        path, engine="h5netcdf", group="rows/row_000000/samples", phony_dims="sort"
    ) as samples:
        times = samples["iteration"]
        named = samples.rename(dict(zip(times.dims, times.attrs["DIMENSION_LABELS"], strict=True)))
        assert named.sizes == {"rank": 4, "iteration": 20}
        assert named["iteration"].max("rank").mean().item() == 1309.5
        assert named["iteration"].attrs["units"] == "ns"

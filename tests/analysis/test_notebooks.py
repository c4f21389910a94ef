"""The notebooks of analysis/: run from top to bottom, on whole files and on what a crash leaves.

All of them in one kernel, emptied before each: starting it costs more than all else here.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import invented_runs
import nbformat
import pytest
from jobs import run as run_job
from jobs import tcpx_mpi
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tcpx_mpi.records import LaunchesWriter, Run, RunWriter, read_run
from tcpx_mpi.report import summarise_row

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((REPOSITORY / "analysis").glob("*.ipynb"))}
ALLOWED = {"os", "matplotlib", "numpy", "pandas", "tcpx_mpi"}


class Kernel:
    """A kernel that runs one notebook after the other, each from nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json")
        )
        self._manager.start_kernel(cwd=str(folder))

    def run(self, name: str, probe: str = "None", **parameters: Path | str) -> Executed:
        """Runs a notebook with these variables of the environment, then evaluates `probe`.

        Raises nbclient's CellExecutionError where a cell raises.
        """
        book = nbformat.read(NOTEBOOKS[name], as_version=4)
        given = {f"TCPX_MPI_{key}": str(value) for key, value in parameters.items()}
        first = f"%reset -f\nimport os\nos.environ.update({given!r})"
        last = f"import json\nprint('PROBE', json.dumps({probe}))"
        book.cells.insert(0, nbformat.v4.new_code_cell(first))
        book.cells.append(nbformat.v4.new_code_cell(last))
        client = NotebookClient(book, km=self._manager, timeout=150)
        try:
            client.execute(cwd=str(self._folder))
        finally:
            if client.kc is not None:
                client.kc.stop_channels()
        outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
        text = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
        text, _, found = text.partition("PROBE ")
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        return Executed(text, pictures, json.loads(found))

    def close(self) -> None:
        """Ends the kernel."""
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


@dataclasses.dataclass(frozen=True)
class Executed:
    """What a notebook printed, how many pictures it drew, and what the probe gave."""

    text: str
    pictures: int
    probe: Any


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """The one kernel."""
    started = Kernel(tmp_path_factory.mktemp("kernel"))
    yield started
    started.close()


def write(run: Run, path: Path, rows: int | None = None) -> Path:
    """The file of a run, or of one that was killed after so many rows; after none: no set-up."""
    writer = RunWriter(str(path))
    writer.write_header(run.header)
    if rows != 0:
        writer.write_setup(run.setup)
    for row in run.rows[:rows]:
        writer.append_row(row)
    writer.finish() if rows is None else writer.close()
    return path


@pytest.fixture(scope="module")
def files(mpirun_path: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A real run of 4 ranks, the same killed after two rows, and killed before its first row."""
    folder = tmp_path_factory.mktemp("runs")
    command = tcpx_mpi("run", "mesh", "--ranks", "4", "--plugin", "softtcpx", "-b", "1K", "-e",
                       "64K", "-f", "4", "-n", "40", "--hdf5", "whole.h5")  # fmt: skip
    result = run_job(command, folder)
    assert result.code == 0, result.text
    run = read_run(str(folder / "whole.h5"))
    return {
        "whole": folder / "whole.h5",
        "partial": write(run, folder / "partial.h5", rows=2),
        "empty": write(run, folder / "empty.h5", rows=0),
    }


# --- As they are kept -----------------------------------------------------------------------------


def test_there_are_four() -> None:
    assert list(NOTEBOOKS) == ["bandwidth", "compare", "programs", "ranks"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs_and_reads_runs_by_open_run_only(name: str) -> None:
    book = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert [cell for cell in code if "parameters" in cell.metadata.get("tags", [])] == code[:1]
    tree = ast.parse("\n".join(cell.source for cell in code))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= ALLOWED
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module.split(".")[0] in ALLOWED
            if node.module.startswith("tcpx_mpi"):
                assert (node.module, [a.name for a in node.names]) == ("tcpx_mpi", ["open_run"])


# --- Real files -----------------------------------------------------------------------------------

PICTURES = {"bandwidth": 1, "ranks": 3, "compare": 1, "programs": 1}
CUT_OFF = "its writer was killed"
MISSING = {
    "whole": [],
    "partial": [CUT_OFF, "2 of 4 rows: 16 KiB, 64 KiB"],
    "empty": [CUT_OFF, "4 of 4 rows: 1 KiB, 4 KiB, 16 KiB, 64 KiB"],
}


@pytest.mark.multirank
@pytest.mark.parametrize("state", MISSING)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_works_on_a_real_file_and_says_what_is_missing(
    kernel: Kernel, files: dict[str, Path], name: str, state: str
) -> None:
    file, whole = files[state], files["whole"]
    found = kernel.run(name, RUN=file, RUNS=file, FIRST=whole, SECOND=file)
    assert "Warning" not in found.text
    said = [line for line in found.text.splitlines() if line.startswith("MISSING")]
    assert len(said) == len(MISSING[state])
    for words, line in zip(MISSING[state], said, strict=True):
        assert words in line
    if (name, state) == ("ranks", "empty"):
        assert found.pictures == 0
        assert found.text.count("NOTHING: ") == 3
    else:
        assert found.pictures == PICTURES[name]
    assert "FILES: " in found.text
    if name == "compare":  # as the command refuses it
        assert ("NO COMPARISON: " in found.text) == (state != "whole")


@pytest.mark.multirank
def test_the_bandwidths_are_those_of_the_table_within_their_intervals(
    kernel: Kernel, files: dict[str, Path], tmp_path: Path
) -> None:
    picture = tmp_path / "bandwidth.svg"
    probe = "table[['size_bytes', 'busbw', 'low', 'high']].to_numpy().tolist()"
    lines = kernel.run("bandwidth", probe, RUN=files["whole"], PICTURE=picture).probe
    run = read_run(str(files["whole"]))
    rows = [summarise_row(run.header, row) for row in run.rows]
    assert [line[0] for line in lines] == [row.size_bytes for row in rows]
    assert [line[1] for line in lines] == pytest.approx([row.busbw for row in rows])
    assert all(low < busbw < high for _, busbw, low, high in lines)
    assert "<svg" in picture.read_text()


# --- Invented files, of which the answer is known -------------------------------------------------


def test_wrong_and_unchecked_rows_are_named(kernel: Kernel, tmp_path: Path) -> None:
    file = write(invented_runs.troubled(), tmp_path / "o.h5")
    text = kernel.run("bandwidth", RUN=file, PICTURE="").text
    assert "WRONG: 3 bytes of row 1, 2048 bytes" in text
    assert "UNCHECKED: row 2, 4096 bytes" in text
    assert kernel.run("ranks", RUN=file).text.count("WRONG OR UNCHECKED: ") == 2
    assert kernel.run("compare", FIRST=file, SECOND=file).text.count("WRONG OR UNCHECKED in ") == 4


def test_peers_are_ceilings_each_at_its_best(kernel: Kernel, tmp_path: Path) -> None:
    file = write(invented_runs.beside_baselines(), tmp_path / "o.h5")
    probe = "{line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}"
    lines = kernel.run("bandwidth", probe, RUN=file, PICTURE="").probe
    ours = lines.pop("softtcpx")
    raw, mpi = (lines.pop(next(label for label in lines if label.startswith(kind)))
                for kind in ("raw (ceiling: the best", "mpi (beside it)"))  # fmt: skip
    assert raw == pytest.approx([2 * bandwidth for bandwidth in ours], rel=1e-3)  # raw_4's
    assert mpi == pytest.approx([bandwidth / 2 for bandwidth in ours], rel=1e-3)
    assert lines.keys() == {"NIC line rate", "wrong or unchecked"}


def test_a_peer_whose_ratio_is_void_is_no_line(kernel: Kernel, tmp_path: Path) -> None:
    """mpi went over another network than the plugin, and raw did not."""
    run = invented_runs.beside_baselines()
    elsewhere = [
        dataclasses.replace(each, interfaces="eth7") if each.name == "mpi" else each
        for each in run.header.baselines
    ]
    run = dataclasses.replace(run, header=dataclasses.replace(run.header, baselines=elsewhere))
    probe = "[line.get_label() for line in axes.get_lines()]"
    found = kernel.run("bandwidth", probe, RUN=write(run, tmp_path / "o.h5"), PICTURE="")
    assert "VOID: mpi went over eth7, the plugin over " in found.text
    assert not [label for label in found.probe if label.startswith("mpi")]
    assert [label for label in found.probe if label.startswith("raw (ceiling")]


def test_every_program_of_a_folder_has_a_picture_with_its_own_medians(
    kernel: Kernel, tmp_path: Path
) -> None:
    runs = {"mesh": invented_runs.sound(rows=3), "ring": invented_runs.sound(rows=2)}
    for name, run in runs.items():
        write(dataclasses.replace(run, header=dataclasses.replace(run.header, pattern=name)),
              tmp_path / f"{name}.h5")  # fmt: skip
    probe = "{a.get_title(): [list(l.get_ydata()) for l in a.get_lines()] for a in grid.flat}"
    found = kernel.run("programs", probe, RUNS=tmp_path)
    assert found.probe.keys() == set(runs)
    for name, run in runs.items():
        (line,) = found.probe[name]
        wanted = [summarise_row(run.header, row).busbw for row in run.rows]
        assert line == pytest.approx(wanted)


def test_a_slow_rank_is_the_first_of_the_slow_ones(kernel: Kernel, tmp_path: Path) -> None:
    file = write(invented_runs.sound(rows=4), tmp_path / "o.h5")
    ordered = "summary.sort_values(['rows_as_slowest', 'max'], ascending=False)"
    probe = f"[{ordered}.reset_index().to_numpy().tolist(), longer.to_numpy().tolist()]"
    summary, longer = kernel.run("ranks", probe, RUN=file).probe
    rank, middle, most, rows_as_slowest = summary[0]
    assert (rank, rows_as_slowest) == (3, 4)
    assert middle == pytest.approx(1.3, abs=0.01)
    assert most == pytest.approx(1.3, abs=0.01)
    assert min(longer[3][:3]) > 0.7  # it takes longer than each other rank in most iterations
    assert longer[0][0] == 0.5


def test_a_matrix_has_each_flow_where_it_ran(kernel: Kernel, tmp_path: Path) -> None:
    run = invented_runs.sound(rows=2)
    table = run.setup.table.copy()  # in the ring each rank accepts from the one before
    table["phase"][table["phase"] == b"connect"] = b"accept"
    table["peer"] = (table["rank"] - 1) % 4
    file = write(dataclasses.replace(run, setup=type(run.setup)(table)), tmp_path / "o.h5")
    grid = kernel.run("ranks", "grid.to_numpy().tolist()", RUN=file, SIZE="1024").probe
    times_ns = run.rows[0].samples["iteration"].mean(axis=1)
    for sender in range(4):
        for receiver in range(4):
            value = grid[sender][receiver]
            if receiver == (sender + 1) % 4:
                assert value == pytest.approx(1024 / times_ns[receiver])
            else:
                assert value != value  # NaN: no connection


@pytest.mark.parametrize("name", ["bandwidth", "ranks"])
def test_of_several_launches_a_row_is_that_of_one(
    name: str, kernel: Kernel, tmp_path: Path
) -> None:
    writer = LaunchesWriter(str(tmp_path / "all.h5"), 3)
    for number in range(3):
        launch = invented_runs.sound(rows=2, run_id=f"launch {number}")
        writer.append(str(write(launch, tmp_path / f"{number}.h5")))
    writer.close()
    one = tmp_path / "0.h5"
    probes = {
        "bandwidth": "table[['busbw', 'low', 'high']].to_numpy().tolist()",
        "ranks": "[timed.shape[0], longer.to_numpy().tolist()]",
    }
    alone, of_all = (
        kernel.run(name, probes[name], RUN=file).probe for file in (one, Path(writer.path))
    )
    assert alone == (of_all if name == "ranks" else of_all[: len(alone)])
    assert len(of_all) == (2 if name == "ranks" else 3 * len(alone))


def test_a_launch_that_was_disturbed_moves_neither_the_line_nor_its_interval(
    kernel: Kernel, tmp_path: Path
) -> None:
    writer = LaunchesWriter(str(tmp_path / "all.h5"), 9)
    for number in range(9):
        launch = invented_runs.sound(rows=2, run_id=f"launch {number}")
        times = launch.rows[1].samples["iteration"]
        times[:] = (times * (10.0 if number == 4 else 1 + number / 1000)).astype("int64")
        writer.append(str(write(launch, tmp_path / f"{number}.h5")))
    writer.close()
    probe = "over_size.loc[4].loc['plugin'].to_numpy().tolist()"
    _, (busbw, low, high) = kernel.run("bandwidth", probe, RUN=Path(writer.path)).probe
    _, (alone, _, _) = kernel.run("bandwidth", probe, RUN=tmp_path / "0.h5").probe
    assert [low, busbw, high] == pytest.approx(
        [alone / 1.008, alone / 1.005, alone / 1.001], rel=1e-4
    )


def test_two_runs_are_told_apart_and_what_differs_between_them_is_named(
    kernel: Kernel, tmp_path: Path
) -> None:
    first = invented_runs.sound(rows=3)
    settings = [("channels", "4", "command line --channels"), *first.header.settings[1:]]
    second = invented_runs.sound(rows=3, settings=settings, run_id="another")
    # A quarter more, a quarter less, and the same bandwidth.
    for row, factor in zip(second.rows, (0.8, 4 / 3, 1.0), strict=True):
        row.samples["iteration"][:] = (row.samples["iteration"] * factor).astype("int64")
    files = write(first, tmp_path / "a.h5"), write(second, tmp_path / "b.h5")
    probe = "[ratios.to_numpy().tolist(), different.to_numpy().tolist()]"
    ratios, different = kernel.run("compare", probe, FIRST=files[0], SECOND=files[1]).probe
    assert [line[1] for line in ratios] == pytest.approx([1.25, 0.75, 1.0], rel=1e-3)
    assert [line[4] for line in ratios] == [
        "second has more", "second has less", "no difference shown",
    ]  # fmt: skip
    assert all(low < ratio < high for _, ratio, low, high, _ in ratios)
    assert different == [["setting", "channels", "2", "4"]]


# --- Of 2 and of 4 ranks together -----------------------------------------------------------------


@pytest.fixture(scope="module")
def of_two_worlds(
    files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The same pattern by 2 and by 4 ranks, alone in a folder."""
    folder = tmp_path_factory.mktemp("both")
    command = tcpx_mpi("run", "mesh", "--ranks", "2", "--plugin", "softtcpx", "-b", "1K", "-e",
                       "64K", "-f", "4", "-n", "40", "--hdf5", "two.h5")  # fmt: skip
    result = run_job(command, folder)
    assert result.code == 0, result.text
    four = folder / "four.h5"
    four.write_bytes(files["whole"].read_bytes())
    return folder / "two.h5", four


def medians(path: Path) -> list[float]:
    found = read_run(str(path))
    return [summarise_row(found.header, row).busbw for row in found.rows]


@pytest.mark.multirank
def test_each_number_of_ranks_has_a_line_with_its_own_figures(
    kernel: Kernel, of_two_worlds: tuple[Path, Path]
) -> None:
    files = ":".join(map(str, of_two_worlds))
    lines = "{l.get_label(): list(l.get_ydata()) for l in %s.get_lines()}"
    for name, axes, given in (
        ("bandwidth", "axes", {"RUN": files, "PICTURE": ""}),
        ("programs", "grid[0][0]", {"RUNS": of_two_worlds[0].parent}),
    ):
        found = kernel.run(name, lines % axes, **given)
        assert "LEFT OUT" not in found.text
        assert all(path.name in found.text.splitlines()[0] for path in of_two_worlds)
        for path, ranks in zip(of_two_worlds, (2, 4), strict=True):
            (line,) = (each for label, each in found.probe.items() if f"{ranks} ranks" in label)
            assert line == pytest.approx(medians(path)), (name, ranks)


@pytest.mark.multirank
def test_runs_of_other_ranks_are_no_comparison_and_ranks_are_those_of_one(
    kernel: Kernel, of_two_worlds: tuple[Path, Path]
) -> None:
    two, four = of_two_worlds
    found = kernel.run("compare", "[len(ratios), len(left.get_lines())]", FIRST=two, SECOND=four)
    assert "NO COMPARISON: other number of ranks: 2, 4" in found.text
    assert found.probe == [0, 0]
    found = kernel.run("ranks", "run.header['world']", RUN=f"{two}:{four}")
    assert f"LEFT OUT: {four}" in found.text
    assert (found.probe, found.pictures) == (2, PICTURES["ranks"])


def test_another_plugins_memory_is_no_line_of_the_same_picture(
    kernel: Kernel, tmp_path: Path
) -> None:
    first = write(invented_runs.sound(rows=2), tmp_path / "a.h5")
    other = write(invented_runs.sound(rows=2, memory="cuda", run_id="b"), tmp_path / "b.h5")
    probe = "[l.get_label() for l in axes.get_lines()].count('softtcpx')"
    found = kernel.run("bandwidth", probe, RUN=f"{first}:{other}", PICTURE="")
    assert f"LEFT OUT: {other}: other memory" in found.text
    assert found.probe == 1
    probe = "[l.get_label() for l in grid[0][0].get_lines()]"
    labels = kernel.run("programs", probe, RUNS=f"{first}:{other}").probe
    assert sorted(labels) == ["cuda", "host"]


# --- The picture of the quickstart ---------------------------------------------------------------


def test_the_picture_of_the_quickstart_can_be_made_again(kernel: Kernel, tmp_path: Path) -> None:
    evidence = REPOSITORY / "docs" / "evidence" / "ring-launches.h5"
    kept, made = REPOSITORY / "docs" / "images" / "bandwidth.svg", tmp_path / "bandwidth.svg"
    assert read_run(str(evidence)).missing == []
    assert kernel.run("bandwidth", RUN=evidence, PICTURE=made).pictures == 1
    assert "](images/bandwidth.svg)" in (REPOSITORY / "docs" / "quickstart.md").read_text()
    # The same but for the ids that matplotlib draws by lot, whatever its version.
    assert kept.stat().st_size == pytest.approx(made.stat().st_size, rel=0.2)
    assert kept.stat().st_size < 100_000

"""The program as a process: its standard streams, signals, threads and loaded modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode

EVIDENCE = str(Path(__file__).resolve().parents[3] / "docs" / "evidence" / "ring.h5")


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("compare", EVIDENCE, EVIDENCE), ExitCode.INCONCLUSIVE),
        (("gate", EVIDENCE, "gate.toml"), ExitCode.BELOW_GATE),
        (("report", EVIDENCE), ExitCode.OK),
    ],
)
def test_a_verdict_stays_what_it_is_where_nobody_reads_it(
    arguments: tuple[str, ...], code: ExitCode, tmp_path: Path
) -> None:
    (tmp_path / "gate.toml").write_text(
        '[gate]\nplugin = "p"\nranks = 2\nprovenance = "by hand"\n[[limit]]\npattern = "ring"\n'
        'memory = "host"\nsize = "1M"\nbusbw_min = 1.0\n'
    )
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tcpx_mpi", *arguments]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, timeout=60, check=False)
    os.close(writer)
    assert done.returncode == code


def test_a_command_that_was_parsed_by_itself_keeps_both_names_of_help() -> None:
    settled = "from tcpx_mpi.cli.run import command; command.make_context('run', ['ring']); "
    assert "Usage:" in python(settled + "from tcpx_mpi import cli; cli.main(['run', '-h'])")


@pytest.mark.parametrize("argv", ["['--help']", "['run', '--help']", "['--version']", "['rn']"])
def test_help_and_usage_errors_load_neither_mpi_nor_hdf5_nor_numpy(argv: str) -> None:
    loaded = python(
        f"import sys, tcpx_mpi.cli; tcpx_mpi.cli.main({argv});"
        "print('LOADED', *({'mpi4py', 'h5py', 'numpy', 'cupy', 'psutil'} & set(sys.modules)))"
    )
    assert loaded.splitlines()[-1] == "LOADED"


def test_what_starts_ranks_goes_without_numpy() -> None:
    """It would be a fifth of the CPU time of admitting a run and starting mpirun."""
    loaded = python(
        "import sys, tcpx_mpi.cli.run as run\n"
        "run.start_ranks = lambda *_: print('LOADED', *({'h5py', 'numpy'} & set(sys.modules)))\n"
        "from tcpx_mpi import cli; cli.main(['run', 'pair', '--ranks', '2', '--plugin', 'null'])"
    )
    assert loaded.splitlines()[-1] == "LOADED"


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "run", "rign"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tcpx-mpi: error: unknown pattern rign")


def test_a_reader_that_has_enough_is_no_error() -> None:
    shown = subprocess.run(
        f"set -o pipefail; {sys.executable} -m tcpx_mpi plugins --plugin null | true",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("command", ["plugins --plugin null", "run --help"])
def test_an_output_that_takes_no_more_is_a_result_that_was_not_written(command: str) -> None:
    shown = subprocess.run(
        f"{sys.executable} -m tcpx_mpi {command} >/dev/full",
        shell=True, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    said = "tcpx-mpi: error: the standard output could not be written: No space left on device\n"
    assert (shown.returncode, shown.stderr) == (8, said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_process_without_a_standard_stream_does_its_work(closed: str) -> None:
    shown = subprocess.run(
        f"{sys.executable} -m tcpx_mpi plugins --plugin null {closed}",
        shell=True, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")
    assert ("null" in shown.stdout) == (">&-" not in closed.split())


def test_what_a_terminal_cannot_show_is_shown_in_another_form(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "report", "größe.h5"], capture_output=True, text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 2
    assert shown.stderr.startswith("tcpx-mpi: error: ")
    written = subprocess.run(
        [sys.executable, "-c", "import sys; from tcpx_mpi import cli; cli.main(['plugins']);"
         "print('größe')"], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert written.stdout.endswith("gr\\xf6\\xdfe\n"), written.stderr


@pytest.mark.parametrize(("users", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_a_rank_has_no_thread_of_numpys_that_its_user_has_not_asked_for(
    users: dict[str, str], expected: str
) -> None:
    code = (
        "import os\n"
        "from tcpx_mpi import __main__, cli\n"
        "cli.main = lambda: 0\n"
        "__main__.main()\n"
        "import numpy\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'], len(os.listdir('/proc/self/task')))"
    )
    bare = {name: text for name, text in os.environ.items() if not name.startswith("OPENBLAS_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True, timeout=60, env={**bare, **users})  # fmt: skip
    told, threads = done.stdout.split()
    assert told == expected
    assert int(threads) <= int(expected)


def test_an_interrupt_while_modules_are_read_is_130_without_a_traceback() -> None:
    code = (
        "import builtins, runpy, sys\n"
        "real = builtins.__import__\n"
        "def reads(name, *rest, **more):\n"
        "    if name == 'tcpx_mpi.cli': raise KeyboardInterrupt\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = reads\n"
        "runpy.run_module('tcpx_mpi', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=False, timeout=60)  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


def test_a_command_that_is_terminated_removes_what_it_has_half_written(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tcpx_mpi import __main__, cli\n"
        "from tcpx_mpi.records.new_file import write_new_file\n"
        "def write(file):\n"
        "    file.write(b'half')\n"
        "    print('writing', flush=True)\n"
        "    sys.stdin.read()\n"
        "cli.main = lambda: write_new_file('whole', write, '--csv')\n"
        "sys.exit(__main__.main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as writer:  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        writer.terminate()
        _, errors = writer.communicate(timeout=60)
    assert (writer.returncode, errors) == (143, "")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.Group.invoke", interrupted)
    assert cli.main(["run", "ring"]) == 130


def test_modules_are_read_without_a_collection_every_few_objects() -> None:
    found = python(
        "import gc, sys\nfrom tcpx_mpi.__main__ import main\nsys.argv[1:] = ['run', '--help']\n"
        "before = gc.get_stats()[0]['collections']\nmain()\n"
        "print(gc.get_stats()[0]['collections'] - before)"
    )
    assert int(found.split()[-1]) < 5  # with Python's own threshold 31


def test_objects_are_not_looked_through_at_the_end_of_a_process() -> None:
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from tcpx_mpi import __main__, cli\n"
        "cli.main = lambda: 0\n"
        "__main__.main()"
    )
    assert python(code) == "True\n"

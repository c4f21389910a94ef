"""Shell completion as a shell asks for it, and `--version`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tcpx_mpi import __version__, cli
from tcpx_mpi.cli import version

BIN = Path(sys.executable).parent


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, **variables}


def completed(line: str) -> list[str]:
    """What is offered at the end of a command line, each as `type,word`."""
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi"],
        env=environment(
            _TCPX_MPI_COMPLETE="bash_complete",
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split(" ")) - 1),
        ),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tcpx-mpi re", ["plain,report"]),
        ("tcpx-mpi run ri", ["plain,ring"]),
        ("tcpx-mpi run pa", ["plain,pair", "plain,pairs"]),
        ("tcpx-mpi run ring --window-", ["plain,--window-send", "plain,--window-recv"]),
        ("tcpx-mpi run ring --memory e", ["plain,emulated"]),
        ("tcpx-mpi run ring --unpack k", ["plain,kernel"]),
        ("tcpx-mpi run ring --plugin s", ["plain,softtcpx"]),
        ("tcpx-mpi run ring --plugin ./x", ["file,./x"]),
        ("tcpx-mpi run ring -J o", ["file,o"]),
        ("tcpx-mpi run ring --hdf5 n", ["plain,none", "file,n"]),
        ("tcpx-mpi run ring --spool d", ["dir,d"]),
        ("tcpx-mpi run ring -I --chu", ["plain,--chunk"]),
        ("tcpx-mpi report o", ["file,o"]),
        ("tcpx-mpi export o.h5 --table s", ["plain,samples", "plain,setup", "plain,settings"]),
        ("tcpx-mpi run sm", ["plain,smoke"]),
        ("tcpx-mpi run smoke --payload", ["plain,--payload-bytes"]),
        ("tcpx-mpi completion z", ["plain,zsh"]),
    ],
)
def test_what_could_stand_at_the_cursor_is_offered(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_a_plugin_in_a_directory_of_libraries_is_offered_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libnccl-net-mine.so").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("UCCL_TCPX_PLUGIN_PATH", str(tmp_path / "libnccl-net-mine.so"))
    assert completed("tcpx-mpi run --plugin m") == ["plain,mine"]
    assert completed("tcpx-mpi run --plugin U") == ["file,U"]


def test_the_script_works_in_a_real_bash() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash: none in PATH")
    program = (
        'eval "$(tcpx-mpi completion bash)"; COMP_WORDS=(tcpx-mpi run pi); COMP_CWORD=2; '
        '_tcpx_mpi_completion tcpx-mpi; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", program], env=environment(), capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout == "pingpong\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_by_our_variable(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    assert f"_TCPX_MPI_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "csh"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "bash" in said.err


# --- Version -------------------------------------------------------------------------------------


def test_the_version_names_package_build_plugins_mpi_and_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"tcpx-mpi {__version__}"
    facts = [(line[:8].strip(), line[9:]) for line in lines[1:]]
    names = [name for name, _ in facts]
    assert names == ["git", "native", "plugin", "plugin", "MPI", "mpirun", "Python"]
    found = dict(facts)
    assert "Release" in found["native"] or "flags" in found["native"]
    assert [text.split(":")[0] for name, text in facts if name == "plugin"] == ["softtcpx", "null"]
    assert all("sha256" in text for name, text in facts if name == "plugin")
    assert found["Python"].endswith(sys.executable)


def test_asking_for_the_version_of_mpi_starts_none() -> None:
    code = (
        "from tcpx_mpi import world; print(world.library_version());"
        "from mpi4py import MPI; print(MPI.Is_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs mpi: {done.stderr.strip().splitlines()[-1]}")
    name, initialised = done.stdout.splitlines()
    assert (bool(name), initialised) == (True, "False")


def test_an_mpi_that_cannot_be_loaded_is_said_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tcpx_mpi.launch.library._ASK", "raise ImportError('libmpi.so.40: not found')"
    )
    lines = version.version_lines()
    assert "MPI      cannot be loaded: ImportError: libmpi.so.40: not found" in lines
    assert lines[-1].startswith("Python")
    monkeypatch.setattr("tcpx_mpi.launch.library._ASK", "import os; os.abort()")
    assert "MPI      cannot be loaded: exit code -6" in version.version_lines()

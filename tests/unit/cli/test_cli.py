"""The command line: what it refuses, in one line, and what it never loads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.cli.run import with_bare_values
from tcpx_mpi.config.options import IGNORED, OPTIONS
from tcpx_mpi.errors import EXIT_CODE_MEANING, ExitCode, PluginMissing
from tcpx_mpi.plugin import find


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("UCCL_", "NCCL_", "TCPX_", "OMPI_", "PMI", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


Captured = pytest.CaptureFixture[str]


def refusal(capsys: Captured, *argv: str, code: ExitCode = ExitCode.USAGE) -> str:
    """The one line that a command line ends with."""
    assert cli.main(argv) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("tcpx-mpi: error: ")
    assert errors.count("\n") == 1
    return errors


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


# --- Bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (
            [],
            [
                "no command",
                ", ".join(cli.COMMANDS),
            ],
        ),
        (["rn"], ["unknown command rn", "run"]),
        (["--verbose"], ["unknown option --verbose"]),
        (["run"], ["no pattern", "pair, pingpong, ring, mesh"]),
        (["run", "rign"], ["unknown pattern rign", "did you mean ring?", "mesh"]),
        (["run", "zzz"], ["unknown pattern zzz", "pair, pingpong, ring, mesh"]),
        (["run", "ring", "--chnk", "4K"], ["unknown option --chnk", "did you mean --chunk?"]),
        (["run", "ring", "-q"], ["unknown option -q", "tcpx-mpi run --help"]),
        (["run", "ring", "-b"], ["-b", "requires an argument"]),
        (["run", "ring", "mesh"], ["mesh is a second pattern beside ring", "--help"]),
        (["run", "ring", "-b", "64MB"], ["-b/--minbytes", "64M or 64MiB"]),
        (["run", "ring", "-b", "2M", "-e", "1M"], ["(2M) is larger than -e/--maxbytes (1M)"]),
        (["run", "ring", "--chunk", "0"], ["--chunk (0)"]),
        (["run", "ring", "--chunk", "4M"], ["--chunk (4M)", "use 2M or less"]),
        (["run", "ring", "--window-send", "17"], ["--window-send (17)", "use 16 or less"]),
        (["run", "ring", "--memory", "disk"], ["--memory", "cuda"]),
        (["run", "ring", "--stall-timeout", "9999999999"], ["--stall-timeout", "too long"]),
        (["run", "ring", "--connect-timeout", "9" * 400], ["--connect-timeout", "too long"]),
        (["run", "ring"], ["at least 2 ranks", "mpirun -n 4 tcpx-mpi run ring", "--ranks 4"]),
        (["run", "ring", "--ranks", "1"], ["ring", "2"]),
        (["run", "pair", "--ranks", "3"], ["pair", "even"]),
        (
            ["run", "pair", "--ranks", "2", "--against", "raw", "-n", "7"],
            ["-n/--iters (7)", "8 or"],
        ),
        (["run", "pair", "--ranks", "2", "--against", "nosuch"], ["--against: nosuch", "raw, mpi"]),
        (["run", "pair", "--ranks", "2", "--against", ","], ["--against (,)", "raw, mpi"]),
        (["run", "ring", "--ranks", "2", "--hdf5", "/no/such/x.h5"], ["--hdf5", "/no/such"]),
        (["run", "ring", "--ranks", "2", "-J", "/no/such/x.json"], ["-J", "/no/such"]),
        (["run", "ring", "--ranks", "2", "--spool", "/no/such"], ["--spool", "/no/such"]),
        (["report"], ["FILE"]),
        (["report", "/no/such.h5"], ["/no/such.h5", "no such file"]),
        (["report", "/"], ["/: is a directory", "HDF5 file of a run"]),
        (["import", "/"], ["/: is a directory", "nccl-tests"]),
        (["run", "pair", "-d", "nosuch"], ["-d/--datatype", "nosuch", "float, double"]),
        (["run", "pair", "-o", "nosuch"], ["-o/--op", "nosuch", "sum, prod"]),
        (["join", "out.h5"], ["FILE"]),
        (["merge", "out.h5", "0.journal"], ["`tcpx-mpi merge` is now `tcpx-mpi join`: "]),
        (["ceiling", "--ranks", "4"], ["is now `tcpx-mpi selftest --ceilings`: "]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: Captured, tmp_path: Path, argv: list[str], parts: list[str]
) -> None:
    text = refusal(capsys, *argv)
    assert all(part in text for part in parts), text
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_plugin_is_refused_before_mpirun_starts(
    capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "x.so").write_text("no library")
    text = refusal(capsys, "run", "ring", "--ranks", "2", "--plugin", str(tmp_path / "x.so"))
    assert "x.so" in text


def test_a_missing_tcpx_that_is_asked_for_has_its_own_exit_code(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1")
    text = refusal(capsys, "run", "ring", "--ranks", "2", code=ExitCode.PLUGIN_MISSING)
    assert "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME" in text


@pytest.mark.parametrize("command", [("run", "ring"), ("smoke",)])
@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [("NCCL_TESTS_SPLIT", "%2", "MOD 2"), ("NCCL_TESTS_SPLIT_MASK", "0x7", "AND 7")],
)
def test_groups_of_other_patterns_than_programs_are_refused_and_not_ignored(
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    meant: str,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv(name, value)
    text = refusal(capsys, *command, "--ranks", "4", "--plugin", "softtcpx")
    for words in (f"{name} ({meant}) makes groups for nccl-tests' programs", "unset it"):
        assert words in text
    monkeypatch.setenv(name, "")
    assert "at least 2 ranks" in refusal(capsys, *command)


def test_an_srun_without_pmi_is_told_from_a_missing_launcher(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PROCID": "0", "STEP_ID": "0", "STEP_NUM_TASKS": "4"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert "srun --mpi=pmix" in refusal(capsys, "run", "ring")


# --- Options that nccl-tests has and that mean nothing here -------------------------------------


def test_every_ignored_option_takes_its_value_in_both_forms(capsys: Captured) -> None:
    # They end at the missing --ranks, so all of them were parsed.
    for forms in (IGNORED.keys(), IGNORED.values()):
        argv = [word for flag in forms for word in (flag, "1")]
        assert "at least 2 ranks" in refusal(capsys, "run", "ring", *argv)


def test_switches_may_stand_without_their_value() -> None:
    assert with_bare_values(["-I", "ring"]) == ["-I", "1", "ring"]
    assert with_bare_values(["-I", "0", "ring"]) == ["-I", "0", "ring"]
    assert with_bare_values(["ring", "--report_gbits"]) == ["ring", "--report_gbits", "1"]
    assert with_bare_values(["-S", "-C", "1"]) == ["-S", "1", "-C", "1"]
    assert with_bare_values([]) == []


# --- Slips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("rum ring", 2, "unknown command rum (did you mean run?)"),
        ("reprot o.h5", 2, "(did you mean report?)"),
        ("smok --ranks 2", 2, "(did you mean smoke?)"),
        ("--ranks 2 run ring", 2, "behind the command: `tcpx-mpi run ring --ranks 2`"),
        ("--plugin null smoke", 2, "behind the command: `tcpx-mpi smoke --plugin null`"),
        ("run smok --ranks 2", 2, "unknown pattern smok (did you mean smoke?)"),
        ("run Rign --ranks 2", 2, "unknown pattern Rign (did you mean ring?)"),
        ("run ring -np 2", 2, "-np is an option of mpirun: give --ranks 2 here"),
        ("run ring --np 4", 2, "--np is an option of mpirun: give --ranks 4 here"),
        ("run ring --hostfile h", 2, "--hostfile is an option of mpirun"),
        ("run ring -H a,b", 2, "-H is an option of mpirun"),
        ("run ring --map-by=node", 2, "--map-by is an option of mpirun"),
        ("run ring 1M --ranks 2", 2, "1M is no option: sizes are given by --sizes 1M"),
        ("run ring --ranks 2 4", 2, "4 is no option: sizes are given by --sizes 4"),
        ("run ring mesh --ranks 2", 2, "mesh is a second pattern beside ring"),
        ("run ring fast --ranks 2", 2, "fast is no option"),
        ("run ring --ranks 2 --sise 4K", 2, "(did you mean --sizes?)"),
        ("run ring --ranks 2 -d fp16", 2, "(fp16) is unknown (did you mean half?)"),
        ("run ring --ranks 2 -d BF16", 2, "(BF16) is unknown (did you mean bfloat16?)"),
        ("run ring --ranks 2 -d uint_8", 2, "(did you mean uint8?)"),
        ("run ring --ranks 2 --against rwa", 2, "rwa is unknown (did you mean raw?)"),
        ("run ring --ranks 2 --memory gpuu", 2, "use one of auto, host, emulated, cuda"),
        (
            "run ring --ranks 2 --hdf5 /dev/full",
            2,
            "is a device or a pipe; give the name of a file, or none",
        ),
        ("run ring --ranks 2 -J /dev/null", 2, "-J/--output_file: /dev/null is a device or a pipe"),
        (
            "run ring --ranks 2 --plugin softcpx",
            3,
            "no plugin softcpx here (did you mean softtcpx?)",
        ),
        ("run ring --ranks 2 --plugin nosuch", 3, "libnccl-net-nosuch.so is not where"),
        ("run ring --ranks 2 --plugin nul", 3, "(did you mean null?)"),
        ("run ring --ranks 2 --plugin /nope/net.so", 3, "--plugin (/nope/net.so): no such file"),
        ("conform softcpx", 3, "(did you mean softtcpx?)"),
        ("export nope.h5", 2, "nope.h5: no such file"),
        ("run ring --ranks 2 --gate nope.toml", 2, "nope.toml: no such file"),
        ("doctor nope.log", 2, "nope.log: no such file"),
    ],
)
def test_a_slip_has_its_line(capsys: Captured, line: str, code: int, said: str) -> None:
    assert cli.main(line.split()) == code
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1, shown.err
    assert said in shown.err


def test_a_log_of_nccl_is_of_doctor(capsys: Captured, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "a:1:2 [0] NCCL INFO NET/Plugin: none\na:1:2 [0] NCCL INFO Using network Socket\n"
    )
    assert cli.main(["import", str(log)]) == 2
    assert f"`tcpx-mpi doctor {log}` reads it" in capsys.readouterr().err


def test_smoke_may_be_of_a_file(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "smoke.toml"
    file.write_text('pattern = "smoke"\n')
    assert cli.main(["run", "--config", str(file), "--ranks", "1"]) == 2
    assert "smoke needs at least 2 ranks" in capsys.readouterr().err


# --- Help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["run", "-h"], ["run", "--help-all"]])
def test_help_lists_every_exit_code(capsys: Captured, argv: list[str]) -> None:
    assert cli.main(argv) == 0
    output = capsys.readouterr().out
    for code, meaning in EXIT_CODE_MEANING.items():
        assert f"  {int(code)} " in output
        assert meaning in output


EVIDENCE = str(Path(__file__).resolve().parents[3] / "docs" / "evidence" / "ring.h5")


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


def test_help_of_run_lists_every_option_and_variable(capsys: Captured) -> None:
    assert cli.main(["run", "--help-all"]) == 0
    output = capsys.readouterr().out
    for option in OPTIONS:
        assert all(flag in output for flag in option.flags if option.group)
        assert all(variable in output for variable in option.variables)


def test_help_of_run_is_short_and_names_where_the_rest_is(capsys: Captured) -> None:
    assert cli.main(["run", "--help"]) == 0
    output = capsys.readouterr().out
    section = output.partition("Options that people use:\n")[2].partition("\n\n")[0]
    assert len(re.findall(r"^  -", section, re.MULTILINE)) == 11  # ten, and --help-all
    assert "--help-all" in section
    assert "mpirun -n 2 tcpx-mpi run" in output
    assert len(output.splitlines()) < 80


def test_version(capsys: Captured) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tcpx-mpi")


@pytest.mark.parametrize("argv", ["['--help']", "['run', '--help']", "['--version']", "['rn']"])
def test_help_and_usage_errors_load_neither_mpi_nor_hdf5_nor_numpy(argv: str) -> None:
    loaded = python(
        f"import sys, tcpx_mpi.cli; tcpx_mpi.cli.main({argv});"
        "print('LOADED', *({'mpi4py', 'h5py', 'numpy', 'cupy', 'psutil'} & set(sys.modules)))"
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


# --- plugins -----------------------------------------------------------------------------------


def test_plugins_lists_what_is_here_and_what_a_run_would_choose(capsys: Captured) -> None:
    assert cli.main(["plugins", "--plugin", "null"]) == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = [line for line in lines if line.startswith("->")]
    assert len(chosen) == 1
    assert "libnccl-net-null.so" in chosen[0]
    assert "v7" in chosen[0]
    assert any("/usr/local/tcpx/lib64/libnccl-net-tcpx.so" in line for line in lines)
    assert any("run would choose" in line for line in lines)
    assert lines[-1].startswith("# device ")
    assert lines[-1].endswith(": host; device type HOST, forceFlush 0, regIsGlobal 0")


def test_plugins_tells_which_memory_each_device_takes(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for like, abi, said in (
        ("", "9", "host, CUDA; device type UNPACK, forceFlush 0, regIsGlobal 0"),
        ("direct", "9", "host, CUDA; device type HOST, forceFlush 1, regIsGlobal 1"),
        ("direct", "6", "host, CUDA; device type HOST, forceFlush 0, regIsGlobal 0"),
    ):
        monkeypatch.setenv("SOFTTCPX_LIKE", like)
        assert cli.main(["plugins", "--plugin", "softtcpx", "--abi", abi]) == 0
        assert capsys.readouterr().out.rstrip().endswith(f": {said}")
    assert cli.main(["plugins", "--plugin", "softtcpx", "--json"]) == 0
    (device, *_) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["cuda"], device["dma_buf"], device["device_type"]) == (True, False, "HOST")


def test_plugins_lists_a_file_that_is_named_by_its_path(capsys: Captured, tmp_path: Path) -> None:
    mine = shutil.copy(Path(find.bundled_dir()) / "libnccl-net-null.so", tmp_path / "libmine.so")
    assert cli.main(["plugins", "--plugin", str(mine)]) == 0
    chosen = [line for line in capsys.readouterr().out.splitlines() if line.startswith("->")]
    assert [line.split()[-1] for line in chosen] == [str(mine)]


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs compiler: a plugin is built")
@pytest.mark.parametrize(
    ("name", "hint"), [("libneeded.so.1", "LD_LIBRARY_PATH"), ("libcuda.so.1", "NVIDIA driver")]
)
def test_a_library_that_a_plugin_lacks_is_named_with_the_way_to_it(
    name: str, hint: str, tmp_path: Path
) -> None:
    needed, mine = tmp_path / name, tmp_path / "libmine.so"
    shared = ["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null"]
    # Under a name that no machine has.
    subprocess.run([*shared, f"-Wl,-soname,{name}.absent", "-o", str(needed)], check=True)
    depends = ["-x", "none", "-Wl,--no-as-needed", str(needed), "-o", str(mine)]
    subprocess.run([*shared, *depends], check=True)
    with pytest.raises(PluginMissing, match=f"{name}.absent.*{hint}"):
        find.inspect(find.find_plugin(str(mine), {}, find.bundled_dir()))


def test_plugins_says_in_json_why_nothing_can_be_chosen(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1")
    assert cli.main(["plugins", "--json"]) == ExitCode.PLUGIN_MISSING
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] is None
    assert "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME" in found["error"]
    assert {"softtcpx", "null", "tcpx"} <= {plugin["name"] for plugin in found["plugins"]}

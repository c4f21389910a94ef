"""The command line: what it refuses, in one line, and what it never loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.cli.run import with_bare_values
from tcpx_mpi.config.options import IGNORED, OPTIONS
from tcpx_mpi.errors import EXIT_CODE_MEANING, ExitCode

Captured = pytest.CaptureFixture[str]


def refusal(capsys: Captured, *argv: str, code: ExitCode = ExitCode.USAGE) -> str:
    """The one line that a command line ends with."""
    assert cli.main(argv) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("tcpx-mpi: error: ")
    assert errors.count("\n") == 1
    return errors


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


def test_help_all_of_a_command_is_its_help_or_that_of_the_run_whose_options_it_takes(
    capsys: Captured,
) -> None:
    helps = []
    for argv in (["report", "--help"], ["report", "--help-all"], ["run", "--help-all"],
                 ["tune", "--help-all"], ["tune", "ring", "--help-all"]):  # fmt: skip
        assert cli.main(argv) == 0
        helps.append(capsys.readouterr().out)
    assert helps[0] == helps[1]
    assert helps[2] == helps[3] == helps[4]


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_of_a_help_is_wider_than_the_terminal_and_examples_are_whole_commands(
    columns: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for argv in (*([name, "--help"] for name in cli.COMMANDS), ["run", "--help-all"], ["--help"]):
        assert cli.main(argv) == 0
        help_text = capsys.readouterr().out
        assert [line for line in help_text.splitlines() if len(line) > columns] == []
        examples = help_text.partition("\nExamples:\n")[2].partition("\n\n")[0]
        whole = examples.replace("\\\n", "").splitlines()
        assert all("tcpx-mpi " in line for line in whole)


def test_version(capsys: Captured) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tcpx-mpi")

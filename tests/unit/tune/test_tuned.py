"""What `tune` says: lines, JSON, page, and the profile that `run` and `env` take."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import subprocess
from pathlib import Path

import invented
import pytest
from invented_runs import HOSTILE
from races import Machine, single

from tcpx_mpi import cli
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.records import TURN_VARIABLE, read_run
from tcpx_mpi.report.html import write_tune
from tcpx_mpi.run.admission import read_settings
from tcpx_mpi.run.tuning import Launches
from tcpx_mpi.tune.bands import Band, Scale, bands_of, sample_of, scale_of
from tcpx_mpi.tune.document import tune_document
from tcpx_mpi.tune.point import Change, Point, Turn
from tcpx_mpi.tune.profile import profile_text
from tcpx_mpi.tune.text import Tuned, answer_lines

BETTER: Point = (Change("NCCL_NSOCKS_PERTHREAD", "2"), Change("channels", "4", True))
BANDS = [Band((8 << 10,)), Band((64 << 20,))]
Captured = pytest.CaptureFixture[str]


def tuned(better: bool = True, within_s: float = 120, **machine: object) -> Tuned:
    speed = {BETTER[0]: (1.0, 1.3)} if better else {}
    answer = Machine(3, speed, **machine).answer(within_s, [BETTER, single("A", 1)])  # type: ignore[arg-type]
    header = invented.run_header()
    return Tuned(answer, BANDS, Scale(1.0, False), header, ["tcpx-mpi", "tune"], "t.h5", within_s)


def text_of(found: Tuned, columns: int | None = None) -> str:
    return "\n".join(answer_lines(found, columns))


def test_a_recommendation_stands_beside_today_s_settings_in_every_band() -> None:
    text = text_of(tuned())
    assert "# Recommended, 64 MiB    : NCCL_NSOCKS_PERTHREAD=2, channels 4: 1.3" in text
    assert "# Recommended, 8 KiB     : no better than the default (nearest: " in text
    for_all = text.splitlines()[-1]
    assert for_all.startswith("# Recommended, all sizes : NCCL_NSOCKS_PERTHREAD=2, channels 4: 1.")
    assert " at 64 MiB; " in for_all
    assert " at 8 KiB" in for_all


def test_no_better_than_the_default_is_an_answer() -> None:
    found = tuned(better=False)
    assert found.answer.decided
    assert text_of(found).count("no better than the default (nearest: ") == 3
    assert tune_document(found)["compromise"] is None


def test_too_few_launches_decide_nothing_and_say_so() -> None:
    found = tuned(within_s=12)
    assert not found.answer.decided
    assert "nothing was decided (nearest: " in text_of(found)
    assert "launches are too few: use a longer --within" in text_of(found)


def test_a_drift_is_said_before_the_recommendations() -> None:
    found = tuned(drift=lambda t: 1 + 0.4 * t / 120)
    lines = text_of(found).splitlines()
    drift = next(n for n, line in enumerate(lines) if line.startswith("# Machine drifted"))
    assert drift < next(n for n, line in enumerate(lines) if line.startswith("# Recommended"))


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_fit_a_terminal(columns: int) -> None:
    for line in answer_lines(tuned(), columns):
        assert len(line) <= columns
        assert line.startswith("#")


def test_json_has_numbers_and_null() -> None:
    document = json.loads(json.dumps(tune_document(tuned()), allow_nan=False))
    assert document["compromise"] == {
        "run": {"channels": "4"}, "environment": {"NCCL_NSOCKS_PERTHREAD": "2"},
    }  # fmt: skip
    large = document["bands"][1]
    assert large["sizes"] == [64 << 20]
    today, *others = large["settings"]
    assert today["setting"] == {"run": {}, "environment": {}}
    assert {each["verdict"] for each in others} <= {"better", "same", "worse", "inconclusive"}
    assert large["recommended"] == document["compromise"]
    tune_document(tuned(within_s=12))


def test_the_page_has_the_front_and_believes_no_name(tmp_path: Path) -> None:
    found = tuned()
    header = dataclasses.replace(found.header, plugin_name=HOSTILE)
    write_tune(dataclasses.replace(found, header=header, path=HOSTILE), str(tmp_path / "t.html"))
    page = (tmp_path / "t.html").read_text()
    assert page.count("<svg ") == 2
    assert "Front at 64 MiB" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/", "")
    with pytest.raises(UsageError, match="exists and is kept"):
        write_tune(found, str(tmp_path / "t.html"))


# --- Bands and samples ----------------------------------------------------------------------------


def test_sizes_are_judged_in_bands() -> None:
    sizes = (4 << 20, 1 << 10, 64 << 10, 1 << 20, 64 << 20)
    found = bands_of(sizes)
    assert [str(band) for band in found] == ["1 KiB to 64 KiB", "1 MiB", "4 MiB to 64 MiB"]


def test_a_launch_says_time_and_cpu_cost_of_each_band(tmp_path: Path) -> None:
    from launch_files import launch_file

    run = read_run(launch_file(tmp_path / "0.h5", 0))
    bands = bands_of(run.header.plan.sizes)
    sample = sample_of(run, bands)
    assert sample.time_ns.shape == sample.cpu_s_per_gb.shape == (1,)
    assert (sample.time_ns > 0).all()
    scale = scale_of(run, bands)
    expected = scale.busbw_factor * 2048 / sample.time_ns[0]  # of 1, 2 and 4 KiB
    assert scale.figure(bands[0], sample.time_ns[0]) == pytest.approx(expected)
    run.rows = [run.rows[0]]
    assert not (sample_of(run, bands).time_ns > 0).any(), "a size is missing"


# --- Going on -------------------------------------------------------------------------------------


def earlier(tmp_path: Path, **header: object) -> str:
    from launch_files import joined

    marks = {"environment": {TURN_VARIABLE: Turn(1, 1, BETTER).mark()}}
    return joined(tmp_path, 3, (1.0, 2.0, 3.0), "old", **{**marks, **header})


def launches(tmp_path: Path) -> Launches:
    from tcpx_mpi.run.series import Command

    settings = load_settings({"pattern": "ring", "ranks": "2"}, {})
    return Launches(
        lambda _: Command(settings, [], {}), bands_of((1024, 2048, 4096)),
        str(tmp_path / "new.h5"), "--out",
    )  # fmt: skip


def test_launches_of_an_earlier_tune_come_into_the_file(tmp_path: Path) -> None:
    made = launches(tmp_path)
    past = made.take_over(earlier(tmp_path))
    made.close()
    assert [turn for turn, _ in past] == [Turn(1, 1, BETTER)] * 3
    again = read_run(made.path)
    assert len(again.all_launches) == again.launches_planned == 3
    assert again.missing == []


def test_a_file_of_another_command_is_none_to_go_on_with(tmp_path: Path) -> None:
    made = launches(tmp_path)
    with pytest.raises(UsageError, match=r"old\.h5 is no file of `tcpx-mpi tune`"):
        made.take_over(earlier(tmp_path, environment={}))
    made.discard()
    assert not (tmp_path / "new.h5").exists()


def test_another_plugin_than_then_is_refused(tmp_path: Path) -> None:
    from launch_files import launch_file

    made = launches(tmp_path)
    made.take_over(earlier(tmp_path))
    other = read_run(launch_file(tmp_path / "x.h5", 9, plugin_sha256="f" * 64))
    with pytest.raises(UsageError, match=r"--resume .*old\.h5: .* another plugin sha256"):
        made._require_continued(other)
    made.discard()


# --- The profile ----------------------------------------------------------------------------------


def written(tmp_path: Path, base: profiles.Profile | None = None, point: Point = BETTER) -> Path:
    found = tuned()
    chosen = dataclasses.replace(found.answer.finalists[1], point=point)
    path = tmp_path / "p.toml"
    path.write_text(profile_text(found, chosen, base, datetime.date(2026, 11, 27)))
    return path


def test_a_profile_comes_back_with_its_options_and_variables(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    profile = profiles.find_profile(path, this_machine())
    assert profile is not None
    assert profile.run == {"channels": 4}
    assert profile.variables(this_machine()) == [("NCCL_NSOCKS_PERTHREAD", "2")]
    assert "tuned 2026-11-27: 1.3" in profile.about
    text = Path(path).read_text()
    assert 'date = "2026-11-27"' in text
    assert 'beside_default = "1.3' in text


def test_a_run_takes_its_options_where_nobody_says_otherwise(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    names = dict.fromkeys(option for option in ("channels", "chunk"))
    values = {"pattern": "ring", "config": None, "profile": path, **names}
    settings = read_settings(values, {})
    assert settings.channels == 4
    assert settings.sources["channels"] == f"profile {path}"
    assert read_settings({**values, "channels": "3"}, {}).channels == 3
    assert read_settings(values, {"UCCL_TCPX_NUM_CHANNELS": "5"}).channels == 5


def test_env_prints_the_plugin_s_variables_and_no_shell_runs_a_value(
    tmp_path: Path, capsys: Captured
) -> None:
    evil = "$(touch ran) `touch ran`; touch ran \" ' \\ \n#"
    path = str(written(tmp_path, point=(*BETTER, Change("SOFTTCPX_X", evil))))
    assert cli.main(["env", "--profile", path]) == 0
    shown = capsys.readouterr()
    assert "channels" not in shown.out
    assert "run options of this profile, which NCCL has none of: channels = 4" in shown.err
    script = f'{shown.out}\nprintf %s "$SOFTTCPX_X"'
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=True,
                          env={"PATH": os.environ["PATH"]})  # fmt: skip
    assert done.stdout.decode() == evil
    assert [each.name for each in tmp_path.iterdir()] == ["p.toml"]


def test_what_today_s_profile_has_is_kept(tmp_path: Path) -> None:
    import machines

    a3 = machines.machine("a3-highgpu-8g")
    base = profiles.find_profile("a3-highgpu-8g", a3)
    assert base is not None
    found = profiles.find_profile(str(written(tmp_path, base)), a3)
    assert found is not None
    before, after = dict(base.variables(a3)), dict(found.variables(a3))
    assert after == {**before, "NCCL_NSOCKS_PERTHREAD": "2"}
    assert found.nic_of_gpu == base.nic_of_gpu


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[run]\niters = "3"', "run.iters is unknown: use channels, chunk,"),
        ('[run]\nchannels = "0"', "run.channels (0) is too small"),
        ("[run]\nchannels = 4", "run ({'channels': 4}) is no table of texts"),
        ("[evidence]\ndate = 3", "evidence ({'date': 3}) is no table of texts"),
    ],
)
def test_a_bad_table_of_a_profile_is_one_line(tmp_path: Path, table: str, says: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(table)
    with pytest.raises(UsageError) as raised:
        profiles.find_profile(str(path), this_machine())
    assert says in str(raised.value)

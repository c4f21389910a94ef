"""Secrets are in no result: told by their name, or by what they look like."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import invented
import pytest

from tcpx_mpi.records import RunHeader, RunWriter, filter_environment, read_run
from tcpx_mpi.records.header import header_to_plain
from tcpx_mpi.secrets import redacted_text, redacted_value, redacted_words

SECRET = "hunter2"


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_AUTH", "NCCL_X_BEARER", "UCX_CREDENTIAL", "UCX_CREDENTIALS", "FI_PWD", "NCCL_API_KEY",
        "TCPX_TOKEN", "OMPI_PASSWORD", "NCCL_OAuth_x", "UCX_passphrase", "NCCL_SECRETS",
    ],
)  # fmt: skip
def test_a_name_that_sounds_secret_has_no_value(name: str) -> None:
    assert filter_environment({name: SECRET}) == {name: "(redacted)"}
    assert redacted_words(["run", f"{name}={SECRET} and,more"]) == ["run", f"{name}=(redacted)"]
    assert redacted_text(f"the setting {name}={SECRET}, as it was") == (
        f"the setting {name}=(redacted), as it was"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://me:hunter2@proxy:8080/x", "https://me:(redacted)@proxy:8080/x"),
        ("redis://:hunter2@h", "redis://:(redacted)@h"),
        ("tcp://me:hunt@er/2@h", "tcp://me:(redacted)@h"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer (redacted)"),
        (f"x ghp_{'a1' * 18} y", "x (redacted) y"),
        ("AKIAIOSFODNN7EXAMPLE", "(redacted)"),
        (f"ya29.{'a0' * 30}", "(redacted)"),
        (f"eyJ{'a' * 20}.{'b' * 30}.{'c' * 20}", "(redacted)"),
    ],
)
def test_what_looks_like_a_secret_is_none_any_more(text: str, kept: str) -> None:
    assert redacted_text(text) == kept
    assert redacted_value("NCCL_ANY", text) == kept
    assert redacted_words([text]) == [kept]


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/path@x", "NCCL_SOCKET_IFNAME==eth0", "a=1 b=2", "me@host:/path",
        "--plugin=/usr/lib/libnccl-net.so", "NCCL_ALGO=Ring,Tree", "basic use", "1e-3",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_kept(text: str) -> None:
    assert redacted_text(text) == text
    assert redacted_words([text]) == [text]


def test_commas_and_blanks_of_a_value_hide_no_part_of_it() -> None:
    words = ["--nccl-env", "NCCL_X_TOKEN=hun,ter 2,NCCL_ALGO=Ring,NCCL_KEY=a", "--auth", SECRET]
    assert redacted_words(words) == [
        "--nccl-env", "NCCL_X_TOKEN=(redacted),NCCL_ALGO=Ring,NCCL_KEY=(redacted)",
        "--auth", "(redacted)",
    ]  # fmt: skip


def header_with_secrets() -> RunHeader:
    header = invented.run_header()
    return dataclasses.replace(
        header,
        command=["run", "ring", "--nccl-env", f"NCCL_X_TOKEN={SECRET}"],
        settings=[("nccl_env", f"NCCL_X_TOKEN={SECRET}", "command line"), ("a", "1", SECRET[:0])],
        environment={"NCCL_AUTH": SECRET, "NCCL_PROXY": f"http://u:{SECRET}@h"},
        facts={"plugin_said": f"connects to tcp://u:{SECRET}@h", "api_key": SECRET},
        notes=[f"NCCL_PWD={SECRET}"],
    )


def test_no_secret_is_in_the_file_of_a_run(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(header_with_secrets())
    writer.fail("setup_failed", 4, {0: f"cannot reach tcp://u:{SECRET}@h by NCCL_AUTH={SECRET}"})
    assert SECRET.encode() not in (tmp_path / "o.h5").read_bytes()
    run = read_run(str(tmp_path / "o.h5"))
    assert run.header.environment["NCCL_AUTH"] == "(redacted)"
    assert "tcp://u:(redacted)@h" in str(run.fault)


def test_no_secret_is_in_a_journal_or_on_a_screen() -> None:
    assert SECRET not in str(header_to_plain(header_with_secrets()))


@pytest.mark.parametrize("unit", ["a://", "TOKEN", "a=", "x.", "://a:", "ghp_", "Bearer "])
def test_long_texts_take_no_longer_by_the_letter(unit: str) -> None:
    # 1 MB in well below the suite's limit of a test; the square of it would be hours.
    redacted_text(unit * (1_000_000 // len(unit)))
    redacted_words([unit * (1_000_000 // len(unit))])

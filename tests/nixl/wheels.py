"""The backend in real NIXL, of several versions; run by `make test SUITE=nixl`, not collected by
`make test`: a wheel has 339 MB. They are kept in build/nixl."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from launcher import cluster_or_skip
from nodes import Cluster

TREE = Path(__file__).resolve().parents[2]
WHEELS = TREE / "build" / "nixl"
AGENT = Path(__file__).parent / "agent.py"
LARGE = Path(__file__).parent / "large.py"
PAGE = (TREE / "docs" / "how-to" / "nixl.md").read_text()
(TEN_LINES,) = re.findall(r"```python\n(import numpy.*?)```", PAGE, re.S)
#: The oldest with this layout, one between, the newest.
VERSIONS = ("1.0.1", "1.3.2", "1.5.1")
DONE = "DONE True {'a': [b'done']}"
LIMIT_S = 200


@pytest.fixture(scope="module", params=VERSIONS)
def environ(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where Python finds this version of NIXL."""
    return with_nixl(request.param)


def with_nixl(version: str) -> dict[str, str]:
    folder = WHEELS / version
    if not (folder / "nixl_cu12").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--target", str(folder), f"nixl-cu12=={version}"]
        got = subprocess.run(command, capture_output=True, text=True)
        if got.returncode != 0:
            pytest.skip(f"needs nixl: nixl-cu12=={version} cannot be had: {got.stderr[-300:]}")
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith(("NIXL_", "TCPX_NIXL_"))}  # fmt: skip
    stand_in = Path(__file__).parent / "stand_in"  # of torch, behind a real one
    return {**ours, "PYTHONPATH": f"{folder}:{stand_in}"}


def passes(environ: dict[str, str], *arguments: str) -> str:
    """What Python prints; its end must be 0."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_the_ten_lines_of_the_page_move_every_byte(environ: dict[str, str]) -> None:
    assert passes(environ, "-c", TEN_LINES).splitlines()[-1] == DONE


@pytest.mark.parametrize("operation", ["write", "read"])
@pytest.mark.parametrize(
    "options",
    [
        ("--size", "1,4K,100K,16M"),
        ("--size", "4000K", "--descriptors", "1000"),
        ("--size", "64K,16M", "--no-progress-thread"),
    ],
    ids=["sizes", "blocks", "no-thread"],
)
def test_two_processes_move_every_byte(
    environ: dict[str, str], operation: str, options: tuple[str, ...]
) -> None:
    command = ("-m", "tcpx_mpi", "nixl", "--op", operation, "--iters", "10", "--warmup", "0")
    assert "0 OK" in passes(environ, *command, *options)


@pytest.mark.timeout(700)
def test_a_request_of_more_than_4_gib_moves_every_byte() -> None:
    if psutil.virtual_memory().available < 12 << 30:
        pytest.skip("needs memory: 12 GiB of it")
    assert passes(with_nixl(VERSIONS[-1]), str(LARGE)).endswith(" bytes right\n")


def test_ucx_of_the_wheel_takes_turns_with_it(tmp_path: Path) -> None:
    file = tmp_path / "o.h5"
    options = ("--size", "64K", "--iters", "10", "--against", "ucx", "--hdf5", str(file))
    assert "beside ucx" in passes(with_nixl(VERSIONS[-1]), "-m", "tcpx_mpi", "nixl", *options)
    assert "beside ucx" in passes(with_nixl(VERSIONS[-1]), "-m", "tcpx_mpi", "report", str(file))


def test_one_agent_may_have_ucx_beside_it() -> None:
    text = TEN_LINES.replace("enable()", 'enable(beside=["UCX"])')
    text = text.replace('backends=["TCPX"]))', 'backends=["TCPX", "UCX"]))')
    assert passes(with_nixl(VERSIONS[-1]), "-c", text).splitlines()[-1] == DONE


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with cluster_or_skip() as made:
        yield made


def test_agents_on_two_nodes_write_and_read(nodes: Cluster) -> None:
    environ = with_nixl(VERSIONS[-1])
    target, initiator = (
        subprocess.Popen(
            node.command(f"PYTHONPATH={environ['PYTHONPATH']}", sys.executable, str(AGENT), role),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node, role in zip(nodes.nodes, ("target", "initiator"), strict=True)
    )  # fmt: skip
    with target, initiator:
        assert target.stdout
        assert initiator.stdin
        said = []
        for line in target.stdout:  # until it ends, which it does in time
            said.append(line)
            if line.startswith("told "):
                initiator.stdin.write(line)
                initiator.stdin.flush()
        said.append(initiator.communicate(timeout=LIMIT_S)[0])
        assert [target.wait(), initiator.returncode] == [0, 0], "".join(said)[-4000:]

"""The seeds of the fuzzers, and what they have found, through the targets by any compiler.

`make test SUITE=fuzz` does the fuzzing. Here each input is replayed with the sanitizers of the
compiler that is there; and every check of the judges is taken away once, which the seeds must
notice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fuzz
import make_seeds
import pytest
from build_tools import find_tool
from variants import variants_where

FOLDER = Path(__file__).parent
NATIVE = FOLDER.parents[1] / "native"
BUILD = FOLDER.parents[1] / "build" / "fuzz-replay"
LIMIT_S = 300
PROOF = ("blake2s", "token")
#: The judges, each with what it needs beside it.
JUDGES = {
    NATIVE / "softtcpx" / "protocol" / "wire.cc": PROOF,
    NATIVE / "proof" / "token.cc": ("blake2s", "wire"),
}

#: (target, text of one of the judges, what stands there instead).
BROKEN = [
    ("handshake", "if (greeting.version != kWireVersion) return", "if (false) return"),
    ("handshake", "if (!all_zero(greeting.unused) || !all_zero(greeting.spare))", "if (false)"),
    ("handshake", "if (greeting.kind != kind)", "if (false)"),
    ("handshake", "greeting.sockets != sockets || greeting.socket > sockets",
     "greeting.socket > sockets"),
    ("handshake", "greeting.sockets != sockets || greeting.socket > sockets",
     "greeting.sockets != sockets"),
    ("handshake", "all_zero(hello->token.bytes)", "true"),
    ("handshake", "if (greeting.socket != other.socket)", "if (false)"),
    ("handshake", "if (!same_token(greeting.attempt, other.attempt))", "if (false)"),
    ("handshake", "return same_token(said.token, honest.token)", "return true"),
    ("handshake", "for (size_t i = 0; i < sizeof a.bytes; ++i)",
     "for (size_t i = 0; i < sizeof a.bytes - 1; ++i)"),
    ("handshake", "handle.sockets <= kMaxSockets", "handle.sockets <= kMaxSockets + 1"),
    ("handshake", "handle.threads <= kMaxThreads", "true"),
    ("messages", "if (header.offset > header.total) return false;", ""),
    ("messages", "header.length > header.total - header.offset",
     "header.length + header.offset > header.total"),
    ("messages", "return header.total == 0 && header.flags == 0;", "return header.flags == 0;"),
    ("messages", "return header.total == 0 && header.flags == 0;", "return header.total == 0;"),
    ("messages", "(header.flags & ~kLent) != 0 ||", ""),
    ("messages", "if (header.total > message.capacity)", "if (false)"),
    ("messages", "if (header.total != message.total)", "if (false)"),
    ("messages", "if (header.length > message.total - message.scheduled)", "if (false)"),
    ("messages", "if (header.length == 0) return ChunkVerdict::kDisagrees;", ""),
    ("messages", "credit.posted <= granted || credit.posted < sent", "credit.posted <= granted"),
    ("messages", "credit.posted <= granted ||", ""),
    ("messages", "credit.posted - sent > kNetMaxRequests",
     "credit.posted > sent + kNetMaxRequests"),
    ("messages", "said.magic != kReturnMagic ||", ""),
    ("messages", "said.socket >= sockets", "said.socket > sockets"),
    ("messages", "said.pieces <= returned ||", ""),
    ("messages", "said.pieces > sent", "false"),
]  # fmt: skip


def tool(*names: str) -> str:
    """The first program of these that is there; or a skip."""
    for name in names:
        if found := find_tool(name):
            return found
    pytest.skip(f"needs compiler: {' or '.join(names)} not found")


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}\n{(done.stdout + done.stderr)[-6000:]}"


@pytest.fixture(scope="session")
def program() -> Callable[[str], Path]:
    """A target that replays files, up to date."""
    tool("c++", "g++", "clang++")
    cmake = tool("cmake")
    run(cmake, "-S", FOLDER, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}")

    def built(target: str) -> Path:
        run(cmake, "--build", BUILD, "--parallel", "2", "--target", target)
        return BUILD / target

    return built


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A target for each entry of BROKEN, with judges that lack that check."""
    folder = tmp_path_factory.mktemp("broken")
    # Where a compiler finds it before the header itself: half of what each of the judges costs.
    compiled = folder / "softtcpx" / "protocol" / "wire.h.gch"
    compiled.parent.mkdir(parents=True)
    header = NATIVE / "softtcpx" / "protocol" / "wire.h"
    run(*compiler(), "-x", "c++-header", header, "-o", compiled)
    sound = [FOLDER / f"{name}.cc" for name in ("handshake", "messages", "replay")]
    for source in (*sound, *JUDGES, NATIVE / "proof" / "blake2s.cc"):
        run(*compiler(), "-c", source, "-o", folder / f"{source.stem}.o")

    def build(number: int) -> Path:
        target, text, instead = BROKEN[number]
        found = [judge for judge in JUDGES if judge.read_text().count(text) == 1]
        assert len(found) == 1, f"no judge has any longer: {text}"
        source = folder / f"{found[0].stem}-{number}.cc"
        source.write_text(found[0].read_text().replace(text, instead))
        parts = [folder / f"{name}.o" for name in (target, "replay", *JUDGES[found[0]])]
        run(*compiler(), source, *parts, "-o", source.with_suffix(""))
        return source.with_suffix("")

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(build, range(len(BROKEN))))


def compiler() -> list[str]:
    flags = ["-std=c++17", "-O0", f"-I{NATIVE}", f"-I{FOLDER.parent}"]
    return [tool("c++", "g++", "clang++"), *flags]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    """The seeds and findings of a target."""
    folder = tmp_path_factory.mktemp("seeds")
    for target in make_seeds.TARGETS:
        make_seeds.write_seeds(target, folder / target)

    def of(target: str) -> list[Path]:
        folders = (folder / target, FOLDER / "findings" / target)
        return sorted(path for each in folders if each.is_dir() for path in each.iterdir())

    return of


def test_every_target_has_seeds_that_its_longest_input_has_room_for() -> None:
    assert set(make_seeds.TARGETS) == set(fuzz.TARGETS)
    for target, seeds in make_seeds.TARGETS.items():
        assert seeds
        assert all(len(seed) <= fuzz.TARGETS[target] for seed in seeds.values()), target


@pytest.mark.timeout(2 * LIMIT_S)  # the first case builds
@pytest.mark.parametrize("target", variants_where(lambda name: name == "receiver", fuzz.TARGETS))
def test_seeds_and_findings_pass(
    program: Callable[[str], Path], inputs: Callable[[str], list[Path]], target: str
) -> None:
    run(program(target), *inputs(target))


@pytest.mark.parametrize("number", range(len(BROKEN)), ids=lambda number: BROKEN[number][1][:50])
def test_the_seeds_notice_a_check_that_is_gone(
    broken: list[Path], inputs: Callable[[str], list[Path]], number: int
) -> None:
    command = [broken[number], *inputs(BROKEN[number][0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert "not so:" in done.stderr, "the seeds are content with it"

"""Fuzzes every target: builds them with clang, runs each so many times, and keeps what it finds.

    python tests/fuzz/fuzz.py [RUNS]    (what `make test SUITE=fuzz` does)

A finding is kept in tests/fuzz/findings/TARGET, where `make test` replays it from then on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from make_seeds import write_seeds

FOLDER = Path(__file__).parent
BUILD = FOLDER.parents[1] / "build" / "fuzz"
#: Longest inputs in bytes: room for the largest message and what may surround it.
TARGETS = {
    "handshake": 160,
    "messages": 1024,
    "interfaces": 96,
    "receiver": 512,
    "nixl_stream": 1024,
}


def build(cmake: str, compiler: str) -> None:
    """Raises CalledProcessError."""
    options = ["-DFUZZING=ON", f"-DCMAKE_CXX_COMPILER={compiler}"]
    subprocess.run([cmake, "-S", FOLDER, "-B", BUILD, *options], check=True, capture_output=True)
    subprocess.run([cmake, "--build", BUILD, "--parallel", str(os.cpu_count())], check=True)


def fuzz(target: str, runs: int) -> tuple[bool, str]:
    """Whether nothing was found, and a line about it."""
    corpus, findings = BUILD / "corpus" / target, FOLDER / "findings" / target
    seeds = BUILD / "seeds" / target
    write_seeds(target, seeds)
    shutil.rmtree(corpus, ignore_errors=True)  # each time from the seeds alone
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"-runs={runs}", f"-max_len={TARGETS[target]}", f"-artifact_prefix={findings}/",
               "-timeout=10", "-print_final_stats=1"]  # fmt: skip
    command = [BUILD / target, *options, corpus, seeds, findings]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    (BUILD / f"{target}.log").write_text(done.stderr)

    def number(pattern: str) -> int:
        found = re.findall(pattern, done.stderr)
        return int(found[-1]) if found else 0

    executed = number(r"stat::number_of_executed_units: +(\d+)")
    rate = number(r"stat::average_exec_per_sec: +(\d+)")
    edges, inputs = number(r" cov: (\d+)"), number(r" corp: (\d+)")
    line = (
        f"{target:11}{executed:>9} executions, {rate:>7} a second, {edges} edges by {inputs} inputs"
    )
    if done.returncode == 0 and executed >= runs:
        return True, line
    kept = re.findall(r"Test unit written to (\S+)", done.stderr)
    return False, f"{line}\n{done.stderr[-4000:]}\n{target}: FOUND {' '.join(kept) or 'no input'}"


def main(runs: int) -> int:
    compiler, cmake = shutil.which("clang++"), shutil.which("cmake")
    if compiler is None or cmake is None:
        print(
            "fuzz needs clang++ with libFuzzer and cmake: apt-get install clang libclang-rt-14-dev"
        )
        return 2
    build(cmake, compiler)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda target: fuzz(target, runs), reversed(TARGETS)))
    print("\n".join(line for _, line in results))
    return 0 if all(sound for sound, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))

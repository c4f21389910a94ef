"""The sources, broken on purpose one way at a time: what shall detect it must detect it.

A mutation names what detects it: a native test, or one of four runs of the benchmark with what the
broken copy makes of it. What is detected by the ratio to a peer is in test_slowed_engine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from broken_copy import BrokenCopy, Patch
from mutations import Mutation, detected_by, mutated

# Two ranks: ragged messages of 25 chunks over real sockets, and of 7 chunks
# that are scattered and put together again; a plugin that delivers nothing, so that every
# byte of every iteration must be wrong; and a run that does not ask for the check.
RUNS = {
    "checked": "ring --ranks 2 --plugin softtcpx -b 100003 -e 100003 -n 6 --chunk 4K",
    "emulated": "ring --ranks 2 --plugin softtcpx --memory emulated -b 100003 -e 100003 -n 6 "
    "--chunk 16K",
    "null": "pair --ranks 2 --plugin null -b 4 -e 4 -n 2000",
    "unchecked": "pair --ranks 2 --plugin null -b 4K -e 4K -n 5 -c 0",
}
SOUND = {
    "checked": "exit 0, wrong 0",
    "emulated": "exit 0, wrong 0",
    "null": "exit 5, wrong 8004",  # one warm-up
    "unchecked": "exit 0, wrong N/A",
}
#: A mutant that hangs is given up soon.
SOON = ["--stall-timeout", "2"]

NATIVE = sorted({p.detected_by.split()[1] for p in detected_by("native")})


def mutation(function: str = "f", pattern: str = "1") -> Mutation:
    return Mutation("broken", "", "", function, pattern, "2")


def place_of(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "src").mkdir()
    for name, text in files.items():
        stem, suffix = name.split("_")
        (tmp_path / "src" / f"{stem}.{suffix}").write_text(text)
    return tmp_path


def test_a_mutation_changes_the_function_and_nothing_else(tmp_path: Path) -> None:
    text = "int f(int a);\nint g() { if (f(1)) { return 1; } }\nint A::f() const { return 1; }\n"
    place = place_of(tmp_path, a_cc=text, b_cc="int f(int a) { if (a) { a = 1; } return a; }\n")
    file, old, new = mutated(mutation(), place, ["src"])
    assert file.name == "b.cc"
    assert (old, new.count("2")) == ("f(int a) { if (a) { a = 1; } return a; }", 1)
    assert mutated(mutation("A::f"), place, ["src"])[0].name == "a.cc"


def test_a_mutation_of_python_finds_a_method(tmp_path: Path) -> None:
    place = place_of(tmp_path, a_py="class A:\n    def f(self):\n        return 1\n\n\nx = 1\n")
    _, old, new = mutated(mutation(), place, ["src"])
    assert (old, new) == (
        "    def f(self):\n        return 1\n",
        "    def f(self):\n        return 2\n",
    )


@pytest.mark.parametrize(
    ("files", "wrong", "said"),
    [
        ({"a_cc": "int g() { return 1; }"}, mutation(), "0 functions f"),
        ({"a_cc": "int f() { return 1; }", "b_h": "int f() { return 1; }"}, mutation(), "2 times"),
        ({"a_cc": "int f() { return 3; }"}, mutation(), "found 0 times"),
        ({"a_cc": "int f() { return 11; }"}, mutation(), "found 2 times"),
    ],
)
def test_a_mutation_that_does_not_fit_just_once_is_an_error(
    tmp_path: Path, files: dict[str, str], wrong: Mutation, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        mutated(wrong, place_of(tmp_path, **files), ["src"])


@pytest.mark.variant
@pytest.mark.timeout(700)  # the first case builds
def test_the_copy_is_what_runs(installed_copy: BrokenCopy) -> None:
    found = installed_copy.python("-c", "import tcpx_mpi._native as n; print(n.__file__)")
    place = Path(found.stdout.strip()).parent.resolve()
    assert place == installed_copy.folder / "tcpx_mpi", found.stderr


@pytest.mark.variant
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", NATIVE)
def test_the_sound_copy_passes_the_native_test(copy: BrokenCopy, name: str) -> None:
    assert copy.native_test(name) == 0


@pytest.mark.variant
@pytest.mark.multirank
@pytest.mark.timeout(700)
@pytest.mark.parametrize("run", RUNS)
def test_the_sound_copy_passes_the_run(mpi_copy: BrokenCopy, run: str) -> None:
    assert mpi_copy.verdict(RUNS[run].split()) == SOUND[run]


def each(kind: str, suffixes: tuple[str, ...] = (".cc", ".h", ".cu")) -> pytest.MarkDecorator:
    """Every broken copy that is caught in this way. All that builds is left to SUITE=mutants."""
    return pytest.mark.parametrize(
        "patch",
        [
            pytest.param(patch, id=patch.name)
            for patch in detected_by(kind)
            if patch.file.endswith(suffixes)
        ],
    )


@pytest.mark.variant
@pytest.mark.timeout(700)
@each("native")
def test_a_native_test_detects(copy: BrokenCopy, patch: Patch) -> None:
    copy.apply(patch)
    try:
        code = copy.native_test(patch.detected_by.removeprefix("native "))
    finally:
        copy.revert(patch)
    assert code not in (0, 2), f"not detected ({code}): {patch.why}"  # 2: no such test


@pytest.mark.variant
@pytest.mark.multirank
@pytest.mark.timeout(700)
@each("run")
def test_a_run_detects(mpi_copy: BrokenCopy, patch: Patch) -> None:
    mpi_copy.apply(patch)
    try:
        mpi_copy.install()
        is_detected_by_its_run(mpi_copy, patch)
    finally:
        mpi_copy.revert(patch)


@pytest.mark.multirank
@each("run", (".py",))
def test_a_run_detects_what_is_broken_in_python(python_copy: BrokenCopy, patch: Patch) -> None:
    run = patch.detected_by.removeprefix("run ").split(": ")[0]
    assert python_copy.verdict(RUNS[run].split()) == SOUND[run]
    python_copy.apply(patch)
    try:
        is_detected_by_its_run(python_copy, patch)
    finally:
        python_copy.revert(patch)


def is_detected_by_its_run(copy: BrokenCopy, patch: Patch) -> None:
    run, expected = patch.detected_by.removeprefix("run ").split(": ")
    verdict = copy.verdict([*RUNS[run].split(), *SOON])
    assert verdict != SOUND[run], f"not detected: {patch.why}"
    assert re.fullmatch(expected, verdict), f"detected as something else: {verdict}"


@pytest.mark.variant
@pytest.mark.timeout(700)
@each("conform")
def test_a_clause_detects(copy: BrokenCopy, patch: Patch) -> None:
    clause = patch.detected_by.removeprefix("conform ")
    copy.apply(patch)
    try:
        copy.install()
        found = copy.python("-m", "tcpx_mpi", "conform", "softtcpx", "--only", clause,
                            "--deadline", "10")  # fmt: skip
    finally:
        copy.revert(patch)
    # What TCPX is excused for softtcpx is, too, though it keeps it: `softtcpx_verdicts.txt`.
    code, verdict = (0, "known") if clause == "second-init" else (9, "FAIL")
    assert found.returncode == code, f"not detected: {patch.why}\n{found.stdout}"
    assert re.search(rf"^{verdict} +{clause} ", found.stdout, re.M), (
        f"not detected: {patch.why}\n{found.stdout}"
    )

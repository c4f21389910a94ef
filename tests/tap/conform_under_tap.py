"""The contract through the tap: each plugin is given the verdicts that it has without it.

Every plugin of these tests, each version, each planted fault: SUITE=tap. A few are in `make test`
(test_conform_under_tap.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import refplugin_build
from conform_command import NO_GPU, conform
from tap_files import bundled

TESTS = Path(__file__).parents[1]
#: Of a fault that was not judged alike.
TRIALS = 5
#: The plugin, the versions of its table, and in which memory it is tried.
PLUGINS = (
    *(("softtcpx", abi, memory) for abi in range(6, 13) for memory in ("host", "emulated")
      if (abi, memory) != (6, "emulated")),
    ("null", 7, "host"),
    ("refplugin/refplugin.cc", 7, "host"),
    ("refplugin/blocking.cc", 6, "host"),
    ("refplugin/blocking.cc", 9, "host"),
    ("refplugin/groups.cc", 7, "host"),
    ("refplugin/lawful_fresh.cc", 8, "host"),
    ("refplugin/lawful_stays.cc", 12, "host"),
    ("refplugin/lawful_waits.cc", 6, "host"),
    ("refplugin/oddplugin.cc", 7, "host"),
    ("refplugin/planted.cc", 7, "host"),
    ("refplugin/planted.cc", 11, "host"),
    ("harsh/harsh.cc", 7, "host"),
)  # fmt: skip


@pytest.mark.parametrize(("plugin", "abi", "memory"), PLUGINS)
def test_a_plugin_has_the_verdicts_that_it_has_without_the_tap(
    plugin: str, abi: int, memory: str, tmp_path: Path
) -> None:
    require_the_same(plugin, abi, memory, tmp_path)


@pytest.mark.timeout(3000)
def test_each_planted_fault_is_found_through_the_tap_too(tmp_path: Path) -> None:
    faulty = TESTS / "conform" / "faulty"
    library = refplugin_build.build(tmp_path, faulty / "faulty.cc")
    names = faults_of(faulty)
    assert names
    plain, tapped = Found(library), Found(bundled("tap", 11))
    # Where calls race, a fault may be met in another one the next time, with or without the tap.
    for _ in range(TRIALS):
        for found in (plain, tapped):
            found.by_trial(names, TCPX_TAP_PLUGIN=str(library))
        names = sorted({name for name, _ in disjoint(plain, tapped)})
        if not names:
            break
    assert not names, [(each, plain[each], tapped[each]) for each in disjoint(plain, tapped)]


class Found(defaultdict[tuple[str, str], set[str]]):
    """By fault and clause, all verdicts with their reasons that a plugin was given."""

    def __init__(self, plugin: Path) -> None:
        super().__init__(set)
        self.plugin = plugin

    def by_trial(self, names: list[str], **environ: str) -> None:
        for name, clauses in tried(self.plugin, names, **environ).items():
            for clause, judged in clauses.items():
                self[name, clause].add(without_numbers(judged))


def disjoint(one: Found, other: Found) -> list[tuple[str, str]]:
    """The faults and clauses that the two were never judged alike in."""
    return [each for each in sorted({*one, *other}) if not one[each] & other[each]]


def require_the_same(plugin: str, abi: int, memory: str, folder: Path) -> None:
    """Conforms with and without the tap are the same, clause by clause, with reasons."""
    library = (
        refplugin_build.build(folder, TESTS / plugin)
        if plugin.endswith(".cc")
        else bundled(plugin, abi if plugin == "softtcpx" else 7)
    )
    inner = str(bundled("softtcpx"))
    environ = {
        "NCCL_SOCKET_IFNAME": "=lo", "TCPX_TAP_PLUGIN": str(library), "HARSH_INNER": inner,
        "ODD_REAL": inner, "PLANT_REAL": inner, "GROUPS_REAL": inner, "GROUPS_DO": "reversed",
        "TCPX_TAP_DIR": str(folder / "taps"),
    }  # fmt: skip
    which = ("--quick", "--abi", str(abi), "--memory", memory)
    plain = conform(folder, str(library), *which, **environ)
    tapped = conform(folder, str(bundled("tap", abi)), *which, **environ)
    assert plain.document, plain.err
    assert tapped.document, tapped.err
    assert tapped.verdicts() == plain.verdicts(), (plain.out, tapped.out)
    assert without_numbers(tapped.reasons()) == without_numbers(plain.reasons())
    assert list((folder / "taps").glob("*.tap"))


def without_numbers(reasons: Any) -> str:
    """Reasons without what differs from one time to the next: addresses, counts, times, and in
    which calls two threads were when one of them crashed."""
    return re.sub(r"0x[0-9a-f]+|[0-9]|isend and (?=irecv by)", "", json.dumps(reasons))


def faults_of(sources: Path) -> list[str]:
    """The values of FAULT."""
    texts = "".join(path.read_text() for path in sorted(sources.iterdir()))
    return sorted(set(re.findall(r'fault\("([a-z0-9-]+)"\)', texts)))


def tried(plugin: Path, names: list[str], **environ: str) -> dict[str, Any]:
    command = [sys.executable, str(TESTS / "conform" / "try_faults.py"), str(plugin), "host", "5"]
    done = subprocess.run(
        [*command, *names], capture_output=True, text=True, timeout=3000,
        env={**os.environ, **NO_GPU, **environ, "NCCL_SOCKET_IFNAME": "=lo"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())

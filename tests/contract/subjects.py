"""Whose plugins the general part of the contract is asked of, and a test body on one of them.

softtcpx in each version, the plugins of tests/refplugin and tests/harsh, or any other: `pytest
tests/contract --plugin PATH [--abi N]`. A test takes `subject`, and `on_subject` runs its body in a
process of its own. `make test` asks all of softtcpx v7 and what is marked `quick` of its other
versions; SUITE=abi asks all of all.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from any_net import ABI, WINDOW
from ends import OWNERS
from fresh_process import LIMIT_S, clean_environment, command_of
from net_tables import NEWEST, OLDEST
from net_v7 import INTERNAL, LIBRARY, SYSTEM, softtcpx_path

#: Options of pytest (tests/conftest.py).
PLUGIN_OPTION, ABI_OPTION = "--plugin", "--abi"
#: Variables of a plugin, as the shell has them: tests see none of them.
_PREFIXES = ("NCCL_", "SOFTTCPX_")
_theirs = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
#: The version whose whole contract is part of `make test`: NCCL's TCPX has that.
EVERYDAY = 7
_NOT_ITS_KIND = 77
_TESTS = Path(__file__).parents[1]

#: A plugin, its version, its variables, and what is known of it (JSON): `slots` requests a comm,
#: `full` the code of one more (0: a NULL request), `lost` the code of a lost peer, `keeps_size`,
#: `unpacks` whether its netDeviceType is UNPACK; such a one takes pages of the host for a GPU's.
Subject = dict[str, Any]
#: As TCPX has it.
_TCPX = {"slots": 16, "full": INTERNAL, "lost": SYSTEM, "keeps_size": True}


def softtcpx(abi: int, **environ: str) -> Subject:
    name = f"libnccl-net-softtcpx{'' if abi == EVERYDAY else f'-v{abi}'}.so"
    path = str(softtcpx_path().parent / name)
    return {"path": path, "abi": abi, "environ": environ, "unpacks": abi >= 7, **_TCPX}


def refplugin(folder: Path) -> Subject:
    path = _build(folder, _TESTS / "refplugin" / "refplugin.cc")
    known = {"slots": 4, "full": 0, "keeps_size": False, "unpacks": False}
    return {"path": path, "abi": 7, "environ": {}, **known}


def harsh(folder: Path) -> Subject:
    path = _build(folder, _TESTS / "harsh" / "harsh.cc")
    environ = {"HARSH_INNER": str(softtcpx_path())}
    return {"path": path, "abi": 7, "environ": environ, "unpacks": True, **_TCPX}


#: Those that are built when they are first asked for.
BUILT = {"refplugin-v7": refplugin, "harsh-v7": harsh}


def chosen(config: pytest.Config) -> Subject | None:
    """The plugin of the command line."""
    path = config.getoption(PLUGIN_OPTION, None)
    if path is None:
        return None
    if not Path(path).is_file():
        raise pytest.UsageError(f"{PLUGIN_OPTION}: {path}: no such file; give the plugin's path")
    abi = config.getoption(ABI_OPTION, None) or _newest(path)
    return {"path": str(Path(path).resolve()), "abi": abi, "environ": _theirs}


def _newest(path: str) -> int:
    """The newest version that a file has a table of, by its symbols: it is not loaded here."""
    content = Path(path).read_bytes()
    found = [v for v in range(OLDEST, NEWEST + 1) if b"ncclNetPlugin_v%d\0" % v in content]
    if not found:
        raise pytest.UsageError(
            f"{PLUGIN_OPTION}: {path} has no table of v{OLDEST} to v{NEWEST}: is it a net plugin?"
        )
    return max(found)


def parameters(metafunc: pytest.Metafunc) -> Iterator[Any]:
    """The subjects of a test, as pytest's parameters."""
    if subject := chosen(metafunc.config):
        yield pytest.param(subject, id=f"{Path(subject['path']).stem}-v{subject['abi']}")
        return
    owned = metafunc.definition.get_closest_marker("owners") is not None
    for environ in OWNERS if owned else [{}]:
        name = ",".join(f"{name}={value}" for name, value in environ.items())
        yield pytest.param(softtcpx(EVERYDAY, **environ), id=f"softtcpx-v7{name and ':'}{name}")
    quick = metafunc.definition.get_closest_marker("quick") is not None
    later = [] if quick else [pytest.mark.variant]
    for abi in range(OLDEST, NEWEST + 1):
        if abi != EVERYDAY:
            yield pytest.param(softtcpx(abi), id=f"softtcpx-v{abi}", marks=later)
    for name in BUILT:
        yield pytest.param(name, id=name, marks=pytest.mark.variant)


def on_subject(body: Callable[..., None]) -> Callable[..., None]:
    """A test whose body runs in a new process, which has the subject in its environment."""

    @functools.wraps(body)
    def test(subject: Subject, **arguments: Any) -> None:
        named = {LIBRARY: subject["path"], ABI: str(subject["abi"])}
        named |= {WINDOW: str(subject["slots"])} if "slots" in subject else {}
        result = subprocess.run(
            command_of(body, {"subject": subject, **arguments}),
            env={**clean_environment(subject["environ"]), **named},
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        if result.returncode == _NOT_ITS_KIND:
            pytest.skip(result.stdout.strip())  # the child's words: what the plugin is not
        assert result.returncode == 0, f"exit {result.returncode}\n{result.stderr[-6000:]}"

    test.body = body  # type: ignore[attr-defined]  # for the child, which runs it
    return test


def not_its_kind(why: str) -> NoReturn:
    """Ends the process of a test body that has nothing to ask of this plugin: a skip."""
    print(why, flush=True)
    os._exit(_NOT_ITS_KIND)


def _build(folder: Path, source: Path) -> str:
    # Not by sys.path: the process of a test body has but this folder.
    spec = importlib.util.spec_from_file_location(
        "refplugin_build", _TESTS / "refplugin" / "refplugin_build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.build(folder, source))

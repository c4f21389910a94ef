"""Tells NIXL where the backend is, once the installed wheel is one that it was tested with."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import tcpx_mpi
from tcpx_mpi.errors import PluginMissing, UsageError

#: The backend's type, and so the name in its file.
BACKEND = "TCPX"
#: The first version of NIXL with this layout, and the first that was not tried.
TESTED = ("1.0", "1.6")

_FILE = f"libplugin_{BACKEND}.so"
_DIRECTORY = "NIXL_PLUGIN_DIR"
_PLUGIN = "TCPX_NIXL_PLUGIN"
#: Distributions that have NIXL's libraries, and the package of each.
_WHEELS = {"nixl-cu12": "nixl_cu12", "nixl-cu13": "nixl_cu13"}
_INSTALL = "pip install 'tcpx-mpi[nixl]'"


@dataclass(frozen=True)
class Wheel:
    """An installed NIXL."""

    name: str
    version: str
    #: To be imported: its `_api` has `nixl_agent`.
    package: str
    #: Of its own backends.
    plugins: Path | None


def plugin_dir() -> Path:
    """The directory that has the backend and nothing else, as NIXL_PLUGIN_DIR wants it.

    Raises PluginMissing if this installation has none.
    """
    for place in tcpx_mpi.__path__:
        if (Path(place) / "nixl_plugins" / _FILE).exists():
            return Path(place) / "nixl_plugins"
    built = _beside_native()
    if built is not None:
        return built
    raise PluginMissing(
        f"{_FILE} is not beside tcpx_mpi: install tcpx-mpi from its sources (make setup); a wheel "
        "of make wheel has none, for NIXL wants GCC's C++ library"
    )


def installed_wheel() -> Wheel:
    """The NIXL that is installed here. Raises PluginMissing if there is none."""
    for name, package in _WHEELS.items():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        own = [file for file in found.files or () if file.name == "libplugin_UCX.so"]
        # The folder of a build, hidden, is in some wheels, too. What is above the wheel's files,
        # ".venv" mostly, says nothing.
        own.sort(key=lambda file: any(part.startswith(".") for part in file.parts))
        plugins = Path(str(found.locate_file(own[0]))).parent if own else None
        return Wheel(name, found.version, package, plugins)
    raise PluginMissing(f"NIXL is not installed: none of {', '.join(_WHEELS)}; {_INSTALL}")


def enable(
    plugin: str | os.PathLike[str] | None = None,
    beside: Sequence[str] = (),
    environ: MutableMapping[str, str] = os.environ,
) -> Path:
    """Let the agents of this process, and its children, have the backend; NIXL's directory.

    To be called before the first agent, for NIXL looks at NIXL_PLUGIN_DIR once. `plugin` is the
    NCCL network plugin, a path or "softtcpx" (None: TCPX_NIXL_PLUGIN, or softtcpx). NIXL_PLUGIN_DIR
    replaces the wheel's own directory; `beside` names backends of it that are wanted, too:
    ("UCX",). An agent with both must be told which one to use, backends=["TCPX"], for else it
    takes any of them.

    Raises PluginMissing if NIXL or the plugin is missing. Raises UsageError for a NIXL that the
    backend was not tested with, for a NIXL_PLUGIN_DIR that is no directory or another's, and for a
    backend that the wheel lacks.
    """
    wheel = require_tested(installed_wheel())
    directory = plugin_dir()
    _require_free(environ, directory)
    if plugin is not None:
        path = os.fspath(plugin)
        if path != "softtcpx" and not os.path.isfile(path):
            raise PluginMissing(f"plugin {path}: no such file; give its path, or softtcpx")
        environ[_PLUGIN] = path
    if beside:
        directory = _joined(directory, wheel, beside)
    for name, value in compiler_settings().items():
        environ.setdefault(name, value)
    environ[_DIRECTORY] = str(directory)
    return directory


def compiler_settings() -> dict[str, str]:
    """The settings of the compiler with which the backend puts together what a plugin scatters in a
    GPU's memory."""
    from tcpx_mpi.machine.gpu.compiler import kernel_cache, nvrtc_folders

    found = {
        "TCPX_NIXL_NVRTC": ":".join(nvrtc_folders(sys.path, os.environ)),
        "TCPX_NIXL_KERNEL_CACHE": kernel_cache(os.environ),
    }
    return {name: value for name, value in found.items() if value}


def require_tested(wheel: Wheel) -> Wheel:
    """The wheel, if its layout is known. Raises UsageError."""
    low, high = TESTED
    if not _numbers(low) <= _numbers(wheel.version) < _numbers(high):
        raise UsageError(
            f"{wheel.name} {wheel.version}: the backend {BACKEND} was tested with {low} or newer, "
            f"below {high}; install one of them: pip install '{wheel.name}>={low},<{high}'"
        )
    return wheel


def _require_free(environ: MutableMapping[str, str], directory: Path) -> None:
    set_before = environ.get(_DIRECTORY, "")
    if not set_before:
        return
    if not os.path.isdir(set_before):
        raise UsageError(f"{_DIRECTORY}: {set_before} is no directory; unset it")
    if not os.path.exists(os.path.join(set_before, _FILE)):
        raise UsageError(
            f"{_DIRECTORY}: {set_before} has no {_FILE}, and {directory} would replace it; unset "
            f"it, and name the backends that you want with it: enable(beside=[...])"
        )


def _joined(directory: Path, wheel: Wheel, beside: Sequence[str]) -> Path:
    """A directory with links to the backend and to those of the wheel, kept for this process."""
    links = {_FILE: directory / _FILE}
    for name in beside:
        file = f"libplugin_{name}.so"
        if wheel.plugins is None or not (wheel.plugins / file).exists():
            raise UsageError(f"{wheel.name} {wheel.version} has no backend {name}")
        links[file] = wheel.plugins / file
    folder = tempfile.TemporaryDirectory(prefix="tcpx-mpi-nixl-")
    _KEPT.append(folder)
    # They look for their libraries in the folder above their own.
    joined = Path(folder.name) / "plugins"
    joined.mkdir()
    if wheel.plugins is not None:
        for library in wheel.plugins.parent.iterdir():
            if library.name == joined.name:  # theirs: only what is named is wanted
                continue
            (joined.parent / library.name).symlink_to(library)
    for file, target in links.items():
        (joined / file).symlink_to(target)
    return joined


#: Removed when the process ends.
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _beside_native() -> Path | None:
    """The native module's folder in an editable installation, whose sources lie elsewhere."""
    from tcpx_mpi import _native

    folder = Path(_native.__file__).parent / "nixl_plugins"
    return folder if (folder / _FILE).exists() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(_leading(version))


def _leading(version: str) -> Iterator[int]:
    for part in version.split("."):
        found = re.match(r"\d+", part)
        if found is None:
            return
        yield int(found.group())

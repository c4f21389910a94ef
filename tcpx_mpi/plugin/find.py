"""Which plugin file a run uses, and why: by path, by name, or by what the environment asks for.

Looks at files but loads nothing, but for `inspect`. The environment is an argument everywhere.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import PluginMissing, UsageError
from tcpx_mpi.inputs import Input, Limits
from tcpx_mpi.plugin.nccl_choice import nccl_choice
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.units import format_size_option

#: Where TCPX is installed, in the order of preference.
TCPX_PLACES = (
    "/usr/local/tcpx/lib64/libnccl-net-tcpx.so",
    "/usr/local/tcpx/lib64/libnccl-net.so",
    "/var/lib/tcpx/lib64/libnccl-net-tcpx.so",
    "/var/lib/tcpx/lib64/libnccl-net.so",
)
PATH_VARIABLE = "UCCL_TCPX_PLUGIN_PATH"
CHUNK_VARIABLE = "NCCL_DYNAMIC_CHUNK_SIZE"
#: How long connect of softtcpx waits for accept, whatever the caller's patience.
ANSWER_VARIABLE = "SOFTTCPX_ANSWER_TIMEOUT_MS"
#: Whether softtcpx tells the size of a receive, which TCPX does not.
SIZES_VARIABLE = "SOFTTCPX_REPORT_SIZES"
#: What chooses the network interfaces of TCPX and softtcpx; the first that is set holds. Others
#: know the last at most.
INTERFACE_VARIABLES = ("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
#: Plugins that are built with this package.
BUNDLED = ("softtcpx", "null", "tap")
#: Of those, what has a file for each version of the table.
_VERSIONED = ("softtcpx", "tap")
#: The plugin that the tap passes calls on to.
TAP_VARIABLE = "TCPX_TAP_PLUGIN"
#: The table of softtcpx's default file; each other version has a file of its own.
SOFTTCPX_ABI = 7

#: Settings that only the real TCPX has any use for.
_TCPX_PREFIX = "NCCL_GPUDIRECTTCPX_"
#: Where the receive-datapath manager of an A3 machine has its sockets.
_MANAGER_DIRECTORY = "/run/tcpx"

#: Longer than the loading of a library takes, from a slow network file system too.
LOAD_PATIENCE_S = 300.0

Exists = Callable[[str], bool]

_LIBRARY = Limits(bytes=4 << 30)

#: What dlopen says of a library that another one needs.
_MISSING_LIBRARY = re.compile(r"(\S+): cannot open shared object file: No such file")


@dataclass(frozen=True)
class PluginChoice:
    """A file to load, or a name for dlopen; `asked`: the command line named it; `abi`: the version
    of its table, 0 for the newest that it offers."""

    path: str
    how: str
    asked: bool
    abi: int = 0


@dataclass(frozen=True)
class PluginFile:
    """A loadable plugin file that was not initialised."""

    path: str
    sha256: str
    abi: int
    abi_versions: tuple[int, ...]
    name: str


def choose_plugin(
    settings: Settings, environ: Mapping[str, str], exists: Exists = os.path.exists
) -> PluginChoice:
    """The plugin that these settings mean. Raises PluginMissing, as `find_plugin`."""
    # A variable does not name a plugin the way an option does: without TCPX it is "missing" (3).
    named = settings.sources["plugin"].startswith(("command line", "file "))
    spec = settings.plugin if named else "auto"
    return find_plugin(spec, environ, bundled_dir(), exists, settings.abi)


def find_plugin(
    spec: str,
    environ: Mapping[str, str],
    bundled_dir: str,
    exists: Exists = os.path.exists,
    abi: int = 0,
) -> PluginChoice:
    """The plugin of a path, of a name (softtcpx, null, tap, tcpx, another), or by default ("auto").

    With `abi`, to be used by that version of its table; softtcpx and the tap have a file for each.

    Raises PluginMissing for a path that is not there, and for TCPX that is asked for, by name or by
    the environment, and not there: softtcpx never replaces it silently.
    """
    if spec == "auto":
        choice = _automatic(environ, bundled_dir, exists, abi)
    elif spec == "tcpx":
        choice = _tcpx("--plugin tcpx", exists)
    elif spec in BUNDLED:
        how = f"--plugin {spec}: built with tcpx-mpi"
        choice = _bundled(spec, how, bundled_dir, exists, True, abi)
    else:
        choice = _by_path_or_name(spec, environ, exists)
    return dataclasses.replace(choice, abi=abi, how=choice.how + _passed_on(choice, environ))


def inspect(choice: PluginChoice, apart: bool = True, ours_too: bool = False) -> PluginFile:
    """Loads the file, without initialising it, and says what it is.

    `apart`: in a process of its own, which a broken file may end, unless this package has built it;
    `ours_too`: then too, so that this process has none loaded.
    Raises UsageError if the command line named a file that is no plugin of a supported ABI. Raises
    PluginMissing if such a file was found in another way, or if it or a library that it needs is
    missing.
    """
    native = _native()
    from tcpx_mpi.plugin import trial

    apart = apart and (ours_too or os.path.dirname(choice.path) != bundled_dir())
    try:
        if apart:
            facts = trial.facts_of(choice.path, choice.abi, os.environ, LOAD_PATIENCE_S)
        else:
            facts = native.probe(choice.path, choice.abi)
    except (native.LibraryError, trial.NoPlugin) as error:
        hint = _hint(str(error))
        lacks = _MISSING_LIBRARY.search(str(error))
        if choice.asked and lacks and lacks[1] == choice.path and "/" not in choice.path:
            name = choice.path.removeprefix("libnccl-net-").removesuffix(".so")
            meant = did_you_mean(name, _names_here())
            raise PluginMissing(
                f"--plugin: no plugin {name} here{meant}: {choice.path} "
                "is not where libraries are looked for; `tcpx-mpi plugins` lists what is here, and "
                "LD_LIBRARY_PATH has further directories"
            ) from None
        if choice.asked and not lacks:
            raise UsageError(f"--plugin: {error}{hint}") from None
        raise PluginMissing(f"{error} (found by: {choice.how}){hint}") from None
    path, abi_versions = facts["path"], tuple(facts["abi_versions"])
    return PluginFile(path, sha256_of(path), facts["abi"], abi_versions, facts["name"])


def prepare_environment(
    settings: Settings,
    environ: Mapping[str, str],
    profile: Sequence[tuple[str, str, str]] = (),
) -> list[tuple[str, str, str]]:
    """(name, value, source) of every variable to be set before any plugin is loaded.

    `profile` has those of a profile. TCPX hangs without NCCL_DYNAMIC_CHUNK_SIZE, and leaks if a
    request is larger. So an unset one becomes --chunk, or the profile's if that is larger; one
    below --chunk is refused (UsageError).
    """
    others = [variable for variable in profile if variable[0] != CHUNK_VARIABLE]
    return [_chunk_variable(settings, environ, profile), *others]


def answer_variables(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) by which softtcpx's connect waits as long as its caller does.

    Nothing over the user's word. No figure would do: the caller's patience is with a silence,
    begins anew with each connection that comes up, and is each time a session's to say.
    """
    if environ.get(ANSWER_VARIABLE, "").strip():
        return []
    return [(ANSWER_VARIABLE, "0", "no limit but that of --connect-timeout")]


def is_softtcpx(name: str) -> bool:
    """Whether a plugin that calls itself so is ours, wherever its file lies."""
    return name.startswith("softtcpx")


def is_tcpx(name: str) -> bool:
    """Whether a plugin that calls itself so is Google's."""
    return "GPUDirectTCPX" in name


def reads_tcpx_variables(name: str) -> bool:
    """Whether a plugin that calls itself so obeys TCPX's variables."""
    return is_softtcpx(name) or is_tcpx(name)


def _chunk_variable(
    settings: Settings, environ: Mapping[str, str], profile: Sequence[tuple[str, str, str]]
) -> tuple[str, str, str]:
    found = environ.get(CHUNK_VARIABLE, "").strip()
    if not found:
        for variable in profile:
            large = variable[1].isdecimal() and int(variable[1]) >= settings.chunk_bytes
            if variable[0] == CHUNK_VARIABLE and large:
                return variable
        return (CHUNK_VARIABLE, str(settings.chunk_bytes), "derived from --chunk")
    if not found.isdecimal():
        raise UsageError(
            f"{CHUNK_VARIABLE} ({found}) is not a whole number of bytes; unset it to have --chunk"
        )
    if int(found) < settings.chunk_bytes:
        chunk = format_size_option(settings.chunk_bytes)
        smaller = f"use --chunk {found} or less" if int(found) > 0 else f"set {chunk} or more"
        raise UsageError(
            f"{CHUNK_VARIABLE} ({found}) is smaller than --chunk ({chunk}); unset it, or {smaller}"
        )
    return (CHUNK_VARIABLE, found, "environment")


def interface_choice(plugin: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """(variable, its value) of what chooses the network interfaces of a plugin that calls itself
    so; ("", "") for none."""
    for name in INTERFACE_VARIABLES if reads_tcpx_variables(plugin) else INTERFACE_VARIABLES[-1:]:
        if environ.get(name, "").strip():
            return name, environ[name].strip()
    return "", ""


def candidates(
    environ: Mapping[str, str],
    bundled_dir: str,
    exists: Exists = os.path.exists,
    list_directory: Callable[[str], list[str]] = os.listdir,
) -> list[PluginChoice]:
    """Every plugin that could be named or found here, there or not, in the order of preference."""
    found = {}
    if path := _plugin_path(environ):
        found[path] = PATH_VARIABLE
    for place in TCPX_PLACES:
        found.setdefault(place, "tcpx")
    for directory in filter(exists, _library_directories(environ)):
        for file in sorted(list_directory(directory)):
            if file.startswith("libnccl-net") and file.endswith(".so"):
                found.setdefault(os.path.join(directory, file), "LD_LIBRARY_PATH")
    for name in BUNDLED:
        found.setdefault(_bundled_file(name, bundled_dir), name)
    return [PluginChoice(path, how, asked=False) for path, how in found.items()]


def what_asks_for_tcpx(environ: Mapping[str, str], exists: Exists = os.path.exists) -> list[str]:
    """Everything on this host that says a run here means the real TCPX; empty: nothing does."""
    reasons = [PATH_VARIABLE] if _plugin_path(environ) else []
    reasons += sorted(
        name for name, value in environ.items() if name.startswith(_TCPX_PREFIX) and value.strip()
    )
    # Elsewhere than here it is named by a variable of the prefix, which asks already.
    if exists(_MANAGER_DIRECTORY):
        reasons.append(f"{_MANAGER_DIRECTORY}, the receive-datapath manager's directory")
    return reasons


def bundled_dir() -> str:
    """The directory of the plugins built with this package: beside the native module."""
    return os.path.dirname(os.path.abspath(str(_native().__file__)))


def sha256_of(path: str) -> str:
    """The hash of a file, in hexadecimal."""
    source = Input(path, _LIBRARY)
    for _ in source.pieces():
        pass
    return source.digest.hexdigest()


def _automatic(
    environ: Mapping[str, str], bundled_dir: str, exists: Exists, abi: int
) -> PluginChoice:
    if path := _plugin_path(environ):
        if not exists(path):
            raise PluginMissing(
                f"{PATH_VARIABLE} ({path}): no such file; correct it, "
                "or give --plugin softtcpx to use the software plugin on purpose"
            )
        return PluginChoice(os.path.abspath(path), PATH_VARIABLE, asked=False)
    others = {name: (_bundled_file(name, bundled_dir),) for name in BUNDLED}
    named = nccl_choice(environ, exists, {**others, "tcpx": TCPX_PLACES})
    if named is not None and named.path:
        return PluginChoice(named.path, named.how, asked=False)
    unused = f"; {named.how}" if named is not None else ""
    reasons = what_asks_for_tcpx(environ, exists)
    if reasons or any(map(exists, TCPX_PLACES)):
        return _tcpx(", ".join(reasons), exists, unused)
    how = f"nothing asks for TCPX, so the software plugin{unused}"
    return _bundled("softtcpx", how, bundled_dir, exists, asked=False, abi=abi)


def _names_here() -> list[str]:
    """The names that `--plugin` takes here."""
    files = (os.path.basename(each.path) for each in candidates(os.environ, bundled_dir()))
    return ["tcpx", *(f.removeprefix("libnccl-net-").removesuffix(".so") for f in files)]


def _tcpx(asked_by: str, exists: Exists, unused: str = "") -> PluginChoice:
    for place in TCPX_PLACES:
        if exists(place):
            how = f"TCPX, asked for by {asked_by}" if asked_by else "TCPX is installed"
            return PluginChoice(place, how + unused, asked=False)
    raise PluginMissing(
        f"TCPX is asked for by {asked_by} but is not in {', '.join(TCPX_PLACES)}; set "
        f"{PATH_VARIABLE} to its path, or give --plugin softtcpx to use the software plugin "
        f"on purpose{unused}"
    )


def _bundled(
    name: str, how: str, bundled_dir: str, exists: Exists, asked: bool, abi: int
) -> PluginChoice:
    versioned = name in _VERSIONED and abi not in (0, SOFTTCPX_ABI)
    path = _bundled_file(f"{name}-v{abi}" if versioned else name, bundled_dir)
    if not exists(path):
        raise PluginMissing(f"the plugin {name} is not at {path}: install tcpx-mpi anew")
    return PluginChoice(path, how, asked)


def _passed_on(choice: PluginChoice, environ: Mapping[str, str]) -> str:
    """The plugin below the tap, whose name the tap has."""
    if not os.path.basename(choice.path).startswith("libnccl-net-tap"):
        return ""
    inner = environ.get(TAP_VARIABLE, "")
    return f"; it passes calls on to {inner or 'nothing'} ({TAP_VARIABLE})"


def _bundled_file(name: str, bundled_dir: str) -> str:
    return os.path.join(bundled_dir, f"libnccl-net-{name}.so")


def _by_path_or_name(spec: str, environ: Mapping[str, str], exists: Exists) -> PluginChoice:
    is_file_name = spec.endswith(".so")
    if "/" in spec or (is_file_name and exists(spec)):
        if not exists(spec):
            beside = os.path.dirname(spec) or "."
            there = os.listdir(beside) if os.path.isdir(beside) else []
            meant = did_you_mean(os.path.basename(spec), (f for f in there if f.endswith(".so")))
            raise PluginMissing(
                f"--plugin ({spec}): no such file{meant}; give the path of a libnccl-net*.so, or a "
                "name that `tcpx-mpi plugins` lists"
            )
        return PluginChoice(os.path.abspath(spec), f"--plugin {spec}", asked=True)
    soname = spec if is_file_name else f"libnccl-net-{spec}.so"
    for directory in _library_directories(environ):
        path = os.path.join(directory, soname)
        if exists(path):
            return PluginChoice(path, f"--plugin {spec}: in LD_LIBRARY_PATH", asked=True)
    # dlopen knows further places (ld.so.cache) that only it can look into.
    return PluginChoice(soname, f"--plugin {spec}: wherever dlopen finds it", asked=True)


def _plugin_path(environ: Mapping[str, str]) -> str:
    return environ.get(PATH_VARIABLE, "").strip()


def _library_directories(environ: Mapping[str, str]) -> Iterator[str]:
    for part in environ.get("LD_LIBRARY_PATH", "").split(":"):
        if part:
            yield os.path.abspath(part)


def _native() -> ModuleType:
    try:
        # By name: the type checker need not have the module built.
        return importlib.import_module("tcpx_mpi._native")
    except ImportError as error:
        raise PluginMissing(
            f"the native part of tcpx-mpi cannot be loaded ({error}): install it with a C++17 "
            "compiler, `pip install .`"
        ) from None


def _hint(text: str) -> str:
    if "failed to map segment" in text:  # what dlopen says of a file system mounted noexec
        return (
            "; its file system may be mounted noexec: copy the file to an executable mount and "
            f"name it there, by --plugin or {PATH_VARIABLE}"
        )
    if missing := _MISSING_LIBRARY.search(text):
        if missing[1].startswith("libcuda.so"):
            return "; libcuda is of the NVIDIA driver: install it, or mount it into the container"
        return f"; it needs {missing[1]}: add the directory of that file to LD_LIBRARY_PATH"
    if "undefined symbol" in text:
        return "; it was built for other libraries than are here: use a build for this machine"
    if "cannot load" in text:
        return "; name another: `tcpx-mpi plugins` lists what is here"
    return ""

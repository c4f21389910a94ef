"""The direction of imports, and who alone may know what. The map: docs of each module."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tcpx_mpi import patterns

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "tcpx_mpi"
NATIVE = REPOSITORY / "native"

# Lowest first: a package imports from its own layer and from lower ones.
LAYERS = (
    (
        "_version",
        "arrays",
        "errors",
        "folded",
        "cpu_lists",
        "open_files",
        "parent_death",
        "printable",
        "programs",
        "secrets",
        "slips",
        "stragglers",
        "_native",
    ),
    ("clock", "units", "inputs", "toml_value", "launch", "schedule"),
    ("config", "records", "patterns", "tap"),
    ("machine", "stats", "workload", "world"),
    ("plugin", "compare", "findings", "gates"),
    ("tune",),
    ("transport", "report"),
    ("baselines", "session", "exchange"),
    ("run", "__init__"),  # what `import tcpx_mpi` offers
    ("preflight", "conform", "nixl", "simulate"),
    ("doctor", "qualify"),
    ("cli",),
    ("__main__",),
)
LAYER = {module: number for number, layer in enumerate(LAYERS) for module in layer}
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Full names of what a file imports, within functions and for type checking, too."""
    return tuple(find_imports(path))


def find_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """The modules of this package that a file imports."""
    names = {name for name in imports_of(path) if name.split(".")[0] == "tcpx_mpi"}
    return {name.split(".")[1] for name in names if name != "tcpx_mpi"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_downwards(path: Path) -> None:
    module = module_of(path)
    assert module in LAYER, f"{module} has no place in LAYERS: give it the lowest that it can have"
    upwards = {name for name in ours(path) if LAYER.get(name, -1) > LAYER[module]}
    assert not upwards, f"{module} imports {sorted(upwards)}, which stand above it"


def without_circles(wanted: Mapping[str, set[str]]) -> set[str]:
    """Those that stand in no circle, nor above one; of each is given what it wants."""
    settled: set[str] = set()
    while ready := {
        one for one in wanted.keys() - settled if not (wanted[one] & wanted.keys()) - settled
    }:
        settled |= ready
    return settled


def require_no_circle(wanted: Mapping[str, set[str]]) -> None:
    # What stands only above a circle is taken away from the top, so that the circle is left.
    left = wanted.keys() - without_circles(wanted)
    while top := {one for one in left if not any(one in wanted[other] for other in left)}:
        left -= top
    assert not left, f"a circle within {sorted(left)}"


def test_no_package_imports_itself_in_a_circle() -> None:
    wanted: dict[str, set[str]] = {}
    for path in FILES:
        wanted.setdefault(module_of(path), set()).update(ours(path) - {module_of(path)})
    require_no_circle(wanted)


def test_no_file_imports_itself_in_a_circle() -> None:
    names = {dotted(path): path for path in FILES}

    def file_of(name: str) -> str:
        """The file that an imported name is, or is in."""
        while name and name not in names:
            name = name.rpartition(".")[0]
        return name

    wanted = {name: {file_of(each) for each in imports_of(path)} for name, path in names.items()}
    # The package itself offers names of others, and nothing here takes them from it.
    apart = {"", "tcpx_mpi"}
    require_no_circle({name: wants - {name} - apart for name, wants in wanted.items()})


def dotted(path: Path) -> str:
    name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    return name.removesuffix(".__init__")


@pytest.mark.parametrize(
    ("library", "owners"),
    [
        ("mpi4py", "world"),
        ("h5py", "records"),
        ("click", "cli"),
        ("jinja2", "report"),
        ("matplotlib", "report"),
        ("pandas", "exchange"),
        ("pyarrow", "exchange"),
        ("cupy", "transport"),
        ("pynvml", "machine"),
    ],
)
def test_a_library_has_its_owners(library: str, owners: str) -> None:
    users = {
        module_of(path)
        for path in FILES
        if any(name.split(".")[0] == library for name in imports_of(path))
    }
    assert users == set(owners.split())


def test_the_benchmark_is_a_story_of_under_160_lines() -> None:
    assert len((PACKAGE / "run" / "benchmark.py").read_text().splitlines()) < 160


def test_no_story_is_made_out_of_another() -> None:
    bases = {
        f"{node.name}({ast.unparse(base)})"
        for path in (PACKAGE / "run").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base) not in ("Protocol", "RuntimeError")
    }
    assert not bases, f"{sorted(bases)}: stories call what they have in common"


def test_importing_the_package_loads_nothing_heavy_and_no_mpi() -> None:
    code = "import sys, tcpx_mpi; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {
        "mpi4py",
        "numpy",
        "h5py",
        "psutil",
        "click",
        "cupy",
        "matplotlib",
        "jinja2",
        "pandas",
    }
    assert not heavy & set(loaded.stdout.split())


def test_a_rank_loads_nothing_that_only_some_runs_need() -> None:
    code = (
        "import sys, tcpx_mpi.run.benchmark, tcpx_mpi.run.story; tcpx_mpi.__version__; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    seldom = {
        "pandas",
        "pyarrow",
        "h5py",
        "difflib",
        "importlib.metadata",
        "tcpx_mpi.exchange.export",
        "tcpx_mpi.exchange.tidy",
        "tcpx_mpi.run.event_stream",
        "tcpx_mpi.run.progress",
    }
    assert not seldom & set(loaded.stdout.split())


#: Words that are names of patterns, and stand for something else in these files.
OTHER_MEANINGS = {
    "__main__.py": {"smoke"},  # the command
    "cli/simulate.py": {"matrix", "moe", "replay"},  # the options
    "config/options.py": {"matrix", "pairs", "replay"},
    "config/settings.py": {"moe", "replay"},  # the option
    "qualify/story.py": {"pairs"},  # the option
    "records/schema.py": {"pairs"},  # the field of a row
    "exchange/perfetto.py": {"reduce"},  # the phase of a chunk
    "exchange/tidy.py": {"pairs"},
    "stats/launches.py": {"pairs"},  # of launches
    "compare/text.py": {"pairs"},
    "stragglers/detect.py": {"pair"},  # what is slow
}


def names_in(path: Path) -> set[str]:
    """Names of patterns that are texts of a file."""
    texts = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return texts & {*patterns.NAMES, patterns.SMOKE}


def test_no_name_of_a_pattern_stands_outside_patterns() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in FILES
        if module_of(path) != "patterns" and (names := names_in(path))
    }
    named = {file: names - OTHER_MEANINGS.get(file, set()) for file, names in found.items()}
    assert not any(named.values()), f"{named}: ask its Program"
    unused = {file: names - found.get(file, set()) for file, names in OTHER_MEANINGS.items()}
    assert not any(unused.values()), f"{unused} have another meaning nowhere"


# --- Native code ----------------------------------------------------------------------------------

# A folder includes from its own and from these. `cuda` is NVIDIA's driver: what is not named here,
# softtcpx above all, knows nothing of it.
NATIVE_BELOW = {
    "net": set(),
    "cuda": set(),
    "reduce": {"cuda"},
    "memory": {"cuda", "reduce"},
    # Kernels that stay, of the engine and of softtcpx.
    "staying": {"cuda"},
    "unpack": {"net", "memory", "cuda", "reduce", "staying"},
    "engine": {"net", "memory", "unpack", "cuda", "reduce"},
    "library": {"net", "memory", "unpack", "cuda", "engine"},
    "proof": set(),
    "library/nixl": {"net", "memory", "cuda", "engine", "library", "proof"},
    "baselines": {"engine", "memory"},
    "machine": {"engine", "memory"},
    "softtcpx": {"net", "proof", "staying"},
    "tap": {"net", "proof"},
    "null": {"net"},
}
# The same within softtcpx.
SOFTTCPX = NATIVE / "softtcpx"
SOFTTCPX_BELOW = {
    "environment": set(),
    "gpu": {"environment"},
    "protocol": {"environment"},
    "transfer": {"environment", "gpu", "protocol"},
    "handshake": {"environment", "protocol", "transfer"},
    "api": {"environment", "gpu", "protocol", "transfer", "handshake"},
}
NATIVE_FILES = sorted(path for kind in ("cc", "h", "cu") for path in NATIVE.rglob(f"*.{kind}"))
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def native_name(path: Path) -> str:
    return str(path.relative_to(NATIVE))


def unit_of(path: Path) -> str:
    """A header and its source are one."""
    return native_name(path.with_suffix(""))


def folder_of(path: Path) -> str:
    """The deepest folder of the table that the file is in."""
    folders = [str(each) for each in path.relative_to(NATIVE).parents]
    return next((each for each in folders if each in NATIVE_BELOW), folders[-2])


@pytest.mark.parametrize("path", NATIVE_FILES, ids=native_name)
def test_native_includes_go_downwards(path: Path) -> None:
    folder = folder_of(path)
    if folder == "bindings":
        return  # on top of everything
    for include in INCLUDE.findall(path.read_text()):
        assert ".." not in include, f"{folder} includes {include}: paths are from native/ here"
        target = NATIVE / include
        if "/" in include and target.exists():
            assert folder_of(target) in NATIVE_BELOW[folder] | {folder}, f"{folder}: {include}"


def test_no_native_file_includes_itself_in_a_circle() -> None:
    wanted: dict[str, set[str]] = {}
    for path in NATIVE_FILES:
        found = {NATIVE / include for include in INCLUDE.findall(path.read_text())}
        ours = {unit_of(each) for each in found if each.exists()} - {unit_of(path)}
        wanted.setdefault(unit_of(path), set()).update(ours)
    require_no_circle(wanted)


@pytest.mark.parametrize(
    "path", [p for p in NATIVE_FILES if SOFTTCPX in p.parents], ids=native_name
)
def test_softtcpx_goes_in_one_direction(path: Path) -> None:
    folder = path.relative_to(SOFTTCPX).parts[0]
    for include in INCLUDE.findall(path.read_text()):
        if include.startswith(f"{native_name(SOFTTCPX)}/"):
            included = (NATIVE / include).relative_to(SOFTTCPX).parts[0]
            assert included in SOFTTCPX_BELOW[folder] | {folder}, f"{folder} includes {include}"


def test_all_kinds_of_native_files_are_read() -> None:
    assert {path.suffix for path in NATIVE_FILES} == {".cc", ".h", ".cu"}
    assert {folder_of(path) for path in NATIVE_FILES} == {*NATIVE_BELOW, "bindings"}


def test_plugins_share_only_the_declarations_of_the_abi_with_the_engine() -> None:
    for path in NATIVE_FILES:
        if folder_of(path) in ("softtcpx", "tap", "null"):
            shared = {i for i in INCLUDE.findall(path.read_text()) if i.startswith("net/")}
            assert not [i for i in shared if not i.startswith("net/abi")], native_name(path)


def test_only_the_bindings_know_python() -> None:
    for path in NATIVE_FILES:
        if folder_of(path) != "bindings":
            text = path.read_text()
            assert not re.search(r"nanobind|Python\.h|PyObject|pybind", text), native_name(path)


def test_native_code_knows_no_mpi() -> None:
    for path in NATIVE_FILES:
        assert "mpi.h" not in SYSTEM_INCLUDE.findall(path.read_text()), native_name(path)


@pytest.mark.parametrize(
    "path", [p for p in NATIVE_FILES if folder_of(p) == "engine"], ids=native_name
)
def test_no_code_of_the_engine_names_a_pattern(path: Path) -> None:
    code = COMMENT_OR_TEXT.sub(" ", path.read_text()).replace("std::pair", "")
    words = set(re.findall(r"[A-Za-z_]\w*", code))
    # CamelCase and snake_case alike: kRingStep, ring_step.
    parts = {
        part for word in words for part in re.sub(r"([a-z])([A-Z])", r"\1_\2", word).split("_")
    }
    named = parts & {"pair", "Pair", "ring", "Ring", "mesh", "Mesh", "pingpong", "Pingpong"}
    assert not named, f"{native_name(path)} names {sorted(named)}"

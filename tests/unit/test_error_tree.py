"""The tree in the docstring of `tcpx_mpi.errors` is the tree of classes."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from tcpx_mpi import errors
from tcpx_mpi.errors import ExitCode, TcpxError

PACKAGE = Path(errors.__file__).parent
_LINE = re.compile(r"^    ([│├└─ ]*)(\w+) +([0-9]+)   (.*)$", re.MULTILINE)
_MODULE = re.compile(r"\(([a-z]+\.[a-z_]+)\)$")


def bases_by_class() -> dict[str, tuple[str, set[str]]]:
    """Of each class of the package: its module, and the names that it inherits from."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                names |= {base.attr for base in node.bases if isinstance(base, ast.Attribute)}
                found[node.name] = (module, names)
    return found


def errors_of_the_package() -> set[type[TcpxError]]:
    classes = bases_by_class()
    names = {"TcpxError"}
    while more := {name for name, (_, bases) in classes.items() if bases & names} - names:
        names |= more
    return {
        getattr(importlib.import_module(f"tcpx_mpi.{classes[name][0]}"), name) for name in names
    }


def drawn() -> list[tuple[str, str, int, str]]:
    """(the class above, class, exit code, module) of each line, from top to bottom."""
    above: list[str] = []
    lines = []
    for branch, name, code, text in _LINE.findall(errors.__doc__ or ""):
        depth = len(branch) // 4
        above[depth:] = [name]
        module = _MODULE.search(text)
        lines.append((above[depth - 1] if depth else "", name, int(code),
                      module[1] if module else "errors"))  # fmt: skip
    return lines


def test_the_tree_has_every_error_with_its_code_and_place() -> None:
    classes = {
        (
            "" if kind is TcpxError else kind.__base__.__name__,
            kind.__name__,
            int(kind.exit_code),
            kind.__module__.removeprefix("tcpx_mpi."),
        )
        for kind in errors_of_the_package()
    }
    assert len(drawn()) == len(classes)
    assert set(drawn()) == classes


def test_every_exit_code_is_in_the_docstring() -> None:
    text = errors.__doc__ or ""
    assert {int(code) for code in ExitCode} - {int(n) for n in re.findall(r"\d+", text)} == set()


def test_errors_of_the_same_class_have_one_code() -> None:
    """What inherits from an error ends a command as that does."""
    for kind in errors_of_the_package() - {TcpxError}:
        parent = kind.__base__
        assert parent is TcpxError or kind.exit_code == parent.exit_code, kind

"""Programs of the contract, compiled once from what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from p2p_drivers import (
    FOLDER,
    LANGUAGES,
    SOURCES,
    Driver,
    Start,
    compile_program,
    nixl_flags,
    package_flags,
    python_driver,
    started,
)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The command of a language's driver."""
    made: dict[str, list[str]] = {}

    def command(language: str) -> list[str]:
        if language == "python":
            return python_driver()
        if language not in made:
            source = FOLDER / SOURCES[language]
            folder = tmp_path_factory.mktemp("p2p")
            is_nixl = language == "nixl"
            flags = nixl_flags(folder) if is_nixl else package_flags("--cflags", "--libs")
            made[language] = [str(compile_program(source, folder / source.stem, flags))]
        return made[language]

    return command


@pytest.fixture
def start(commands: Callable[[str], list[str]]) -> Iterator[Start]:
    """Starts a driver, which must end well with the test."""
    with ExitStack() as stack:

        def begin(language: str, **variables: str) -> Driver:
            each: AbstractContextManager[Driver] = started(
                language, commands(language), **variables
            )
            return stack.enter_context(each)

        yield begin


@pytest.fixture(params=LANGUAGES)
def driver(request: pytest.FixtureRequest, start: Start) -> Driver:
    """The same through every language."""
    return start(request.param)


@pytest.fixture(params=(*LANGUAGES, "nixl"))
def driver_or_nixl(request: pytest.FixtureRequest, start: Start) -> Driver:
    """The same through NIXL too: for what a transfer with one side has as well."""
    return start(request.param)

"""Programs of the contract, compiled once from what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from p2p_drivers import (
    FOLDER,
    LANGUAGES,
    Driver,
    Start,
    compile_program,
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
            source = FOLDER / f"contract_driver.{'cc' if language == 'c++' else 'c'}"
            program = tmp_path_factory.mktemp("p2p") / source.stem
            flags = package_flags("--cflags", "--libs")
            made[language] = [str(compile_program(source, program, flags))]
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

"""One Chromium for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import NAMES, Browser, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A running browser; each test opens its own page in it."""
    program = find_chromium()
    if program is None:
        pytest.skip(f"needs chromium: none of {', '.join(NAMES)} is here: apt-get install chromium")
    started = Browser(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()

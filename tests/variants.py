"""How a test is marked that is another way to a line which `make test` has: SUITE=variants runs it.

A test that always is one has `@pytest.mark.variant`. CI has 15 minutes on 2 cores, and a launch of
two ranks is 1 to 2 CPU seconds: of versions, patterns and modes over the same code one stays, and
of an output or refusal whose text has unit tests one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def variant(*values: object, id: str | None = None) -> Any:
    """Values of a test's parameters with which it is a variant."""
    return pytest.param(*values, marks=pytest.mark.variant, id=id)


def variants_where(is_variant: Callable[..., bool], values: Iterable[Any]) -> list[Any]:
    """The values (tuples, of several parameters); with those that `is_variant` is one."""
    tuples = (each if isinstance(each, tuple) else (each,) for each in values)
    return [(variant if is_variant(*each) else pytest.param)(*each) for each in tuples]

"""Suggestions for a mistyped name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def did_you_mean(
    name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> str:
    """` (did you mean NAME?)`, or "" if nothing known is close; `elsewhere` has what others
    call some of them."""
    if found := (elsewhere or {}).get(name.lower()):
        return f" (did you mean {found}?)"
    by_lower = {each.lower(): each for each in known}
    import difflib  # for a slip alone

    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""

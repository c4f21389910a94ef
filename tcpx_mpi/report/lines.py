"""The form of a line that says one thing: `# Title : text`."""

from __future__ import annotations


def titled(title: str, text: str) -> str:
    """One finding, as all footers have them."""
    return f"# {title:<20} : {text}"

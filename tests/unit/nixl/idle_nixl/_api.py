"""NIXL's Python, of an agent that only is there."""

from __future__ import annotations

from typing import Any


def nixl_agent_config(**_: Any) -> None:
    """None is needed."""


class nixl_agent:  # NIXL's name
    def __init__(self, name: str, config: None) -> None: ...

    def register_memory(self, regions: object, kind: str, backends: object) -> None: ...

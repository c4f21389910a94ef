"""Which lines of a plugin's log are shown, by NCCL's variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: NCCL's numbers of the levels that NCCL_DEBUG names, and of none.
_LEVELS = {"VERSION": 1, "WARN": 2, "INFO": 3, "ABORT": 4, "TRACE": 5}
_NONE, _INFO = 0, _LEVELS["INFO"]
#: Subsystems in the order of NCCL's bits.
_SUBSYSTEMS = (
    "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "CALL", "PROXY", "NVLS",
    "BOOTSTRAP", "REG", "PROFILE", "RAS",
)  # fmt: skip
_BITS = {name: 1 << number for number, name in enumerate(_SUBSYSTEMS)}
_ALL = (1 << 64) - 1
#: Those that NCCL shows unless a variable says which.
_USUAL = _BITS["INIT"] | _BITS["ENV"] | _BITS["BOOTSTRAP"]


def printed(environ: Mapping[str, str], debug: bool) -> tuple[int, int]:
    """The level up to which lines are printed, and the bits of their subsystems.

    NCCL_DEBUG and NCCL_DEBUG_SUBSYS are read as NCCL reads them. `debug` is at least INFO, of all
    subsystems where none are named.
    """
    level = _LEVELS.get(environ.get("NCCL_DEBUG", "").strip().upper(), _NONE)
    text = environ.get("NCCL_DEBUG_SUBSYS", "").strip().upper()
    if not text:
        return (max(level, _INFO), _ALL) if debug else (level, _USUAL)
    named = 0
    for word in text.removeprefix("^").split(","):
        named |= _ALL if word.strip() == "ALL" else _BITS.get(word.strip(), 0)
    return (max(level, _INFO) if debug else level), (_ALL & ~named if text[0] == "^" else named)

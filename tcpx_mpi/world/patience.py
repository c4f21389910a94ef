"""How long ranks wait for each other between the steps of a run, in seconds."""

#: Set-up steps other than connecting are short; a rank that is this late hangs.
SETUP_PATIENCE_S = 60.0
#: Rank 0 goes through all rows for the footer, and for who is slow; of many ranks that takes long.
FOOTER_PATIENCE_S = 600.0

#: Memory is got, poisoned and checked at more than this; a collective behind it may be that late.
_SLOWEST_BYTES_PER_S = 500e6


def memory_patience_s(memory_bytes: int) -> float:
    """How long others may be at work on as much memory."""
    return memory_bytes / _SLOWEST_BYTES_PER_S

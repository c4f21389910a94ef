"""The patience of ranks for each other between the steps of a run, in seconds."""

#: A companion process of NCCL comes up, or makes its communicators, within it.
SETUP_PATIENCE_S = 60.0

#: Memory is got, poisoned and checked at more than this; a collective behind it may be that late.
_SLOWEST_BYTES_PER_S = 500e6


def memory_patience_s(memory_bytes: int) -> float:
    """The time that others may be at work on as much memory."""
    return memory_bytes / _SLOWEST_BYTES_PER_S

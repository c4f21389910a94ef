"""The costs of a message on the simulated network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """The costs of one chunk, as LogGP has them."""

    #: Between the two NICs.
    latency_ns: float
    #: At either NIC, for each byte.
    ns_a_byte: float
    #: At either NIC, however few bytes.
    overhead_ns: float = 0.0
    #: A NIC sends or receives, not both at once: so it is where a processor moves the bytes.
    half_duplex: bool = False
    #: Of a chunk that is reduced as it comes in, for each byte.
    ns_a_reduced_byte: float = 0.0

    def at_nic_ns(self, chunk_bytes: int) -> float:
        """The time that a chunk takes a NIC, on its way out or in."""
        return self.overhead_ns + chunk_bytes * self.ns_a_byte

"""Self-description of the HDF5 file: meaning, units and dimensions of each dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Described(NamedTuple):
    """A dataset's description, without its values."""

    text: str
    #: Of all values, or of the columns of a table; columns without a unit are left out.
    units: str | Mapping[str, str]
    #: A dimension each, from the last one on: without a rank there is one fewer.
    dimensions: tuple[str, ...] = ()

    def units_text(self, changed: Mapping[str, str]) -> str:
        """The units as one text: `ns`, or `prepare_ns: ns; wrong: bytes`."""
        if isinstance(self.units, str):
            return self.units
        return "; ".join(f"{name}: {unit}" for name, unit in {**self.units, **changed}.items())


#: Attribute of the root.
README = """\
This is one run of tcpx-mpi, a benchmark of NCCL network plugins: every time that it measured.

/rows/row_000000, row_000001, ... are the rows of the run's table, a message size each. A row has
  attributes          size_bytes, iterations, warmup_iterations, slots, chunk_bytes, ...
  samples/iteration   [rank, iteration]: how long each iteration took on each rank, in ns
  samples/send, samples/receive, samples/start   the same of its parts
  warmup/...          the iterations before, which enter no figure
  ranks               a line a rank: whether it receives, wrong bytes, CPU time, retransmits
  against/NAME/       what ran beside the plugin, in the same form
/clock/row_000000, ... is how the clocks of several nodes stood to each other in that row.
/ranks is the place of each rank, /settings what was asked for, /setup the times of set-up.
Each dataset has the attributes `description` and `units` (of a table: of its columns) and, where
they say something, labels of its dimensions. The attribute `complete` of the root is true if the
run ended well; /fault says why it did not. -1 (NaN in a float) is unknown, or nothing.

The time of an iteration is the longest over the ranks that receive. In Python:

  import h5py
  with h5py.File(path) as file:
      for name, row in sorted(file["rows"].items()):
          times_ns = row["samples/iteration"][row["ranks"]["receives"]].max(axis=0)
          print(name, row.attrs["size_bytes"], "bytes", times_ns.mean() / 1e3, "us")

`tcpx-mpi report FILE` prints the table; docs/reference/file-format.md describes all of the format.
"""

#: The units of what has none: texts, and numbers that count or name something.
TEXT, NUMBER = "text", "1"

_BY_BATCH = ("rank", "batch")
_SAMPLES = {
    "iteration": "from the start of the iteration to its end on that rank",
    "send": "from the start of the iteration to the rank's last send done; -1 if it has none",
    "receive": (
        "from the start of the iteration to the rank's last receive done; -1 if it has none"
    ),
    "flush": (
        "from the plugin's last done of a receive to the rank's last receive done, where receives "
        "are flushed; -1 if it flushed none"
    ),
    "start": "CLOCK_MONOTONIC of that rank at the start of the iteration",
}
_IN_NS = ("post", "posted", "done", "flushed", "launched", "unpacked", "finished")
_GPU_UNITS = {"sm_mhz": "MHz", "memory_mhz": "MHz", "temperature_c": "degC", "power_mw": "mW"}

#: By the name in the root, in `plan`, `fault` or `partial`; in a row below `rows/`.
DESCRIBED: dict[str, Described] = {
    "command": Described("the command line, an argument each", TEXT, ("argument",)),
    "notes": Described("the comment lines of the header", TEXT, ("line",)),
    "settings": Described("every setting and where its value came from", TEXT, ("setting",)),
    "versions": Described("what was loaded", TEXT),
    "facts": Described(
        "facts about rank 0's host and the run, and how the nodes are set (where they differ "
        "`1; 0 on NODE`)",
        TEXT,
    ),
    "environment": Described("the environment, without secrets", TEXT),
    "plan/sizes": Described("the planned sizes of rows", "bytes", ("size",)),
    "plan/slots": Described("slots of each size", NUMBER, ("size",)),
    "ranks": Described(
        "where each rank ran, with its plugin",
        {"nic_speed_mbps": "Mbit/s"},
        ("rank",),
    ),
    "setup": Described("how long each call of set-up took", {"ns": "ns"}, ("call",)),
    "peers": Described(
        "what ran beside the plugin",
        {"send_buffer_bytes": "bytes", "floor_gbps": "GB/s"},
        ("peer",),
    ),
    "fault/texts": Described("why the run ended early, in each rank's words", TEXT),
    "fault/missing_ranks": Described("ranks that did not answer", NUMBER),
    "partial/missing_ranks": Described("ranks that did not finish the row", NUMBER),
    **{
        f"rows/samples/{phase}": Described(text, "ns", ("rank", "iteration"))
        for phase, text in _SAMPLES.items()
    },
    **{
        f"rows/warmup/{phase}": Described(f"warm-ups: {text}", "ns", ("rank", "iteration"))
        for phase, text in _SAMPLES.items()
    },
    "clock/trips": Described(
        "round trips between two clocks: the fastest of each exchange, and what of each is beyond "
        "its own bound and that of the fit",
        dict.fromkeys(("asked_ns", "answered_ns", "heard_ns", "residual_ns"), "ns"),
        ("trip",),
    ),
    "clock/knots": Described(
        "the offset of a clock from the one that asks it, at an instant of its own",
        dict.fromkeys(("at_ns", "offset_ns", "bound_ns", "moved_ns"), "ns"),
        ("knot",),
    ),
    "clock/fits": Described(
        "the line through the knots of a row",
        {
            "drift_ppm": "1e-6",
            **dict.fromkeys(
                ("bound_ns", "residual_ns", "moved_ns", "suspended_ns", "contradicted_ns"), "ns"
            ),
        },
        ("clock",),
    ),
    "rows/arrivals": Described(
        "from the start of the iteration until all bytes of the peer were there; NaN for no peer",
        "ns",
        ("rank", "peer", "block"),
    ),
    "rows/arrival_blocks": Described("iterations in each block", NUMBER, ("block",)),
    "rows/batches": Described("iterations in each batch", NUMBER, ("batch",)),
    "rows/batch_start": Described(
        "CLOCK_MONOTONIC of that rank when the batch began", "ns", _BY_BATCH
    ),
    "rows/late": Described("whether the rank missed the agreed start", NUMBER, _BY_BATCH),
    "rows/ranks": Described(
        "what each rank counted in the row",
        {
            "wrong": "bytes",
            "payload_bytes_sent": "bytes",
            "payload_bytes_received": "bytes",
            "prepare_ns": "ns",
            "check_ns": "ns",
            "cpu_user_ns": "ns",
            "cpu_system_ns": "ns",
            "cpu_others_ns": "ns",
            "net_sent": "bytes",
            "net_received": "bytes",
        },
        ("rank",),
    ),
    "rows/trace": Described(
        "when each step of a rank's last chunks was",
        {"bytes": "bytes", **dict.fromkeys(_IN_NS, "ns")},
        ("step",),
    ),
    "rows/faults": Described("the first wrong byte of each rank that found one, in words", TEXT),
    "rows/proof": Described(
        "where the work was seen while the batches ran",
        {
            "nic_sent": "bytes",
            "nic_received": "bytes",
            "remote_bytes": "bytes",
            "rtt_us": "us",
            "waiting_cpu_ns": "ns",
            "node_wanted_ns": "ns",
            "node_stolen_ns": "ns",
        },
        ("rank",),
    ),
    "rows/gpu": Described(
        "the rank's GPU before the first timed batch and after the last",
        {
            **{
                f"{what}_{when}": unit
                for what, unit in _GPU_UNITS.items()
                for when in ("before", "after")
            },
            "unpack_gpu_ns": "ns",
            "unpack_bytes": "bytes",
        },
        ("rank",),
    ),
    "rows/averages": Described(
        "what another program printed of the row",
        {"time_ns": "ns", "algbw": "GB/s", "busbw": "GB/s", "wrong": "elements"},
        ("side",),
    ),
}

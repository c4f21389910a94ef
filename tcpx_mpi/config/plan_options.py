"""The options of a run that say which rows are measured, and how the table shows them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.config.option import (
    PERFORMANCE,
    REPORTING,
    SIZES,
    TEST,
    TRANSPORT,
    Option,
    option,
    several,
)
from tcpx_mpi.config.parsers import (
    integer,
    one_number_of,
    size,
    size_list,
    switch,
)

#: The largest chunk: a request never carries more, whatever the plugin would take.
MAX_CHUNK_BYTES = 2 << 20
#: Requests that a TCPX comm holds at once; the 17th post is an error there.
MAX_WINDOW = 16
#: Receives of one irecv; an adapter has room for no more.
MAX_RECEIVES = 8


# Tables, so laid out as such: type and place; default, limits and meaning; then its forms.
# fmt: off
@dataclass(frozen=True, init=False, repr=False, eq=False)  # as RunOptions
class PlanOptions:
    """The options that say which rows are measured, and how the table shows them.

    `Settings` has them among all others, and the header of a run keeps them
    (`tcpx_mpi.records.Plan`). The defaults are those of files that lack one, too.
    """

    sizes: tuple[int, ...] = several(
        Option(SIZES, 32 << 20, size(0), "smallest size",
            name="minbytes", letter="-b", metavar="SIZE", variables=("UCCL_TCPX_PERF_SIZE",)),
        Option(SIZES, 32 << 20, size(0), "largest size",
            name="maxbytes", letter="-e", metavar="SIZE", variables=("UCCL_TCPX_PERF_SIZE",)),
        Option(SIZES, 1 << 20, size(1), "add this to get the next size",
            name="stepbytes", letter="-i", metavar="SIZE"),
        Option(SIZES, 1, integer(1), "if above 1, multiply by this instead",
            name="stepfactor", letter="-f"),
        Option(SIZES, (), size_list, "exactly these sizes, in place of -b -e -i -f",
            name="sizes", metavar="SIZE,..."),
    )

    iters: int = option(PERFORMANCE, 20, integer(1), "timed iterations a size",
        letter="-n", variables=("UCCL_TCPX_PERF_ITERS",))
    warmup_iters: int = option(PERFORMANCE, 1, integer(0),
        "iterations before them, kept apart in the file",
        letter="-w")
    agg_iters: int = option(PERFORMANCE, 1, integer(1),
        "messages posted together in each iteration", letter="-m")
    #: 0: until stopped.
    run_cycles: int = option(PERFORMANCE, 1, integer(0),
        "number of times that all sizes are measured; 0: until interrupted",
        letter="-N")
    average: int = option(PERFORMANCE, 1, one_number_of(0, 1, 2, 3),
        "time over the ranks that receive: 0 rank 0, 1 average, 2 minimum, 3 maximum",
        letter="-a", metavar="0-3")

    check: int = option(TEST, 1, integer(0),
        "check every timed byte; 0: none, and no bandwidth is claimed as checked",
        letter="-c", metavar="0|1")
    blocking: int = option(TEST, 0, one_number_of(0, 1, 3),
        "0: back to back; 1 or 3: every iteration starts together",
        letter="-z", metavar="0|1|3")

    report_timestamps: bool = option(REPORTING, False, switch, "add the time of day to each row",
        letter="-S", metavar="0|1", may_be_bare=True)
    report_cputime: bool = option(REPORTING, False, switch, "add CPU time to each row",
        letter="-C", metavar="0|1", may_be_bare=True)
    per_iter_timing: bool = option(REPORTING, False, switch,
        "add columns of the single iterations",
        letter="-I", metavar="0|1", may_be_bare=True)
    per_iter_skip: int = option(REPORTING, 0, integer(0),
        "leave the first K iterations out of percentiles and of those columns",
        letter="-K", metavar="K")
    report_gbits: bool = option(REPORTING, False, switch, "add columns in Gb/s",
        long="--report_gbits", metavar="", may_be_bare=True)

    one_way: bool = option(REPORTING, False, switch,
        "add columns of the time there and back, each by itself, where a rank has one sender",
        metavar="", may_be_bare=True)

    channels: int = option(TRANSPORT, 2, integer(1), "connections to each peer",
        variables=("UCCL_TCPX_NUM_CHANNELS",))
    chunk_bytes: int = option(TRANSPORT, 512 << 10, size(1, MAX_CHUNK_BYTES, "the largest chunk"),
        "largest request, at most 2M",
        name="chunk", metavar="SIZE",
        variables=("UCCL_TCPX_CHUNK_BYTES", "NCCL_P2P_NET_CHUNKSIZE"))
    window_send: int = option(TRANSPORT, 12, integer(1, MAX_WINDOW, "the plugin's request limit"),
        "sends in flight on each channel, at most 16")
    window_recv: int = option(TRANSPORT, 16, integer(1, MAX_WINDOW, "the plugin's request limit"),
        "receives in flight on each channel, at most 16")
    multi_recv: int = option(TRANSPORT, 1, integer(1, MAX_RECEIVES, "what NCCL asks for at once"),
        "messages that one receive request takes, 1 to 8, within the plugin's maxRecvs: each chunk "
        "is cut into N, of mixed sizes, tags and order; windows count messages")

    def plan_options(self) -> dict[str, Any]:
        """These options alone, by name."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(PlanOptions)}

    def of_times(self) -> dict[str, int]:
        """The settings that must be alike for times of rows to be comparable, by their name in a
        refusal."""
        return {
            "messages an iteration (-m)": self.agg_iters,
            "time over the ranks (-a)": self.average,
        }
# fmt: on

"""Numbers out of the samples of a row: numpy in, numbers out, nothing read or written but working
copies of long rows, which are on disk (`tcpx_mpi.records.mapped_arrays`).

Unknown is NaN, never 0. Times are nanoseconds and rates bytes a nanosecond, which are GB/s.
"""

from tcpx_mpi.stats.blocks import (
    BLOCKS,
    batch_means,
    block_means,
    independent_count,
    independent_means,
    iteration_times_ns,
    only_in_place,
    stretch_times_ns,
    typical_time_ns,
)
from tcpx_mpi.stats.distribution import (
    Distribution,
    describe,
    minimum_samples,
    nearest_rank,
)
from tcpx_mpi.stats.interval import CONFIDENCE, Interval, median_interval
from tcpx_mpi.stats.launches import (
    Shift,
    Variation,
    compare_launches,
    launches_needed,
    spread_of,
    variation,
)
from tcpx_mpi.stats.rates import cpu_s_per_gb, rate
from tcpx_mpi.stats.row_summary import RowSummary
from tcpx_mpi.stats.series import (
    at_place,
    average_over_ranks,
    in_order,
    rank_times_ns,
    samples_received,
    times_over_ranks_ns,
)
from tcpx_mpi.stats.slowest import slowest_rank
from tcpx_mpi.stats.spikes import LongIteration, Spikes, find_spikes
from tcpx_mpi.stats.steadiness import Change, find_change, find_drift
from tcpx_mpi.stats.stop_rule import half_width
from tcpx_mpi.stats.summarise import mean_bus_bandwidth, sides_of, summarise

__all__ = [
    "BLOCKS",
    "CONFIDENCE",
    "Change",
    "Distribution",
    "Interval",
    "LongIteration",
    "RowSummary",
    "Shift",
    "Spikes",
    "Variation",
    "at_place",
    "average_over_ranks",
    "batch_means",
    "block_means",
    "compare_launches",
    "cpu_s_per_gb",
    "describe",
    "find_change",
    "find_drift",
    "find_spikes",
    "half_width",
    "in_order",
    "independent_count",
    "independent_means",
    "iteration_times_ns",
    "launches_needed",
    "mean_bus_bandwidth",
    "median_interval",
    "minimum_samples",
    "nearest_rank",
    "only_in_place",
    "rank_times_ns",
    "rate",
    "samples_received",
    "sides_of",
    "slowest_rank",
    "spread_of",
    "stretch_times_ns",
    "summarise",
    "times_over_ranks_ns",
    "typical_time_ns",
    "variation",
]

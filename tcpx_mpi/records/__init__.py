"""The record of a run: its form in memory, its HDF5 file, the ranks' journals, and reading back.

The only package that knows h5py, which is imported when a file is opened and not before: ranks
other than 0 write nothing but a journal, and never load it.
"""

from tcpx_mpi.records.environment import filter_environment
from tcpx_mpi.records.gpu import POWER_CAP, GpuRow, GpuState, gpu_row, throttled
from tcpx_mpi.records.header import (
    APART,
    AVERAGES,
    IMPORTED_BOUNDS,
    INITIATORS,
    SYNCHRONISED,
    TARGETS,
    BaselineInfo,
    Plan,
    RankInfo,
    RunHeader,
    rank_name,
)
from tcpx_mpi.records.journal import Journal, is_journal, journal_path, read_journal
from tcpx_mpi.records.launches import TURN_VARIABLE, LaunchesWriter
from tcpx_mpi.records.merge import merge
from tcpx_mpi.records.names import (
    create_exclusively,
    default_run_name,
    free_name,
    require_writable,
)
from tcpx_mpi.records.new_file import require_creatable, write_text
from tcpx_mpi.records.packed import Packed
from tcpx_mpi.records.reader import read_launches, read_run
from tcpx_mpi.records.row import (
    FLUSH,
    IN_PLACE,
    ITSELF,
    LOADED,
    PHASES,
    Average,
    ObservedPlacement,
    RankRow,
    Row,
    RowFacts,
    SideKey,
    counted,
    join_row,
    series_of,
)
from tcpx_mpi.records.run import Fault, PartialRow, Run, missing_rows
from tcpx_mpi.records.setup_times import SetupTimes
from tcpx_mpi.records.stored import Scratch, StoredSamples
from tcpx_mpi.records.writer import RunWriter, utc_now

__all__ = [
    "APART",
    "AVERAGES",
    "FLUSH",
    "IMPORTED_BOUNDS",
    "INITIATORS",
    "IN_PLACE",
    "ITSELF",
    "LOADED",
    "PHASES",
    "POWER_CAP",
    "SYNCHRONISED",
    "TARGETS",
    "TURN_VARIABLE",
    "Average",
    "BaselineInfo",
    "Fault",
    "GpuRow",
    "GpuState",
    "Journal",
    "LaunchesWriter",
    "ObservedPlacement",
    "Packed",
    "PartialRow",
    "Plan",
    "RankInfo",
    "RankRow",
    "Row",
    "RowFacts",
    "Run",
    "RunHeader",
    "RunWriter",
    "Scratch",
    "SetupTimes",
    "SideKey",
    "StoredSamples",
    "counted",
    "create_exclusively",
    "default_run_name",
    "filter_environment",
    "free_name",
    "gpu_row",
    "is_journal",
    "join_row",
    "journal_path",
    "merge",
    "missing_rows",
    "rank_name",
    "read_journal",
    "read_launches",
    "read_run",
    "require_creatable",
    "require_writable",
    "series_of",
    "throttled",
    "utc_now",
    "write_text",
]

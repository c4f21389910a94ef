"""Every option of a run, declared once: names, default, limits, earlier variables and meaning.

The command line builds its options and its help from `OPTIONS`; `config` reads values by them.
Letters and meanings of the nccl-tests groups are those of nccl-tests; ours are long-only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.config.parsers import (
    Parser,
    any_text,
    cpu_list,
    factor,
    names_in_turn,
    names_of,
    numbers_in_turn,
    one_number_of,
    one_of,
    output_path,
    part,
    peers_of,
    root_or_all,
    seconds,
    share,
    size,
    size_list,
    split_of,
    switch,
    variables_of,
    whole,
)
from tcpx_mpi.launch.watch import DEFAULT_S as SETUP_TIMEOUT_S
from tcpx_mpi.patterns import ALGORITHMS
from tcpx_mpi.units import format_size_option

#: What can run beside the plugin; a file each in `tcpx_mpi.baselines`.
PEERS = {
    "raw": "plain TCP sockets, with as many streams as the plugin and at their best of 1, 2, 4",
    "mpi": "the MPI library over TCP, by mpi4py",
    "nccl": "NCCL over its TCP sockets on the same GPUs, with --memory cuda",
    "plugin:B": "another plugin by path or name, B@9 by its table of v9",
}
#: What a peer begins with that is another plugin.
PLUGIN_PEER = "plugin:"
#: How NCCL may be set beside the plugin; `tcpx_mpi.baselines.nccl.presets` has the variables.
NCCL_PRESETS = ("tuned", "default")
#: What holds NCCL to its own TCP sockets, also between ranks of one node, as the plugin is held.
#: Multicast over NVLink is nothing for sockets, and out of reach on some machines.
NCCL_HELD = {
    "NCCL_NET_PLUGIN": "none",
    "NCCL_NET": "Socket",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
}
#: With a baseline a row has at least so many blocks of each side.
LEAST_BLOCKS = 8
#: Timed iterations where a baseline runs and none were asked for: 20 in each block.
ITERS_BESIDE = 20 * LEAST_BLOCKS
#: Versions of a plugin's table that can be asked for; each has an adapter in native/net.
ABI_VERSIONS = (6, 7, 8, 9, 10, 11, 12)
#: The largest chunk: a request never carries more, whatever the plugin would take.
MAX_CHUNK_BYTES = 2 << 20
#: Requests that a TCPX comm holds at once; the 17th post is an error there.
MAX_WINDOW = 16
#: Threads that `--progress-threads` takes at most: as many as softtcpx has workers.
MAX_PROGRESS_THREADS = 16
#: Chunks that `--trace` keeps at most: 128 bytes each, of each rank and row.
MOST_TRACED = 4096

#: nccl-tests' types and operations, in its order.
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double",
         "bfloat16", "f8e4m3", "f8e5m2")  # fmt: skip
OPERATIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
#: How NCCL_TESTS_SPLIT makes groups of ranks: what is done with a rank's number and another one.
SPLITS = ("AND", "OR", "MOD", "DIV")
SIZES = "Sizes to scan (1024-based: 4K, 1.5M, 1GiB)"
OPERATION = "Operation (where there is arithmetic or a root)"
PERFORMANCE = "Performance"
STOPPING = "When a row ends (each in place of a number of iterations; -n is then that of a batch)"
TEST = "Test operation"
REPORTING = "Reporting"
SAVING = "Saving results (a file that exists is kept: FILE.0, FILE.1 are written)"
TRANSPORT = "Transport"
PLACEMENT = "Placement (lists go by rank of a node, in turn)"
BESIDE = "Peers beside the plugin, in the same frame"
CHECKS = "Checks and deadlines"
LAUNCH = "Launch and settings"
VARIABLES_ONLY = ""
#: In the order of `--help`.
GROUPS = (
    SIZES, OPERATION, PERFORMANCE, STOPPING, TEST, REPORTING, SAVING, TRANSPORT, PLACEMENT, BESIDE,
    CHECKS, LAUNCH,
)  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One setting: `name` is its key for `load_settings`, `field` its place in `Settings`."""

    name: str
    field: str
    group: str
    default: object
    parse: Parser
    help: str
    #: nccl-tests' letter; such a option keeps nccl-tests' long form, underscores included.
    letter: str = ""
    #: The long form where it is not made of the name.
    long: str = ""
    metavar: str = "N"
    #: Environment variables of the same meaning; the first one that is set wins.
    variables: tuple[str, ...] = ()
    #: Without a value the option means 1; nccl-tests always gives one.
    may_be_bare: bool = False
    #: Whether a configuration file may set it.
    in_file: bool = True

    @property
    def option(self) -> str:
        """The long form, as typed."""
        made = self.name if self.letter else self.name.replace("_", "-")
        return self.long or f"--{made}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All forms, the letter first."""
        return (self.letter, self.option) if self.letter else (self.option,)

    @property
    def label(self) -> str:
        """How an error names the option: `-b/--minbytes`."""
        return "/".join(self.flags)

    @property
    def is_flag(self) -> bool:
        """It is shown without a value."""
        return not self.metavar

    @property
    def default_text(self) -> str:
        """The default as it would be typed; "" where it is worked out later."""
        if self.default is None or self.default == ():
            return ""
        if isinstance(self.default, bool):
            return str(int(self.default))
        if isinstance(self.default, tuple):
            return ",".join(self.default)
        if isinstance(self.default, int) and self.metavar == "SIZE":
            return format_size_option(self.default)
        if isinstance(self.default, float):
            return f"{self.default:g}" + ("s" if self.metavar == "TIME" else "")
        return str(self.default)


# A table, so laid out as one: what it is; then its forms.
# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("minbytes", "sizes", SIZES, 32 << 20, size(0), "smallest size",
         letter="-b", metavar="SIZE", variables=("UCCL_TCPX_PERF_SIZE",)),
    Option("maxbytes", "sizes", SIZES, 32 << 20, size(0), "largest size",
         letter="-e", metavar="SIZE", variables=("UCCL_TCPX_PERF_SIZE",)),
    Option("stepbytes", "sizes", SIZES, 1 << 20, size(1), "add this to get the next size",
         letter="-i", metavar="SIZE"),
    Option("stepfactor", "sizes", SIZES, 1, whole(1), "if above 1, multiply by this instead",
         letter="-f"),
    Option("sizes", "sizes", SIZES, (), size_list, "exactly these sizes, in place of -b -e -i -f",
         metavar="SIZE,..."),

    Option("op", "op", OPERATION, "sum", one_of(*OPERATIONS, "all"),
         f"reduction: {', '.join(OPERATIONS)}; all: each in turn", letter="-o", metavar="OP|all"),
    Option("datatype", "datatype", OPERATION, "float", one_of(*TYPES, "all"),
         f"type of the elements: {', '.join(TYPES)}; all: each in turn",
         letter="-d", metavar="TYPE|all"),
    Option("root", "root", OPERATION, "0", root_or_all, "root rank; all: each in turn",
         letter="-r", metavar="RANK|all"),
    Option("algo", "algo", OPERATION, "auto", one_of(*ALGORITHMS),
         "algorithm; auto: by size, from the latency and bandwidth that this run measures first",
         metavar="NAME|auto"),
    Option("load", "load_bytes", OPERATION, 4 << 20, size(1),
         "loaded_pingpong: bytes that each rank sends to all, in each iteration of the mesh",
         metavar="SIZE"),
    Option("matrix", "matrix_path", OPERATION, None, any_text,
         "a file whose row i has the bytes from rank i to each, for alltoallv; for matrix: their "
         "proportions, whole numbers after --matrix-scale",
         metavar="FILE", variables=("NCCL_TESTS_ALLTOALLV_MATRIX_FILE",)),
    Option("matrix_scale", "matrix_scale", OPERATION, 1.0, factor,
         "multiply the numbers of the matrix by this",
         metavar="FACTOR", variables=("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE",)),
    Option("spread", "spread", OPERATION, 1.0, part,
         "of alltoallv without a matrix: 1: the further a rank, the more it gets; 0: all as much",
         metavar="SHARE", variables=("NCCL_TESTS_ALLTOALLV_SPREAD",)),

    Option("iters", "iters", PERFORMANCE, 20, whole(1), "timed iterations a size",
         letter="-n", variables=("UCCL_TCPX_PERF_ITERS",)),
    Option("warmup_iters", "warmup_iters", PERFORMANCE, 1, whole(0),
         "iterations before them, kept apart in the file", letter="-w"),
    Option("agg_iters", "agg_iters", PERFORMANCE, 1, whole(1),
         "messages posted together in each iteration", letter="-m"),
    Option("run_cycles", "run_cycles", PERFORMANCE, 1, whole(0),
         "measure all sizes so many times; 0: until interrupted", letter="-N"),
    Option("ci", "ci", STOPPING, 0.0, share,
         "go on until the 95 % interval of the median is within this share of it, like 0.05",
         metavar="SHARE"),
    Option("max_time", "max_time_s", STOPPING, 60.0, seconds(),
         "with --ci, end a row after this time, and say that it was not enough",
         metavar="TIME"),
    Option("duration", "duration_s", STOPPING, 0.0, seconds(zero=True),
         "go on until the batches of a row took this time; every sample is kept",
         metavar="TIME"),
    Option("sample_space", "sample_space_bytes", STOPPING, 16 << 30, size(1 << 20),
         "how much of its file samples may take; a row that fills its share of that ends",
         metavar="SIZE"),

    Option("average", "average", PERFORMANCE, 1, one_number_of(0, 1, 2, 3),
         "time over the ranks that receive: 0 rank 0, 1 average, 2 minimum, 3 maximum",
         letter="-a", metavar="0-3"),
    Option("check", "check", TEST, 1, whole(0),
         "check every timed byte; 0: none, and no bandwidth is claimed as checked",
         letter="-c", metavar="0|1"),
    Option("blocking", "blocking", TEST, 0, one_number_of(0, 1, 3),
         "0: back to back; 1 or 3: every iteration starts together",
         letter="-z", metavar="0|1|3"),
    Option("timeout", "timeout_s", TEST, 0.0, seconds(zero=True),
         "end the run after this time in total; 0: never", letter="-T", metavar="TIME"),
    Option("all", "all_pairs", TEST, False, switch,
         "pairs: every rank meets every other one, in 2 (ranks - 1) rounds; suspects meet again",
         metavar="", may_be_bare=True),

    Option("report_timestamps", "report_timestamps", REPORTING, False, switch,
         "add the time of day to each row", letter="-S", metavar="0|1", may_be_bare=True),
    Option("report_cputime", "report_cputime", REPORTING, False, switch,
         "add CPU time to each row", letter="-C", metavar="0|1", may_be_bare=True),
    Option("per_iter_timing", "per_iter_timing", REPORTING, False, switch,
         "add columns of the single iterations", letter="-I", metavar="0|1", may_be_bare=True),
    Option("per_iter_skip", "per_iter_skip", REPORTING, 0, whole(0),
         "leave the first K iterations out of percentiles and of those columns", letter="-K",
         metavar="K"),
    Option("report_gbits", "report_gbits", REPORTING, False, switch,
         "add columns in Gb/s", long="--report_gbits", metavar="", may_be_bare=True),
    Option("trace", "trace", REPORTING, 0, whole(0, MOST_TRACED, "128 bytes each, a rank and row"),
         "keep when each step of the last N chunks of a row was on each rank, in the HDF5 file; "
         "`tcpx-mpi report FILE --trace` shows it",
         metavar="N"),
    Option("verbose", "verbose", REPORTING, False, switch,
         "on a terminal: the whole header and footer, and the set-up", letter="-v", metavar="",
         may_be_bare=True),
    Option("wide", "wide", REPORTING, False, switch,
         "on a terminal: all columns, as in a pipe or a file", metavar="", may_be_bare=True),

    Option("output_file", "json_path", SAVING, None, output_path,
         "also write JSON, with the keys of nccl-tests", letter="-J", metavar="FILE"),
    Option("csv", "csv_path", SAVING, None, output_path,
         "also write the rows of the table as CSV (`export` has the samples)", metavar="FILE"),
    Option("json_stream", "json_stream_path", SAVING, None, output_path,
         "one JSON event a line as the run goes on; -: the standard output, and the table to "
         "the standard error", metavar="FILE|-"),
    Option("hdf5", "hdf5_path", SAVING, None, output_path,
         "every sample goes here (tcpx-mpi-PATTERN-TIME.h5); none: no file",
         metavar="FILE|none"),

    Option("plugin", "plugin", TRANSPORT, "auto", any_text,
         "a path, or a name: softtcpx, tcpx, null, auto, or NAME of libnccl-net-NAME.so",
         metavar="PLUGIN", variables=("UCCL_TCPX_PLUGIN_PATH",)),
    Option("abi", "abi", TRANSPORT, 0, one_number_of(0, *ABI_VERSIONS),
         "version of the plugin's table (ncclNetPlugin_vN), 6 to 12; 0: the newest that it offers; "
         "of softtcpx, which has a file for each: 7",
         metavar="N"),
    Option("memory", "memory", TRANSPORT, "auto", one_of("auto", "host", "emulated", "cuda"),
         "where buffers are; auto: cuda where every rank has a GPU, else host; emulated: host "
         "memory by way of the plugin's GPU receive path", metavar="auto|host|emulated|cuda"),
    Option("unpack", "unpack", TRANSPORT, "kernel", one_of("kernel", "d2d", "host", "none"),
         "how fragments become a message in a GPU's memory, or emulated; none: not at all, an "
         "ablation",
         metavar="kernel|d2d|host|none", variables=("UCCL_TCPX_UNPACK_IMPL",)),
    Option("channels", "channels", TRANSPORT, 2, whole(1), "connections to each peer",
         variables=("UCCL_TCPX_NUM_CHANNELS",)),
    Option("chunk", "chunk_bytes", TRANSPORT, 512 << 10,
         size(1, MAX_CHUNK_BYTES, "the largest chunk"), "largest request, at most 2M",
         metavar="SIZE", variables=("UCCL_TCPX_CHUNK_BYTES", "NCCL_P2P_NET_CHUNKSIZE")),
    Option("window_send", "window_send", TRANSPORT, 12,
         whole(1, MAX_WINDOW, "the plugin's request limit"),
         "sends in flight on each channel, at most 16"),
    Option("window_recv", "window_recv", TRANSPORT, 16,
         whole(1, MAX_WINDOW, "the plugin's request limit"),
         "receives in flight on each channel, at most 16"),

    Option("profile", "profile", PLACEMENT, "auto", any_text,
         "what this kind of machine needs set; auto: the one that fits the machine, if any",
         metavar="auto|none|NAME|FILE"),
    Option("nic", "nic", PLACEMENT, None, names_in_turn,
         "NIC of each rank (the nearest to its GPU)", metavar="NAME,..."),
    Option("gpu", "gpu", PLACEMENT, None, numbers_in_turn,
         "GPU of each rank (one each where there are enough); none: place ranks without GPUs",
         metavar="NUMBER,...|none"),
    Option("share_gpu", "share_gpu", PLACEMENT, False, switch,
         "let ranks of a node have the same GPU", metavar="", may_be_bare=True),
    Option("cpus", "cpus", PLACEMENT, None, cpu_list,
         "CPUs for the progress threads (near the NIC, away from the plugin's)", metavar="LIST"),
    Option("progress_threads", "progress_threads", PLACEMENT, 0,
         whole(0, MAX_PROGRESS_THREADS, "what one rank is driven by"),
         "threads of a rank that post, test and unpack, each for channels of its own, and of raw "
         "TCP beside it; 0: by the cores left to a rank, 1 where they are few, or "
         "others move the bytes",
         metavar="N"),
    Option("placement", "placement_path", PLACEMENT, None, any_text,
         "TOML file that says any of these for single ranks", metavar="FILE"),

    Option("against", "against", BESIDE, (), peers_of(tuple(PEERS), PLUGIN_PEER),
         "run these beside the plugin, block by block, and print the ratios (or none): "
         + "; ".join(f"{name}: {what}" for name, what in PEERS.items()),
         metavar="raw,mpi"),
    Option("nccl_preset", "nccl_presets", BESIDE, NCCL_PRESETS,
         names_of(NCCL_PRESETS, or_none=False),
         "settings of NCCL as a peer, one run each; the first is `beside nccl`, the best of each "
         "size `nccl at its best`",
         metavar="tuned,default"),
    Option("nccl_env", "nccl_env", BESIDE, (), variables_of("NCCL_", tuple(NCCL_HELD)),
         "variables of NCCL as a peer, over its preset", metavar="NCCL_NAME=VALUE,..."),

    Option("seed", "seed", CHECKS, 1, whole(0, (1 << 64) - 1, "64 bits"), "seed of the payload"),
    Option("check_memory", "check_memory_bytes", CHECKS, 1 << 30, size(1),
         "memory for buffer slots and their time stamps, so that whole batches are checked",
         metavar="SIZE"),
    Option("stall_timeout", "stall_timeout_s", CHECKS, 30.0, seconds(),
         "end the run when nothing has moved for this time", metavar="TIME"),
    Option("connect_timeout", "connect_timeout_s", CHECKS, 30.0, seconds(),
         "end the run when connecting takes longer", metavar="TIME"),
    Option("setup_timeout", "setup_timeout_s", CHECKS, SETUP_TIMEOUT_S, seconds(),
         "end all ranks when they have not come up by then: MPI, the plugin's init, its devices",
         metavar="TIME"),
    Option("gate", "gate_path", CHECKS, None, any_text,
         "TOML file of limits that the run must meet, else exit code 9 (`tcpx-mpi gate`)",
         metavar="FILE"),

    Option("ranks", "ranks", LAUNCH, None, whole(1, 4096, "what one machine starts"),
         "start mpirun here with N ranks; under mpirun it only has to agree, if typed"),
    Option("runs", "runs", LAUNCH, 1, whole(1, 1000, "what anybody waits for"),
         "with --ranks: so many whole launches, each with the sizes in an order of its own by "
         "--seed, all in one file", metavar="K"),
    Option("config", "config_path", LAUNCH, None, any_text,
         "TOML file of settings; the environment and the command line win over it",
         metavar="FILE", in_file=False),
    Option("save_config", "save_config_path", LAUNCH, None, output_path,
         "write the settings of this run as such a file", metavar="FILE", in_file=False),
    Option("spool", "spool", LAUNCH, None, any_text,
         "each rank's journal until its row is in the file (the temporary directory)",
         metavar="DIR"),

    Option("split", "split", VARIABLES_ONLY, "", split_of(SPLITS), "groups of ranks",
         variables=("NCCL_TESTS_SPLIT",), in_file=False),
    Option("split_mask", "split_mask", VARIABLES_ONLY, "", split_of(SPLITS[:1]), "the same by AND",
         variables=("NCCL_TESTS_SPLIT_MASK",), in_file=False),
    Option("launch", "launch", VARIABLES_ONLY, 0, whole(0),
         "which of several launches this is, from 1; 0: the only one",
         variables=("TCPX_MPI_LAUNCH",), in_file=False),
    Option("debug", "debug", VARIABLES_ONLY, False, switch, "show what the plugin logs",
         variables=("UCCL_TCPX_DEBUG", "TCPX_DEBUG", "TCPX_PERF")),
)
# fmt: on


def parse_abi(text: str | None) -> int:
    """`--abi` of a command that takes no other setting of a run; None: 0, the newest."""
    return 0 if text is None else one_number_of(0, *ABI_VERSIONS)("--abi", text)


#: nccl-tests' options that mean nothing here: accepted, with one warning line.
IGNORED: dict[str, str] = {
    "-t": "--nthreads",
    "-g": "--ngpus",
    "-p": "--parallel_init",
    "-G": "--cudagraph",
    "-R": "--local_register",
    "-x": "--cta_policy",
    "-D": "--device_implementation",
    "-V": "--device_cta_count",
    "-u": "--unalign",
    "-M": "--memory_report",
}

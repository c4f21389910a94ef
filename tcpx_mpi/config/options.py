"""Every option of a run, declared once: type, names, default, limits, earlier variables, meaning.

A field of `RunOptions` is a field of `Settings` and an option of the command line, its help and the
configuration file, which are made of `OPTIONS`.
Letters and meanings of the nccl-tests groups are those of nccl-tests; ours are long-only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tcpx_mpi.config.option import (
    BASELINE,
    CHECKS,
    GROUPS,
    LAUNCH,
    OPERATION,
    PLACEMENT,
    REPORTING,
    SAVING,
    STOPPING,
    TEST,
    TRANSPORT,
    VARIABLES_ONLY,
    Option,
    option,
)
from tcpx_mpi.config.parsers import (
    any_text,
    baselines_of,
    cpu_list,
    factor,
    gaps,
    integer,
    names_in_turn,
    names_of,
    numbers_in_turn,
    one_number_of,
    one_of,
    output_path,
    part,
    paths_of,
    rates,
    root_or_all,
    seconds,
    share,
    size,
    split_of,
    switch,
    variables_of,
)
from tcpx_mpi.config.plan_options import PlanOptions
from tcpx_mpi.launch.watch import DEFAULT_S as SETUP_TIMEOUT_S
from tcpx_mpi.patterns import ALGORITHMS
from tcpx_mpi.patterns.moe_shape import DEFAULT as DEFAULT_SHAPE
from tcpx_mpi.patterns.moe_shape import PRESETS as SHAPES
from tcpx_mpi.patterns.moe_shape import SKEWS

#: What can run beside the plugin; a file each in `tcpx_mpi.baselines`.
BASELINES = {
    "raw": "plain TCP sockets, with as many streams as the plugin and at their best of 1, 2, 4",
    "mpi": "the MPI library over TCP, by mpi4py",
    "nccl": "NCCL over its TCP sockets on the same GPUs, with --memory cuda",
    "plugin:B": "another plugin by path or name, B@9 by its table of v9",
}
#: What a peer begins with that is another plugin.
PLUGIN_BASELINE = "plugin:"
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
#: With a baseline a row has at least this number of blocks of each side.
LEAST_BLOCKS = 8
#: Timed iterations where a baseline runs and none were asked for: 20 in each block.
ITERS_WITH_BASELINES = 20 * LEAST_BLOCKS
#: Versions of a plugin's table that can be asked for; each has an adapter in native/net.
ABI_VERSIONS = (6, 7, 8, 9, 10, 11, 12)
#: Threads that `--progress-threads` takes at most: as many as softtcpx has workers.
MAX_PROGRESS_THREADS = 16
#: Chunks that `--trace` keeps at most: 144 bytes each, of each rank and row.
MOST_TRACED = 4096

#: nccl-tests' types and operations, in its order.
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double",
         "bfloat16", "f8e4m3", "f8e5m2")  # fmt: skip
#: As PyTorch, numpy and CUDA call them.
_TYPES_ELSEWHERE = {
    "fp16": "half", "float16": "half", "f16": "half", "fp32": "float", "float32": "float",
    "f32": "float", "fp64": "double", "float64": "double", "f64": "double", "bf16": "bfloat16",
    "char": "int8", "byte": "uint8", "i8": "int8", "u8": "uint8", "int": "int32", "i32": "int32",
    "u32": "uint32", "long": "int64", "i64": "int64", "u64": "uint64", "fp8": "f8e4m3",
    "e4m3": "f8e4m3", "fp8_e4m3": "f8e4m3", "float8_e4m3fn": "f8e4m3", "e5m2": "f8e5m2",
    "fp8_e5m2": "f8e5m2", "float8_e5m2": "f8e5m2",
}  # fmt: skip
OPERATIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
#: How NCCL_TESTS_SPLIT makes groups of ranks: what is done with a rank's number and another one.
SPLITS = ("AND", "OR", "MOD", "DIV")


# A table, so laid out as such: type and place; default, limits and meaning; then its forms.
# fmt: off
# Made as `Settings` alone, so what Python would compile for it takes a hundredth of a rank's start.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RunOptions(PlanOptions):
    """Every option of a run: a field and its option are declared here and nowhere else.

    In the order in which results have the settings.
    """

    #: 0: a planned number of iterations.
    ci: float = option(STOPPING, 0.0, share,
        "go on until the 95 % interval of the median is within this share of it, like 0.05",
        metavar="SHARE")
    max_time_s: float = option(STOPPING, 60.0, seconds(),
        "with --ci, end a row after this time, and say that it was not enough",
        name="max_time", metavar="TIME")
    duration_s: float = option(STOPPING, 0.0, seconds(zero=True),
        "go on until the batches of a row took this time; every sample is kept",
        name="duration", metavar="TIME")
    sample_space_bytes: int = option(STOPPING, 16 << 30, size(1 << 20),
        "limit of samples in the file; a row that fills its share ends",
        name="sample_space", metavar="SIZE")

    #: None: an iteration begins when the one before is complete.
    rates: tuple[float, ...] = option(TEST, (), rates,
        "open loop: begin R iterations a second whether those before are complete or not, and time "
        "each from its intended start; of several, each has rows of its own (pair, pingpong, "
        "fan_in)",
        name="rate", metavar="R,..")
    all_pairs: bool = option(TEST, False, switch,
        "pairs: every rank meets every other one, in 2 (ranks - 1) rounds; suspects meet again",
        name="all", metavar="", may_be_bare=True, place=1)
    #: 0: all.
    most_pairs: int = option(TEST, 0, integer(0),
        "with --all, a sample of about N pairs if there are more: neighbours and others",
        name="pairs", metavar="N", place=-1)

    op: str = option(OPERATION, "sum", one_of(*OPERATIONS, "all"),
        f"reduction: {', '.join(OPERATIONS)}; all: each in turn",
        letter="-o", metavar="OP|all", place=-1)
    datatype: str = option(OPERATION, "float", one_of(*TYPES, "all", elsewhere=_TYPES_ELSEWHERE),
        f"type of the elements: {', '.join(TYPES)}; all: each in turn",
        letter="-d", metavar="TYPE|all", place=-1)
    root: str = option(OPERATION, "0", root_or_all, "root rank; all: each in turn",
        letter="-r", metavar="RANK|all", place=-1)
    load_bytes: int = option(OPERATION, 4 << 20, size(1),
        "loaded_pingpong: bytes that each rank sends to all, in each iteration of the mesh",
        name="load", metavar="SIZE")
    background_bytes: int = option(OPERATION, 0, size(0),
        "incast: bytes that each rank sends to all beside it, in each iteration; 0: none",
        name="background", metavar="SIZE")
    #: 0: all others.
    senders: int = option(OPERATION, 0, integer(0),
        "incast: number of ranks that send, those behind the root; 0: all others",
        metavar="N")
    stagger_s: float = option(OPERATION, 0.0, seconds(zero=True),
        "incast, with -z 1: each sender begins so long after the one before",
        name="stagger", metavar="TIME")
    moe: str = option(OPERATION, DEFAULT_SHAPE, any_text,
        "moe: a layer by its model (" + ", ".join(SHAPES) + "), each also NAME-small; numbers over "
        "it like deepseek-v3,batch=128,topk=4",
        metavar="NAME,...")
    skew: str = option(OPERATION, next(iter(SKEWS)), one_of(*SKEWS),
        "moe: who gets how many tokens; " + "; ".join(f"{n}: {what}" for n, what in SKEWS.items()),
        metavar="NAME")
    algo: str = option(OPERATION, "auto", one_of(*ALGORITHMS),
        "algorithm; auto: by size, from the latency and bandwidth that this run measures first",
        metavar="NAME|auto", place=-1)
    #: Of alltoallv: a file, or None; what its numbers are multiplied by; without it, by distance.
    matrix_path: str | None = option(OPERATION, None, any_text,
        "file whose row i has the bytes from rank i to each rank (alltoallv), or their proportions "
        "(matrix); whole numbers after --matrix-scale",
        name="matrix", metavar="FILE", variables=("NCCL_TESTS_ALLTOALLV_MATRIX_FILE",))
    matrix_scale: float = option(OPERATION, 1.0, factor,
        "multiply the numbers of the matrix by this",
        metavar="FACTOR", variables=("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE",))
    sequence_paths: tuple[str, ...] = option(OPERATION, (), paths_of,
        "matrix: files in place of --matrix, one matrix each, or one a line of a file (row behind "
        "row); they take turns",
        name="sequence", metavar="FILE,...")
    sequence_by: str = option(OPERATION, "iteration", one_of("iteration", "row"),
        "matrix: each iteration, or each row of the table, has the next matrix of --sequence",
        metavar="iteration|row")
    replay_path: str | None = option(OPERATION, None, any_text,
        "in place of a pattern: send again what the tap has recorded of a job, by this folder of "
        "its files; --ranks is their number",
        name="replay", metavar="DIR")
    gaps: float = option(OPERATION, 1.0, gaps,
        "replay: where a rank had nothing under way it pauses as long (keep, or 1), not at all (0) "
        "or X times as long",
        metavar="keep|0|X")
    replay_from_s: float = option(OPERATION, 0.0, seconds(zero=True),
        "replay: leave out what was sent before this time, from the first message on",
        name="replay_from", metavar="TIME")
    replay_for_s: float = option(OPERATION, 0.0, seconds(zero=True),
        "replay: so much of the record; 0: to its end",
        name="replay_for", metavar="TIME")
    spread: float = option(OPERATION, 1.0, part,
        "alltoallv without a matrix; 1: more bytes to ranks farther away; 0: equal shares",
        metavar="SHARE", variables=("NCCL_TESTS_ALLTOALLV_SPREAD",))

    #: "AND 7" and the like, or "".
    split: str = option(VARIABLES_ONLY, "", split_of(SPLITS), "groups of ranks",
        variables=("NCCL_TESTS_SPLIT",), in_file=False)
    split_mask: str = option(VARIABLES_ONLY, "", split_of(SPLITS[:1]), "the same by AND",
        variables=("NCCL_TESTS_SPLIT_MASK",), in_file=False)

    unalign: int = option(TEST, 0, integer(0, 4096, "what a buffer is moved by"),
        "number of elements (bytes without types) by which buffers begin later than they would",
        letter="-u", metavar="N")

    timeout_s: float = option(TEST, 0.0, seconds(zero=True),
        "end the run after this time in total; 0: never",
        name="timeout", letter="-T", metavar="TIME")

    json_path: str | None = option(SAVING, None, output_path,
        "also write JSON, with the keys of nccl-tests",
        name="output_file", letter="-J", metavar="FILE")
    csv_path: str | None = option(SAVING, None, output_path,
        "also write the rows of the table as CSV (`export` has the samples)",
        name="csv", metavar="FILE")
    json_stream_path: str | None = option(SAVING, None, output_path,
        "one JSON event a line as the run goes on; -: the standard output, and the table to "
        "the standard error",
        name="json_stream", metavar="FILE|-")
    prom_path: str | None = option(SAVING, None, output_path,
        "figures and verdict for Prometheus, in the text format of node_exporter; replaces FILE",
        name="prom", metavar="FILE.prom")

    #: Chunks whose steps are kept, a rank and row; 0: none.
    trace: int = option(REPORTING, 0, integer(0, MOST_TRACED, "144 bytes each, a rank and row"),
        "keep in the HDF5 file when each step of the last N chunks of a row was, on every rank; "
        "`tcpx-mpi report FILE --trace` shows it",
        metavar="N")
    screen: str = option(REPORTING, "auto", one_of("auto", "always", "never"),
        "format for a terminal; auto: if mpirun's output is one; always: for $COLUMNS, else 80 "
        "columns; never: as in a pipe, without progress",
        metavar="auto|always|never")
    memory_report: bool = option(REPORTING, False, switch,
        "say what set-up, buffers and rows take of memory on the rank where it is most",
        letter="-M", metavar="0|1", may_be_bare=True)
    #: Of a terminal alone.
    verbose: bool = option(REPORTING, False, switch,
        "on a terminal: the whole header and footer, and the set-up",
        letter="-v", metavar="", may_be_bare=True)
    wide: bool = option(REPORTING, False, switch,
        "on a terminal: all columns, as in a pipe or a file",
        metavar="", may_be_bare=True)

    plugin: str = option(TRANSPORT, "auto", any_text,
        "a path, or a name: softtcpx, tcpx, null, auto, or NAME of libnccl-net-NAME.so",
        metavar="PLUGIN", variables=("UCCL_TCPX_PLUGIN_PATH",), place=-1)
    #: The version of its table; 0: the newest that it offers.
    abi: int = option(TRANSPORT, 0, one_number_of(0, *ABI_VERSIONS),
        "version of the plugin's table (ncclNetPlugin_vN), 6 to 12; 0: the newest that it offers; "
        "of softtcpx, which has a file for each: 7",
        metavar="N", place=-1)
    traffic_class: int | None = option(TRANSPORT, None, integer(0, 255, "IP's and InfiniBand's"),
        "traffic class of the plugin's connections, 0 to 255, by a table of version 10 or newer; "
        "softtcpx gives it to IP, without the two lowest bits, which are TCP's own",
        metavar="N")
    memory: str = option(TRANSPORT, "auto", one_of("auto", "host", "emulated", "cuda"),
        "where buffers are; auto: cuda where every rank has a GPU, else host; emulated: host "
        "memory through the plugin's GPU receive path",
        metavar="auto|host|emulated|cuda", place=-1)
    unpack: str = option(TRANSPORT, "kernel", one_of("kernel", "launch", "d2d", "host", "none"),
        "how fragments are reassembled in GPU or emulated memory; kernel: small receives by one "
        "that stays for a while, where no ranks share the GPU; launch: each by a launch; none: "
        "not at all, an ablation",
        metavar="kernel|launch|d2d|host|none", variables=("UCCL_TCPX_UNPACK_IMPL",), place=-1)
    flush: str = option(TRANSPORT, "auto", one_of("auto", "always", "never"),
        "flush receives that the plugin puts into GPU memory itself; auto: as NCCL would; never: "
        "an ablation",
        metavar="auto|always|never", place=-1)
    registration: str = option(TRANSPORT, "auto", one_of("auto", "regmr", "dmabuf"),
        "how GPU memory is registered; auto: as NCCL would, by a dma-buf if plugin and GPU "
        "support it",
        metavar="auto|regmr|dmabuf", place=-1)
    send_memory: str = option(TRANSPORT, "auto", one_of("auto", "host", "emulated", "cuda"),
        "memory of the payload that is sent; auto: as --memory",
        metavar="auto|host|emulated|cuda", place=-1)
    recv_memory: str = option(TRANSPORT, "auto", one_of("auto", "host", "emulated", "cuda"),
        "memory of all other buffers; auto: as --memory",
        metavar="auto|host|emulated|cuda", place=-1)

    profile: str = option(PLACEMENT, "auto", any_text,
        "settings that this kind of machine needs; auto: the profile that fits it, if any",
        metavar="auto|none|NAME|FILE")
    #: Lists as text, by rank of a node; None: left to placement.
    nic: str | None = option(PLACEMENT, None, names_in_turn,
        "NIC of each rank (the nearest to its GPU)",
        metavar="NAME,...")
    gpu: str | None = option(PLACEMENT, None, numbers_in_turn,
        "GPU of each rank (one each if there are enough); none: place ranks without GPUs",
        metavar="NUMBER,...|none")
    share_gpu: bool = option(PLACEMENT, False, switch, "let ranks of a node share a GPU",
        metavar="", may_be_bare=True)
    cpus: str | None = option(PLACEMENT, None, cpu_list,
        "CPUs for the progress threads (near the NIC, away from the plugin's)",
        metavar="LIST")
    #: That post, test and unpack, a rank; 0 until its cores are known.
    progress_threads: int = option(PLACEMENT, 0,
        integer(0, MAX_PROGRESS_THREADS, "what one rank is driven by"),
        "progress threads of a rank (post, test, unpack), each with its own channels, and of raw "
        "TCP beside it; 0: by the cores of a rank, 1 if they are few or the plugin's workers move "
        "the bytes",
        metavar="N")
    placement_path: str | None = option(PLACEMENT, None, any_text,
        "TOML file with any of these for single ranks",
        name="placement", metavar="FILE")

    #: Baselines that run beside the plugin, by name.
    against: tuple[str, ...] = option(BASELINE, (), baselines_of(tuple(BASELINES), PLUGIN_BASELINE),
        "run these beside the plugin, block by block, and print the ratios (or none): "
        + "; ".join(f"{name}: {what}" for name, what in BASELINES.items()),
        metavar="raw,mpi")
    #: How NCCL is set beside the plugin: presets, and NAME=VALUE over each of them.
    nccl_presets: tuple[str, ...] = option(BASELINE, NCCL_PRESETS,
        names_of(NCCL_PRESETS, or_none=False),
        "settings of the NCCL baseline, one run each; the first is `beside nccl`, the best of each "
        "size `nccl at its best`",
        name="nccl_preset", metavar="tuned,default")
    nccl_env: tuple[str, ...] = option(BASELINE, (), variables_of("NCCL_", tuple(NCCL_HELD)),
        "variables of the NCCL baseline, over its preset",
        metavar="NCCL_NAME=VALUE,...")

    #: None: a name made of the pattern and the time; "none": no file.
    hdf5_path: str | None = option(SAVING, None, output_path,
        "every sample goes here (tcpx-mpi-PATTERN-TIME.h5); none: no file",
        name="hdf5", metavar="FILE|none")

    seed: int = option(CHECKS, 1, integer(0, (1 << 63) - 1, "63 bits"), "seed of the payload",
        place=-1)
    stall_timeout_s: float = option(CHECKS, 30.0, seconds(),
        "end the run when nothing has moved for this time",
        name="stall_timeout", metavar="TIME")
    connect_timeout_s: float = option(CHECKS, 30.0, seconds(),
        "end the run when connecting takes longer",
        name="connect_timeout", metavar="TIME")
    setup_timeout_s: float = option(CHECKS, SETUP_TIMEOUT_S, seconds(),
        "end all ranks when they have not come up by then: MPI, the plugin's init, its devices",
        name="setup_timeout", metavar="TIME")
    gate_path: str | None = option(CHECKS, None, any_text,
        "TOML file of limits that the run must meet, else exit code 9 (`tcpx-mpi gate`)",
        name="gate", metavar="FILE")
    strict: bool = option(CHECKS, False, switch,
        "end with exit code 10 if a rank, NIC or link is slow, and with 11 if a warning, a "
        "spike or `cannot tell` puts a figure in doubt",
        metavar="", may_be_bare=True)

    spool: str = option(LAUNCH, None, any_text,
        "each rank's journal until its row is in the file (the temporary directory)",
        metavar="DIR", place=1)

    check_memory_bytes: int = option(CHECKS, 1 << 30, size(1),
        "memory for buffer slots and their time stamps, so that whole batches are checked",
        name="check_memory", metavar="SIZE", place=-1)

    ranks: int | None = option(LAUNCH, None, integer(1, 4096, "what one machine starts"),
        "start mpirun here with N ranks; under mpirun it must equal the number of ranks")
    runs: int = option(LAUNCH, 1, integer(1, 1000, "what anybody waits for"),
        "number of launches, with --ranks, all in one file; each shuffles the sizes by --seed",
        metavar="K")

    #: From 1; 0 where there is but one.
    launch: int = option(VARIABLES_ONLY, 0, integer(0),
        "which of several launches this is, from 1; 0: the only one",
        variables=("TCPX_MPI_LAUNCH",), in_file=False)

    config_path: str | None = option(LAUNCH, None, any_text,
        "TOML file of settings; the environment and the command line win over it",
        name="config", metavar="FILE", in_file=False)
    save_config_path: str | None = option(LAUNCH, None, output_path,
        "write the settings of this run as such a file",
        name="save_config", metavar="FILE", in_file=False)

    debug: bool = option(VARIABLES_ONLY, False, switch, "show what the plugin logs",
        variables=("UCCL_TCPX_DEBUG", "TCPX_DEBUG", "TCPX_PERF"))
# fmt: on


def _options() -> tuple[Option, ...]:
    """The options of all fields, in the order of `--help`."""
    found = [
        dataclasses.replace(each, name=each.name or item.name, field=item.name)
        for item in dataclasses.fields(RunOptions)
        for each in item.metadata["options"]
    ]
    groups = (*GROUPS, VARIABLES_ONLY)
    return tuple(sorted(found, key=lambda each: (groups.index(each.group), each.place)))


OPTIONS = _options()


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
}

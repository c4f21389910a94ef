"""The settings of a run: command line > environment > file > defaults, then frozen.

Below this nothing reads the environment or the command line. Every value knows its source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tcpx_mpi.config.file import PATTERN, config_text, read_config
from tcpx_mpi.config.option import Option
from tcpx_mpi.config.options import ITERS_WITH_BASELINES, LEAST_BLOCKS, OPTIONS, RunOptions
from tcpx_mpi.config.plan_options import MAX_CHUNK_BYTES, MAX_WINDOW, PlanOptions
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import RECORDED
from tcpx_mpi.patterns.moe_shape import shape_of
from tcpx_mpi.units import format_size_option

#: More rows than anybody reads; it catches `-b 0 -e 1G -i 1` before memory runs out.
MAX_SIZES = 10_000

#: Fields that may differ between ranks: they name places on one node, or how ranks were started.
_LOCAL_FIELDS = frozenset(
    {"spool", "ranks", "runs", "verbose", "wide", "screen", "debug", "config_path", "sources"}
)

#: How the text of a setting reads that is worked out later.
_WHERE_NOT_GIVEN = {
    "hdf5_path": "automatic",
    "nic": "automatic",
    "gpu": "automatic",
    "cpus": "automatic",
    "ranks": "by the launcher",
}

_BY_NAME = {option.name: option for option in OPTIONS}
_SIDES = ("send_memory", "recv_memory")
_SIZE_OPTIONS = ("minbytes", "maxbytes", "stepbytes", "stepfactor", "sizes")
#: They do not say where sizes begin or end, so they leave that to another layer.
_STEPS = ("stepbytes", "stepfactor")
#: How sources begin of what a machine's cores and GPUs made of a default.
IN_GPU_MEMORY = "default in GPU memory"
BY_CORES = "default by cores left"


#: In a description these, and the fields that follow them in the class, stand after one of the
#: plan's.
_AFTER = {
    "ci": "run_cycles",
    "op": "check",
    "timeout_s": "blocking",
    "json_path": "report_cputime",
    "trace": "one_way",
    "profile": "multi_recv",
}


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """Everything a run was asked for; `sources` has the origin of each field."""

    pattern: str
    sources: Mapping[str, str]

    def describe(self) -> list[tuple[str, str, str]]:
        """(name, value as text, source) of every field but `sources`."""
        return [(name, _as_text(name, getattr(self, name)), self.sources[name]) for name in _NAMES]

    def fingerprint(self, extra: Iterable[tuple[str, str]] = ()) -> str:
        """Everything that must be equal on all ranks, a `name=value` line each.

        `extra` adds what is found outside the settings, such as a variable or a plugin's hash.
        """
        pairs = [(name, text) for name, text, _ in self.describe() if name not in _LOCAL_FIELDS]
        # A path may have a line break, which must not make two lines of it.
        return "\n".join(f"{name}={value}".replace("\n", "\\n") for name, value in [*pairs, *extra])

    def to_toml(self) -> str:
        """The text of a file from which `--config` makes these settings; see `config_text`."""
        # Sizes in one list, however they were given. A default of a machine stays with it.
        options = [option for option in OPTIONS if option.in_file and option.field != "sizes"]
        values: list[tuple[Option, object, str]] = []
        values.append((_BY_NAME["sizes"], self.sizes, self.sources["sizes"]))
        for option in options:
            value, source = getattr(self, option.field), self.sources[option.field]
            machines = option.default is None and source == "default"
            machines = machines or source.startswith((IN_GPU_MEMORY, BY_CORES))
            if source.startswith("auto:"):  # what this machine made of it
                value = "auto"
            values.append((option, None if machines else value, source))
        return config_text(self.pattern, values)

    def groups(self) -> str:
        """The way that ranks make groups: "MOD 8" and the like, "" for one group of all."""
        return self.split or self.split_mask

    def open_ended(self) -> bool:
        """Whether rows go on until something is reached, in place of a number of iterations."""
        return self.ci > 0 or self.duration_s > 0

    def events_to_stdout(self) -> bool:
        """Whether the standard output is for events alone, and the table goes aside."""
        return self.json_stream_path == "-"

    def memory_of(self, sends: bool) -> str:
        """The kind of the buffers that are sent from first, or of all others."""
        side = self.send_memory if sends else self.recv_memory
        return self.memory if side == "auto" else side

    def memory_text(self) -> str:
        """The kind of memory, or both of them."""
        sent, received = self.memory_of(sends=True), self.memory_of(sends=False)
        return sent if sent == received else f"{sent} to {received}"

    def unpack_mode(self) -> str:
        """How received fragments are put together; "in place" if the plugin delivers so."""
        unpacks = self.memory_of(sends=False) in ("emulated", "cuda")
        return self.unpack if unpacks else "in place"

    def puts_in_place(self) -> bool:
        """Whether the plugin puts what it receives into a GPU's memory, or emulated, itself; once
        both are known."""
        return self.memory_of(sends=False) not in ("auto", "host") and (
            self.unpack_mode() == "in place"
        )

    def flushes(self) -> bool:
        """Whether receives are flushed, once the plugin and its memory are known."""
        return self.puts_in_place() and self.flush == "always"

    def mode(self) -> str:
        """The way that iterations follow each other: the word in header, JSON and HDF5."""
        return "open loop" if self.rates else "synchronised" if self.blocking else "back-to-back"

    def checks(self) -> bool:
        """Whether received bytes are checked: not where they are left scattered on purpose."""
        return bool(self.check) and self.unpack_mode() != "none"


def _names() -> list[str]:
    """The fields in the order of a description: the pattern, the plan's, the others among them."""
    of_plan = [item.name for item in dataclasses.fields(PlanOptions)]
    names = ["pattern", *of_plan]
    place = 0
    for item in dataclasses.fields(Settings):
        if item.name not in (*names, "sources"):
            place = names.index(_AFTER.get(item.name, names[place])) + 1
            names.insert(place, item.name)
    return names


_NAMES = _names()


def as_recorded(settings: Settings, size_bytes: int, longest_bytes: int, depth: int) -> Settings:
    """The settings with what a recording says, where nobody says otherwise: its size, and each
    message a request on the one connection of its lane."""
    found: dict[str, object] = {
        "sizes": (size_bytes,),
        "channels": 1,
        "chunk_bytes": min(max(longest_bytes, 1), MAX_CHUNK_BYTES),
        "window_send": min(depth, MAX_WINDOW),
        "window_recv": min(depth, MAX_WINDOW),
    }
    given = {name: v for name, v in found.items() if settings.sources[name] == "default"}
    sources = {**settings.sources, **dict.fromkeys(given, "the recording")}
    return dataclasses.replace(settings, **given, sources=sources)  # type: ignore[arg-type]  # by name


def fingerprint_difference(first: str, second: str) -> str:
    """The differences of two fingerprints, as `name (value, other value)`; "" if there are none."""
    # A fingerprint may be empty: of an environment in which nothing is set.
    ours, theirs = (
        dict(line.split("=", 1) for line in text.split("\n") if line) for text in (first, second)
    )
    return ", ".join(
        f"{name} ({ours.get(name, 'not set')}, {theirs.get(name, 'not set')})"
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    )


def load_settings(cli: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """The settings of a command line (by option name, None: not given) and an environment.

    Pure but for the place of the temporary directory and the file that `config` names. Without a
    pattern in either, it is "". Raises UsageError, one line, for the first value that cannot be.
    """
    command_line = _command_line_layer(cli)
    environment = _environment_layer(environ, hidden=command_line)
    layers = [
        command_line,
        environment,
        _file_layer(command_line, above={**environment, **command_line}),
        _recorded_layer(command_line),
        {option.name: Value(option.default, "default") for option in OPTIONS},
    ]
    values = {name: _first(name, layers) for name in [PATTERN, *_BY_NAME]}
    sizes = _sizes(values)
    if sizes.source == "default" and values["moe"].source != "default":
        shape = shape_of(str(values["moe"].value))
        sizes = Value((shape.batch * shape.token_bytes,), f"tokens of {values['moe'].source}")
    if values["spool"].value is None:
        values["spool"] = Value(_temporary_directory(), "default")
    if values["against"].value and values["iters"].source == "default":
        values["iters"] = Value(ITERS_WITH_BASELINES, "default with --against")
    if values["against"].value and _number(values["iters"]) < LEAST_BLOCKS:
        raise UsageError(
            f"-n/--iters ({_number(values['iters'])}) is too small with --against, which compares "
            f"at least {LEAST_BLOCKS} blocks of iterations; use {LEAST_BLOCKS} or more"
        )
    if values["ci"].value and values["duration"].value:
        raise UsageError("--ci and --duration both say when a row ends: give one of them")
    fields = {option.field: values[option.name] for option in OPTIONS if option.field != "sizes"}
    fields["memory"] = _memory(*(values[name] for name in ("memory", *_SIDES)))
    fields["pattern"] = values[PATTERN]
    fields["sizes"] = sizes
    return Settings(
        **{name: found.value for name, found in fields.items()},  # type: ignore[arg-type]  # by option
        sources={name: found.source for name, found in fields.items()},
    )


@dataclass(frozen=True)
class Value:
    """A parsed value and where it comes from."""

    value: object
    source: str


Layer = Mapping[str, Value]


def _command_line_layer(cli: Mapping[str, object]) -> dict[str, Value]:
    unknown = set(cli) - set(_BY_NAME) - {"pattern"}
    if unknown:
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    layer = {
        option.name: Value(
            option.parse(option.label, str(cli[option.name])), f"command line {option.option}"
        )
        for option in OPTIONS
        if cli.get(option.name) is not None
    }
    if cli.get(PATTERN) is not None:
        layer[PATTERN] = Value(str(cli[PATTERN]), "command line")
    return layer


def _environment_layer(environ: Mapping[str, str], hidden: Layer) -> dict[str, Value]:
    # What the command line hides is not even parsed: a variable of NCCL's own may hold what we
    # refuse, and an option must be a way out.
    hidden_fields = {
        _BY_NAME[name].field for name in hidden if name in _BY_NAME and name not in _STEPS
    }
    return {
        option.name: Value(option.parse(variable, environ[variable]), f"environment {variable}")
        for option in OPTIONS
        if option.field not in hidden_fields and (variable := _variable_of(option, environ))
    }


def _recorded_layer(command_line: Layer) -> dict[str, Value]:
    """The pattern where nobody names one: that of a recording, if there is one."""
    replay = command_line.get("replay")
    return {PATTERN: Value("", "default") if replay is None else Value(RECORDED, replay.source)}


def _file_layer(command_line: Layer, above: Layer) -> dict[str, Value]:
    """The settings of the file of `--config`, but for sizes that layers above set otherwise."""
    if "config" not in command_line:
        return {}
    path = str(command_line["config"].value)
    layer = {
        name: Value(value, f"file {path}: {name}") for name, value in read_config(path).items()
    }
    # Key by key, -b of the command line goes with a maximum of the file; a list is a whole.
    if "sizes" in above:
        hidden = set(_SIZE_OPTIONS)
    else:
        hidden = {"sizes"} if {"minbytes", "maxbytes"} & above.keys() else set()
    return {name: value for name, value in layer.items() if name not in hidden}


def _variable_of(option: Option, environ: Mapping[str, str]) -> str | None:
    # A variable that is set to nothing counts as not set, as shells make it.
    return next((name for name in option.variables if environ.get(name, "").strip()), None)


def _first(name: str, layers: Iterable[Layer]) -> Value:
    return next(layer[name] for layer in layers if name in layer)


def _sizes(values: Mapping[str, Value]) -> Value:
    """The sizes and their source: a list, or a progression from -b to -e."""
    # A variable gives way to a list: it was not typed beside it.
    given = [name for name in _SIZE_OPTIONS if values[name].source.startswith(("command", "file"))]
    if "sizes" in given:
        if len(given) > 1:
            others = ", ".join(_named(name, values[name]) for name in given if name != "sizes")
            ours = _named("sizes", values["sizes"])
            raise UsageError(f"{ours} and {others} exclude each other: give one or the other")
        return values["sizes"]
    minimum, maximum, step, factor = (values[name] for name in _SIZE_OPTIONS[:4])
    sources = dict.fromkeys(
        found.source for found in (minimum, maximum, step, factor) if found.source != "default"
    )
    sizes = _progression(minimum, maximum, _number(step), _number(factor))
    return Value(sizes, ", ".join(sources) or "default")


def _memory(memory: Value, *sides: Value) -> Value:
    """`--memory`, as one side says it where it does not say it itself. Raises UsageError for kinds
    that no run can have beside each other."""
    given = [side for side in sides if side.value != "auto"]
    on_gpu = {str(side.value): side for side in given if side.value != "host"}
    if memory.value == "auto":
        if len(on_gpu) > 1:
            raise UsageError(
                "--send-memory and --recv-memory name two kinds of memory that stand for a GPU's: "
                "one of them may be host, or both alike"
            )
        if on_gpu:
            return next(iter(on_gpu.values()))
        return given[0] if len(given) == len(sides) else memory
    for side in given:
        if side.value not in ("host", memory.value):
            raise UsageError(
                f"{side.source.removeprefix('command line ')} {side.value} and --memory "
                f"{memory.value} exclude each other: a side has that kind, or host"
            )
    return memory


def _named(name: str, found: Value) -> str:
    """The name in an error of the place where a value was given."""
    return found.source if found.source.startswith("file") else _BY_NAME[name].label


def _progression(minimum: Value, maximum: Value, step: int, factor: int) -> tuple[int, ...]:
    """nccl-tests' sizes: multiplied where the factor is above 1, else added to."""
    first, last = _number(minimum), _number(maximum)
    if first > last:
        both = f"-b/--minbytes ({format_size_option(first)}{_origin(minimum)})"
        limit = f"-e/--maxbytes ({format_size_option(last)}{_origin(maximum)})"
        raise UsageError(f"{both} is larger than {limit}; give a -b that is at most -e")
    sizes = []
    size = first
    while size <= last:
        sizes.append(size)
        if len(sizes) > MAX_SIZES:
            raise UsageError(f"-b to -e has more than {MAX_SIZES} sizes: give a larger -i or -f")
        # 0 times a factor stays 0 for ever, so the size after 0 is 1.
        size = max(size * factor, 1) if factor > 1 else size + step
    return tuple(sizes)


def _origin(found: Value) -> str:
    """The source of a value that was not typed on the command line."""
    if found.source.startswith("command line"):
        return ""
    return ", the default" if found.source == "default" else f", {found.source}"


def _number(found: Value) -> int:
    assert isinstance(found.value, int)
    return found.value


def _temporary_directory() -> str:
    import tempfile  # 10 ms that `--help` need not pay

    return tempfile.gettempdir()


def _as_text(name: str, value: object) -> str:
    if value is None:
        return _WHERE_NOT_GIVEN.get(name, "none")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)

"""The declaration of an option: names, limits, meaning, and its group in `--help`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.config.parsers import Parser
from tcpx_mpi.units import format_size_option

SIZES = "Sizes to scan (1024-based: 4K, 1.5M, 1GiB)"
OPERATION = "Operation (where there is arithmetic or a root)"
PERFORMANCE = "Performance"
STOPPING = "When a row ends (in place of a number of iterations; -n is that of a batch)"
TEST = "Test operation"
REPORTING = "Reporting"
SAVING = "Saving results (a file that exists is kept: FILE.0, FILE.1 are written)"
TRANSPORT = "Transport"
PLACEMENT = "Placement (lists go by rank of a node, in turn)"
BASELINE = "Baselines beside the plugin, in the same frame"
CHECKS = "Checks and deadlines"
LAUNCH = "Launch and settings"
VARIABLES_ONLY = ""
#: In the order of `--help`.
GROUPS = (
    SIZES, OPERATION, PERFORMANCE, STOPPING, TEST, REPORTING, SAVING, TRANSPORT, PLACEMENT,
    BASELINE, CHECKS, LAUNCH,
)  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One setting: `name` is its key for `load_settings`, `field` its place in `Settings`."""

    group: str
    default: object
    parse: Parser
    help: str
    #: That of its field where none is given.
    name: str = ""
    field: str = ""
    #: nccl-tests' letter; such an option keeps nccl-tests' long form, underscores included.
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
    #: Before or behind others of its group in `--help`, which are declared in another order.
    place: int = 0

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
        """The option's name in an error: `-b/--minbytes`."""
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


def option(group: str, default: object, parse: Parser, help: str, **more: Any) -> Any:
    """A field of settings that one option gives; `more` are fields of `Option`."""
    made = Option(group, default, parse, help, **more)
    return dataclasses.field(default=default, metadata={"options": (made,)})


def several(*options: Option) -> Any:
    """A field that several options give together; it has no default of its own."""
    return dataclasses.field(metadata={"options": options})

"""The tree of errors, each with the exit code of a command that it ends.

    TcpxError                    1   a defect of this program, as any other exception is
    ├── UsageError               2   the user asked for something that cannot be
    │   └── RefusedAfterInit     2   found when the plugin had read it (transport.load_plugin)
    ├── PluginMissing            3   the plugin or a library is missing or is none
    ├── SetupFailed              4   devices, connections or registrations failed
    │   └── CallFailed           4   a call of the plugin, tried beside the run (plugin.trial)
    ├── WrongBytes               5   data arrived that nobody sent
    ├── Stalled                  6   no progress within the stall timeout
    ├── LostRank                 7   a rank did not answer, or died
    ├── OutputFailed             8   a result could not be written
    ├── BelowGate                9   a measured value is below its limit
    ├── PartialResult           12   a file is whole in form but rows or ranks are missing
    ├── PluginFailed            13   a plugin call failed while measuring
    ├── Interrupted            130   a signal ended the run; 143 where it was SIGTERM
    ├── AgreedError              1   on all ranks; its code is that of one (world.collectives)
    │   └── AgentFailed          1   of an agent of NIXL, or its death (nixl.agents)
    ├── NoPlugin                 1   a file that was tried; becomes an error above (plugin.trial)
    ├── ScheduleError            1   a schedule of a pattern is wrong (schedule.table)
    └── StoppedByOthers          0   the rank that called the roll knows why (transport.errors)

No error, but a verdict: 0 success, 5 wrong bytes, 9 below a gate, 10 worse, 11 inconclusive,
14 better. `docs/design/how-a-run-ends.md` says who works out the code of a run.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of `tcpx-mpi`, the same on every rank of a run."""

    OK = 0
    DEFECT = 1
    USAGE = 2
    PLUGIN_MISSING = 3
    SETUP_FAILED = 4
    WRONG_BYTES = 5
    STALL = 6
    LOST_RANK = 7
    OUTPUT_FAILED = 8
    BELOW_GATE = 9
    WORSE = 10
    INCONCLUSIVE = 11
    PARTIAL_RESULT = 12
    PLUGIN_FAILED = 13
    BETTER = 14
    INTERRUPTED = 130
    TERMINATED = 143


#: One line a code, for `--help` and the documentation.
EXIT_CODE_MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "measured, every checked byte right",
    ExitCode.DEFECT: "a defect of tcpx-mpi itself",
    ExitCode.USAGE: "usage: a bad option, value or input file",
    ExitCode.PLUGIN_MISSING: "plugin or library missing",
    ExitCode.SETUP_FAILED: "set-up failed (devices, connections), or --setup-timeout",
    ExitCode.WRONG_BYTES: "wrong bytes were received",
    ExitCode.STALL: "stall: no progress within --stall-timeout",
    ExitCode.LOST_RANK: "a rank was lost",
    ExitCode.OUTPUT_FAILED: "output failed: a result could not be written",
    ExitCode.BELOW_GATE: "below a gate, or a clause that a plugin does not keep",
    ExitCode.WORSE: "worse in a comparison; somebody is slow (--strict)",
    ExitCode.INCONCLUSIVE: "inconclusive comparison; a figure is in doubt (--strict)",
    ExitCode.PARTIAL_RESULT: "partial result: rows or ranks are missing",
    ExitCode.PLUGIN_FAILED: "a plugin call failed while measuring",
    ExitCode.BETTER: "better in a comparison",
    ExitCode.INTERRUPTED: "interrupted (SIGINT)",
    ExitCode.TERMINATED: "terminated (SIGTERM); your own mpirun may give 1",
}


class TcpxError(Exception):
    """Base of every error that this package raises on purpose; its text is one line."""

    exit_code = ExitCode.DEFECT
    #: Distance of this rank from the cause: -1 others wait for it, 0 it knows the cause, 1 another
    #: rank may know more, 2 it only waited for others.
    second_hand = 0
    #: Of a session: what went wrong, a number of native/library/include/tcpx_p2p.h; 0: not of one.
    status = 0


class UsageError(TcpxError):
    """The user asked for something that cannot be: what, expected, found, what to do."""

    exit_code = ExitCode.USAGE


class PluginMissing(TcpxError):
    """The plugin is not there, is no plugin, or speaks no ABI version that we know."""

    exit_code = ExitCode.PLUGIN_MISSING


class SetupFailed(TcpxError):
    """Initialisation, devices, connections or registrations failed before any timing."""

    exit_code = ExitCode.SETUP_FAILED


class WrongBytes(TcpxError):
    """A checked byte differs from what its sender sent."""

    exit_code = ExitCode.WRONG_BYTES


class Stalled(TcpxError):
    """Nothing moved for the stall timeout; the text names the oldest request."""

    exit_code = ExitCode.STALL


class LostRank(TcpxError):
    """A rank did not answer a roll call, or the plugin saw its peer die."""

    exit_code = ExitCode.LOST_RANK


class OutputFailed(TcpxError):
    """A result could not be written; what was measured until then is kept."""

    exit_code = ExitCode.OUTPUT_FAILED


class BelowGate(TcpxError):
    """A measured value is below the limit that the user set."""

    exit_code = ExitCode.BELOW_GATE


class PartialResult(TcpxError):
    """A result is readable but rows or ranks are missing."""

    exit_code = ExitCode.PARTIAL_RESULT


class PluginFailed(TcpxError):
    """A plugin call returned an error in the middle of a row; the error stays."""

    exit_code = ExitCode.PLUGIN_FAILED


class Interrupted(TcpxError):
    """A signal ended the run; what was measured until then is kept."""

    exit_code = ExitCode.INTERRUPTED

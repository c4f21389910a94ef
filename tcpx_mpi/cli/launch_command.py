"""A command that `ab` and `tune` launch again and again: arguments of `run`, and variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tcpx_mpi.cli.run import settings_of
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.run import admission, series
from tcpx_mpi.run.start import environment_of_ranks

#: Outputs that one command of several has not.
_OF_ONE_COMMAND = {
    "hdf5_path": "--hdf5", "json_path": "-J/--output_file", "csv_path": "--csv",
    "save_config_path": "--save-config", "prom_path": "--prom",
}  # fmt: skip


def launch_command(
    arguments: Sequence[str], variables: Mapping[str, str], user: str, files: str
) -> series.Command:
    """The command, for `user`, which keeps the launches in `files`. Raises UsageError for what
    `run` would refuse, and for outputs of one command."""
    environ = {**os.environ, **variables}
    settings = settings_of(arguments, environ)
    admission.refuse_series(settings)
    if settings.gate_path is not None:
        raise UsageError(
            f"--gate is of one command: leave it out, and give a file of `{user}` to "
            "`tcpx-mpi gate`"
        )
    for field, option in _OF_ONE_COMMAND.items():
        if settings.sources[field].startswith("command line"):
            raise UsageError(
                f"{option} is of one command: leave it out; `{user}` keeps all launches in {files}"
            )
    return series.Command(settings, ["run", *arguments], environment_of_ranks(settings, environ))


def require_checks(settings: Settings, user: str, remedy: str = "") -> None:
    """Raises UsageError for bytes that nobody would check."""
    if not settings.checks():
        raise UsageError(
            f"{user} compares checked bytes: use -c 1 and an --unpack that moves{remedy}"
        )

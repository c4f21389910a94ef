"""A tune's recommendation as a profile: today's own with it, and the evidence. Text alone."""

from __future__ import annotations

import datetime
import re
import shlex

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.profiles import Profile
from tcpx_mpi.toml_value import toml_value
from tcpx_mpi.tune.answer import Finalist
from tcpx_mpi.tune.text import Tuned

OPTION = "--write"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def profile_text(tuned: Tuned, chosen: Finalist, base: Profile | None, day: datetime.date) -> str:
    """A profile that `--profile FILE` takes: `base`, whose NICs and variables it keeps, with what
    was found. Raises UsageError for a text that is no UTF-8."""
    header = tuned.header
    options = {change.name: change.value for change in chosen.point if change.option}
    variables = {change.name: change.value for change in chosen.point if not change.option}
    nodes = ", ".join(dict.fromkeys(info.host for info in header.ranks))
    evidence = {
        "date": day.isoformat(),
        "beside_default": tuned.beside_today(chosen),
        "of": tuned.what(),
        "launches": tuned.how(),
        "hosts": nodes,
        "plugin_sha256": header.plugin_sha256,
        "command": shlex.join(tuned.command),
        "file": tuned.path,
    }
    lines = [
        "# Found by tcpx-mpi tune: tcpx-mpi run ... --profile FILE.toml, tcpx-mpi env --profile "
        "FILE.toml",
        f"about = {toml_value(f'tuned {day}: {tuned.beside_today(chosen)}')}",
    ]
    kept: dict[str, str] = {}
    if base is not None:
        lines += _of_base(base)
        kept = dict(base.environment)
        options = {name: str(value) for name, value in base.run.items()} | options
    lines += _table("run", options, "Options of tcpx-mpi's engine, which NCCL has none of.")
    lines += _table("environment", {**kept, **variables}, "Variables of the plugin's own.")
    lines += _table("evidence", evidence, "Each of them was measured with all others.")
    text = "\n".join(lines) + "\n"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{OPTION}: a value has bytes that are no UTF-8") from None
    return text


def _of_base(base: Profile) -> list[str]:
    """The NICs and CPUs of today's profile."""
    lines = [
        f"family = {toml_value(base.family)}",
        f"control_nic = {toml_value(base.control_nic)}",
        f"data_nics = {toml_value(base.data_nics)}",
        f"nic_of_gpu = {toml_value(base.nic_of_gpu)}",
    ]
    for key, bindings in (("tx_bindings", base.tx_bindings), ("rx_bindings", base.rx_bindings)):
        if bindings is None:
            lines.append(f'{key} = "auto"')
    for key, bindings in (("tx_bindings", base.tx_bindings), ("rx_bindings", base.rx_bindings)):
        if bindings:
            lines += _table(key, {nic: cpu_list_text(cpus) for nic, cpus in bindings.items()})
    return lines


def _table(name: str, values: dict[str, str], comment: str = "") -> list[str]:
    if not values:
        return []
    lines = [
        f"{key if _BARE.fullmatch(key) else toml_value(key)} = {toml_value(value)}"
        for key, value in values.items()
    ]
    return ["", *([f"# {comment}"] if comment else []), f"[{name}]", *lines]

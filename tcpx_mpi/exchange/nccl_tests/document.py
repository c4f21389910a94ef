"""The JSON of nccl-tests (`-J`), versions 2 and 3, whole or cut off."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.log import Device, Log, LogRow
from tcpx_mpi.records import Average

_VERSIONS = (2, 3)
_CLOSING = {"{": "}", "[": "]"}


def parse_document(path: str, text: str) -> Log:
    """The run in a document; of one that was cut off, what is whole.

    Raises UsageError for a document of something else, ours too, and of an unknown version.
    """
    document = _load(path, text)
    if "tcpx_mpi" in document:
        raise UsageError(f"{path} is a document of tcpx-mpi: give its HDF5 file to report")
    if document.get("version") not in _VERSIONS:
        raise UsageError(
            f"{path} is no JSON of nccl-tests that is known here: expected version 2 or 3, found "
            f"{document.get('version')!r}"
        )
    try:
        return _log(path, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__} {error}"
        raise UsageError(f"{path} is no JSON of nccl-tests: {what}") from error


def _load(path: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        try:
            document = json.loads(_closed(text))
        except json.JSONDecodeError:
            raise UsageError(f"{path} is no JSON of nccl-tests: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is no JSON of nccl-tests: expected an object")
    return document


def _closed(text: str) -> str:
    """A document that was cut off, up to the last whole result or value of its own, closed."""
    open_ones: list[str] = []
    in_string = escaped = False
    end = ""
    for position, letter in enumerate(text):
        if in_string:
            in_string = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_string = True
        elif letter in _CLOSING:
            open_ones.append(letter)
        elif letter in _CLOSING.values() and open_ones:
            open_ones.pop()
            if open_ones in (["{"], ["{", "["]):
                end = text[: position + 1] + "".join(_CLOSING[o] for o in reversed(open_ones))
    return end


def _log(path: str, document: Mapping[str, Any]) -> Log:
    config = document["config"]
    log = Log(
        test=_test(document),
        min_bytes=int(config["minimum_bytes"]),
        max_bytes=int(config["maximum_bytes"]),
        step_bytes=-1 if "step_factor" in config else int(config["step_bytes"]),
        step_factor=int(config.get("step_factor", -1)),
        warmup_iters=int(config["warmup_iters"]),
        iters=int(config["iterations"]),
        agg_iters=int(config["aggregated_iterations"]),
        check=int(config["validation"]),
        # The average comes after the last row, and is the footer of this form.
        concluded="average_bus_bandwidth" in document,
        command=[str(word) for word in document["args"]],
        environment={
            name: value
            for name, separator, value in (str(item).partition("=") for item in document["env"])
            if separator
        },
        versions={"NCCL": str(document["nccl_version"])},
    )
    for key, name in (("start_time", "start time (local)"), ("end_time", "end time (local)")):
        if document.get(key):
            log.facts[name] = str(document[key])
    if log.concluded:
        average = document["average_bus_bandwidth"]["bandwidth"]
        log.facts["average bus bandwidth as printed, GB/s"] = str(average)
    log.devices = [_device(each) for each in config.get("devices", [])]
    log.rows = [_row(path, each) for each in document.get("results") or []]
    if any("out_of_place_per_iter" in each for each in document.get("results") or []):
        log.notes.append("the per-iteration times of the log (-I) are not imported")
    return log


def _test(document: Mapping[str, Any]) -> str:
    arguments = document["args"]
    return os.path.basename(str(arguments[0])).removesuffix("_perf") if arguments else ""


def _device(each: Mapping[str, Any]) -> Device:
    return Device(
        rank=int(each["rank"]),
        group=int(each["group"]),
        pid=int(each["pid"]),
        host=str(each["hostname"]),
        device=int(each["device"]),
        pci=str(each["device_hex"]),
        name=str(each["device_info"]),
    )


def _row(path: str, result: Mapping[str, Any]) -> LogRow:
    sides = [_side(path, "out_of_place", result["out_of_place"])]
    if result.get("in_place") is not None:
        sides.append(_side(path, "in_place", result["in_place"]))
    # Some versions write the root as a text, with blanks.
    return LogRow(
        size_bytes=int(result["size"]),
        count=int(result["count"]),
        type_name=str(result["type"]),
        redop=str(result["redop"]),
        root=int(result["root"]),
        averages=tuple(sides),
    )


def _side(path: str, name: str, side: Mapping[str, Any] | None) -> Average:
    if side is None:
        return Average(name, math.nan, math.nan, math.nan, -1)
    if "cpu_time" in side:
        raise UsageError(
            f"{path} was made with -C, whose time is what the CPU took to start an operation: "
            "run nccl-tests without it"
        )
    wrong = _number(side["nwrong"])
    return Average(
        name,
        _number(side["time"]) * 1e3,
        _number(side["alg_bw"]),
        _number(side["bus_bw"]),
        -1 if math.isnan(wrong) else int(wrong),
    )


def _number(value: Any) -> float:
    """A number, or "nan" or null for one that is not known."""
    return math.nan if value is None else float(value)

"""The JSON of nccl-tests (`-J`), versions 2 and 3, whole or cut off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.model import (
    Device,
    Log,
    LogRow,
    read_average,
    stored_integer,
    test_name,
)
from tcpx_mpi.exchange.nccl_tests.settings import take_settings
from tcpx_mpi.inputs import parse_json
from tcpx_mpi.records import IMPORTED_BOUNDS, Average

_VERSIONS = (2, 3)
_CLOSING = {"{": "}", "[": "]"}
#: A text, whole or cut off, or what opens or closes something.
_PIECE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]', re.DOTALL)


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
        document = parse_json(text)
    except ValueError as error:
        try:
            document = parse_json(_closed(text))
        except ValueError:
            raise UsageError(f"{path} is no JSON of nccl-tests: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is no JSON of nccl-tests: expected an object")
    return document


def _closed(text: str) -> str:
    """A document that was cut off, up to the last whole result or value of its own, closed."""
    open_ones: list[str] = []
    end, closing = 0, ""
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece in _CLOSING:
            open_ones.append(piece)
        elif piece in _CLOSING.values() and open_ones:
            open_ones.pop()
            if open_ones in (["{"], ["{", "["]):
                end, closing = found.end(), "".join(_CLOSING[o] for o in reversed(open_ones))
    return text[:end] + closing


def _log(path: str, document: Mapping[str, Any]) -> Log:
    log = Log(
        test=_test(document),
        may_be_shortened=True,
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
    config = document["config"]
    take_settings(
        log,
        {
            str(name): str(value)
            for name, value in config.items()
            if name != "devices" and value is not None
        },
    )
    for key, name in (("start_time", "start time (local)"), ("end_time", "end time (local)")):
        if document.get(key):
            log.facts[name] = str(document[key])
    if log.concluded:
        average = document["average_bus_bandwidth"]["bandwidth"]
        log.facts["average bus bandwidth as printed, GB/s"] = str(average)
    if bounds := document.get("out_of_bounds"):
        good = str(bounds["okay"]).lower() == "true"
        log.facts[IMPORTED_BOUNDS] = (
            f"{stored_integer(bounds['count'])} {'OK' if good else 'FAILED'}"
        )
    log.devices = [_device(each) for each in config.get("devices", [])]
    for each in document.get("results") or []:
        _take_row(path, log, each)
    if any("out_of_place_per_iter" in each for each in document.get("results") or []):
        log.notes.append("the per-iteration times of the log (-I) are not imported")
    if not log.devices or not (log.rows or log.asked_count()):
        raise UsageError(f"{path} ends in its header: it has no devices, or no sizes")
    return log


def _test(document: Mapping[str, Any]) -> str:
    arguments = document["args"]
    return test_name(str(arguments[0])) if arguments else ""


def _device(each: Mapping[str, Any]) -> Device:
    return Device(
        rank=stored_integer(each["rank"]),
        group=stored_integer(each["group"]),
        pid=stored_integer(each["pid"]),
        host=str(each["hostname"]),
        device=stored_integer(each["device"]),
        pci=str(each["device_hex"]),
        name=str(each["device_info"]),
    )


def _take_row(path: str, log: Log, result: Mapping[str, Any]) -> None:
    """One result; what of it no file can hold, or is no figure, is damaged."""
    averages: list[Average] = []
    damaged: list[str] = []
    for side in ("out_of_place", "in_place"):
        if side == "out_of_place" or result.get(side) is not None:
            average, odd = _side(path, side, result[side])
            averages.append(average)
            damaged += odd
    try:
        # Some versions write the root as a text, with blanks.
        size, count, root = (stored_integer(result[name]) for name in ("size", "count", "root"))
    except ValueError as error:
        log.damaged.append(f"a row that is not whole in the log: {error}")
        log.rows_in_pieces += 1
        return
    kind, redop = str(result["type"]), str(result["redop"])
    log.rows.append(LogRow(size, count, kind, redop, root, tuple(averages)))
    log.damaged += [f"the row of {size} bytes has {what}, which is no figure" for what in damaged]


def _side(path: str, name: str, side: Mapping[str, Any] | None) -> tuple[Average, list[str]]:
    if side is None:
        return read_average(name, None, None, None, None)
    if "cpu_time" in side:
        raise UsageError(
            f"{path} was made with -C, whose time is what the CPU took to start an operation: "
            "run nccl-tests without it"
        )
    return read_average(name, side["time"], side["alg_bw"], side["bus_bw"], side["nwrong"])

"""What TCPX is known to die of or to hang with: refused for it, and for no other plugin."""

from __future__ import annotations

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.unsafe_settings import fatal_value, refuse_fatal_values

TCPX = "GPUDirectTCPX_v7"
THREADS, SOCKETS = "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"
CHUNK = "NCCL_DYNAMIC_CHUNK_SIZE"
TELEMETRY = "NCCL_GPUDIRECTTCPX_TELEMETRY_EXPORT_STATS_TO_FILE"
RETRY = "NCCL_GPUDIRECTTCPX_CONNECTION_RETRY"
TX, RX = "NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_GPUDIRECTTCPX_RX_BINDINGS"
GPUS = "CUDA_VISIBLE_DEVICES"

FATAL = [
    (THREADS, "9", "no data socket", "use 8 or less"),
    (THREADS, " 16 ", "no data socket", "use 8 or less"),
    (THREADS, "0x9", "no data socket", "use 8 or less"),
    (CHUNK, "2147483647", "lose bounce pages", "use 524288"),
    (TELEMETRY, "1", "crash at init", "TELEMETRY_EXPORTER_PATH, or unset it"),
    (RETRY, "0", "every connect of TCPX fail", "use 3, or unset it"),
    (RETRY, "00", "every connect of TCPX fail", "use 3, or unset it"),
    (GPUS, "", "hides all GPUs", "name some, or unset it"),
    (GPUS, "-1", "hides all GPUs", "name some, or unset it"),
    (TX, "eth1:8", "is no binding", "write it like eth1:8-21"),
    (RX, "eth1:8-21;eth2", "is no binding", "write it like eth1:8-21"),
    (RX, "eth1:" + ",".join(f"{n}-{n}" for n in range(9)), "has 9 ranges", "use fewer"),
]
HARMLESS = [
    (THREADS, "8"),
    (THREADS, "1"),
    (THREADS, ""),
    (THREADS, "0"),  # these are 1 to it
    (THREADS, "17"),
    (SOCKETS, "0"),
    (SOCKETS, "100"),
    (CHUNK, "2147483646"),
    (TELEMETRY, "0"),
    (RETRY, "1"),
    (RETRY, ""),
    (GPUS, "0"),
    (GPUS, "GPU-1"),
    (TX, "eth1:8-21,112-125;eth2:8-8"),
    ("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", "0"),  # the default, of 5 s
]


@pytest.mark.parametrize(("variable", "value", "happens", "instead"), FATAL)
def test_a_fatal_value_is_refused_in_a_line_that_says_what_happens_and_what_to_set(
    variable: str, value: str, happens: str, instead: str
) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_fatal_values(TCPX, {variable: value})
    text = str(caught.value)
    assert text.startswith(f"{variable} (")
    assert happens in text
    assert instead in text
    assert "\n" not in text


@pytest.mark.parametrize(("variable", "value"), HARMLESS)
def test_what_tcpx_outlives_is_left_alone(variable: str, value: str) -> None:
    assert fatal_value(TCPX, {variable: value}) is None


def test_telemetry_with_a_path_is_left_alone() -> None:
    path = {"NCCL_GPUDIRECTTCPX_TELEMETRY_EXPORTER_PATH": "/tmp/stats"}
    assert fatal_value(TCPX, {TELEMETRY: "1", **path}) is None


@pytest.mark.parametrize("plugin", ["softtcpx_v7", "null", "AWS Libfabric"])
def test_other_plugins_have_none_of_it(plugin: str) -> None:
    assert fatal_value(plugin, {variable: value for variable, value, _, _ in FATAL}) is None

"""Which NIC and which GPU of a node is meant by what is said against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.preflight.findings import Checked, CheckFinding
from tcpx_mpi.qualify.devices import Device, devices_of
from tcpx_mpi.qualify.judge import Ended, Qualification, Step, of_run
from tcpx_mpi.qualify.results import metrics

#: Two nodes of two ranks, each rank with a NIC and a GPU of its own.
HEADER: dict[str, Any] = {
    "event": "header",
    "config": {
        "devices": [
            {"rank": rank, "hostname": f"n{rank // 2}", "nic": f"eth{rank % 2}", "gpu": rank % 2}
            for rank in range(4)
        ]
    },
}
NODES = ("n0", "n1")
RANK_3 = "rank 3 on n1 (device 1, NIC eth1)"


def verdicts(*findings: CheckFinding, missing: str = "") -> dict[str, str]:
    """By device, those that are not fit."""
    found = Qualification(NODES, findings, [Step("pairs", 1.0, missing)], devices_of([HEADER]))
    each = {f"{d.node} {d.shown}": found.of_device(d)[0] for d in found.devices}
    return {name: verdict for name, verdict in each.items() if verdict != "fit"}


def found_in(title: str, text: str, severity: str = "bad") -> list[CheckFinding]:
    end = {"event": "end", "exit_code": 0,
           "findings": [{"severity": severity, "title": title, "text": text}]}  # fmt: skip
    return list(of_run("pairs", Ended(0, [HEADER, end]), NODES))


def test_the_devices_are_those_that_ranks_drive() -> None:
    shared = {"rank": 4, "hostname": "n1", "nic": "eth1", "gpu": None}
    header = {**HEADER, "config": {"devices": [*HEADER["config"]["devices"], shared]}}
    found = devices_of([header])
    assert [each.shown for each in found] == ["NIC eth0", "GPU 0", "NIC eth1", "GPU 1"] * 2
    assert found[-2] == Device("n1", "NIC", "eth1", (3, 4))
    assert devices_of([{"event": "end"}]) == []


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], {}),
        (found_in("Slow", "NIC eth1 of n1 (rank 3), receiving: 4 x the 10 us"),
         {"n1 NIC eth1": "unfit"}),
        (found_in("Loses packets", "NIC eth1 of n1, receiving: 1 %", "doubtful"),
         {"n1 NIC eth1": "unfit"}),
        # By a rank that is slow its NIC and its GPU may be, or neither.
        (found_in("Slow", f"{RANK_3}, sending: 4 x the 10 us"),
         {"n1 NIC eth1": "not judged", "n1 GPU 1": "not judged"}),
        (found_in("", f"the GPU of {RANK_3} was throttled (power cap, power brake) at 4 KiB",
              "doubtful"),
         {"n1 GPU 1": "unfit"}),
        (found_in("", f"the GPU of {RANK_3} was throttled (power cap) at 4 KiB", "doubtful"), {}),
        # What is said of a whole node is said of all that it has.
        ([Finding(Severity.BAD, "preflight", "no rank started", evidence=Checked("n0"))],
         {"n0 NIC eth0": "not judged", "n0 GPU 0": "not judged",
          "n0 NIC eth1": "not judged", "n0 GPU 1": "not judged"}),
    ],
)  # fmt: skip
def test_a_device_is_unfit_by_what_is_said_of_it_alone(
    findings: Sequence[CheckFinding], expected: dict[str, str]
) -> None:
    assert verdicts(*findings) == expected


def test_what_was_not_looked_at_is_never_good_in_a_device() -> None:
    assert set(verdicts(missing="no time was left").values()) == {"not judged"}
    assert len(verdicts(missing="no time was left")) == 8


def test_a_throttled_gpu_makes_its_node_unfit() -> None:
    text = f"the GPU of {RANK_3} was throttled (thermal slowdown by hardware) at 4 KiB"
    found = Qualification(NODES, found_in("", text, "doubtful"), [], devices_of([HEADER]))
    assert [found.verdict(node) for node in NODES] == ["fit", "unfit"]
    devices = metrics(found, {})[1]
    values = {(labels["node"], labels["device"]): value for labels, value in devices.samples}
    assert values.pop(("n1", "GPU 1")) == 0
    assert set(values.values()) == {1}
    of_n1 = found.document()["nodes"][1]["devices"]
    assert of_n1[-1] == {"device": "GPU 1", "verdict": "unfit", "evidence": [f"pairs, GPU: {text}"]}

"""What of a plugin's log is shown by NCCL's variables and by ours."""

from __future__ import annotations

import pytest

from tcpx_mpi.plugin.log_choice import printed

ALL = (1 << 64) - 1
USUAL = 0x1 | 0x80 | 0x1000  # INIT, ENV, BOOTSTRAP


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, USUAL)),
        ({"NCCL_DEBUG": "VERSION"}, (1, USUAL)),
        ({"NCCL_DEBUG": "WARN"}, (2, USUAL)),
        ({"NCCL_DEBUG": "info"}, (3, USUAL)),
        ({"NCCL_DEBUG": "TRACE"}, (5, USUAL)),
        ({"NCCL_DEBUG": "loud"}, (0, USUAL)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": ""}, (3, USUAL)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}, (3, 0x10)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "init, net,TUNING"}, (3, 0x1 | 0x10 | 0x40)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}, (3, ALL)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "^NET,RAS"}, (3, ALL & ~0x10 & ~0x8000)),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NOSUCH"}, (3, 0)),
    ],
)
def test_nccls_variables_mean_what_they_mean_to_nccl(
    environ: dict[str, str], expected: tuple[int, int]
) -> None:
    assert printed(environ, debug=False) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (3, ALL)),
        ({"NCCL_DEBUG": "WARN"}, (3, ALL)),
        ({"NCCL_DEBUG": "TRACE"}, (5, ALL)),
        ({"NCCL_DEBUG_SUBSYS": "NET"}, (3, 0x10)),
    ],
)
def test_ours_is_at_least_info_of_all(environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert printed(environ, debug=True) == expected

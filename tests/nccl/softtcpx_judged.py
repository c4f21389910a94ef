"""Ranks over the softtcpx under test, on this machine's GPUs, and what their verdicts must be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpus as found_gpus
import pytest
from nccl_cases import REDUCING, case_of_bytes, programs_of
from nccl_session import NcclJob, NothingHere, over_softtcpx

from tcpx_mpi.plugin.find import bundled_dir

#: Read at import: a test sees none of the variables of the shell that started it. As in
#: tests/softtcpx it names the library under test; otherwise that is the one in the package.
_named = os.environ.get("TCPX_MPI_SOFTTCPX_LIB")
PLUGIN = os.path.abspath(_named or os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"))


def session(
    place: Path, ranks: int = 2, gpus: Sequence[int] | None = None, patience_s: float = 30.0,
    apart: bool = False, variables: Mapping[str, str] | None = None,
) -> NcclJob:  # fmt: skip
    """So many ranks, which share GPUs where there are too few; a skip says what is missing."""
    here = found_gpus.find()
    chosen = gpus if gpus is not None else [rank % here.count for rank in range(ranks)]
    opened = NcclJob(
        place, chosen, {**here.variables, **over_softtcpx(PLUGIN), **(variables or {})},
        patience_s=patience_s, apart=apart,
    )  # fmt: skip
    try:
        opened.facts()
    except NothingHere as nothing:
        opened.close()
        pytest.skip(f"needs nccl: {nothing}")
    except BaseException:
        opened.close()
        raise
    return opened


def require_right(verdicts: list[dict[str, Any]]) -> None:
    """No byte is wrong, and none was written beyond; or a failure with a line for each that is."""
    faults = [
        f"rank {each['rank']}, {each['case']}: {each['wrong']} of {each['checked']} bytes are wrong"
        f", the first of them byte {each['first']}; {each['beyond']} were written beyond"
        for each in verdicts if each["wrong"] or each["beyond"]
    ]  # fmt: skip
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def require_every_byte(opened: NcclJob, program: str, sizes: Sequence[int]) -> None:
    """Every byte of a program is right at each size, the largest last; a root a size."""
    world = opened.world
    if program not in programs_of(world):
        pytest.skip(f"{program} needs a power of 2, as in nccl-tests, and these are {world}")
    kind = "float32" if program in REDUCING else "uint8"
    verdicts = [
        each
        for seed, size in enumerate(sizes, 1)
        for each in opened.run(
            case_of_bytes(program, size, world, kind, seed=seed, root=seed % world)
        )
    ]
    assert sum(each["checked"] for each in verdicts) > sizes[-1]
    require_right(verdicts)

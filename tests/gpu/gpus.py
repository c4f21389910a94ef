"""The GPUs of this machine for tests, or the stand-in for them.

Without a real one the tests marked `stand_in` run on two GPUs of tests/fakecuda: slow, and of no
use for figures, but the same bytes go the same way. TESTS_GPUS=stand-in[:N] runs all tests so.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tcpx_mpi import _native
from tcpx_mpi.machine.topology import this_machine

FAKE_DRIVER = Path(__file__).parents[1] / "fakecuda" / "fake_driver.py"
CHOICE = "TESTS_GPUS"
#: Runs of other tests see none (tests/mpi/jobs.py).
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Where this names gpu, a real one must be there: see tests/conftest.py.
REQUIRE = "TCPX_MPI_REQUIRE"
STAND_IN = "stand-in"


@dataclass(frozen=True)
class Gpus:
    """How many there are, and what a process needs in its environment to have them."""

    count: int
    variables: dict[str, str]
    #: PCI addresses in CUDA's order.
    addresses: tuple[str, ...]
    real: bool
    #: Whether their memory can be handed over as a dma-buf.
    dma_buf: bool = True

    def sharing(self, ranks: int) -> tuple[str, ...]:
        """The option with which so many ranks can have a GPU each."""
        return ("--share-gpu",) if ranks > self.count else ()


@functools.cache
def find(or_stand_in: bool = False) -> Gpus:
    """Those to test on; without any, a skip, or the stand-in for two."""
    name, _, number = os.environ.get(CHOICE, "").partition(":")
    if name == STAND_IN:
        return stand_in(int(number or 2))
    try:
        devices = _native.cuda_devices()
    except _native.CudaUnavailable as error:
        if or_stand_in and "gpu" not in os.environ.get(REQUIRE, "").split(","):
            return stand_in(2)
        pytest.skip(f"needs gpu: {error}")
    if not this_machine().gpus:
        pytest.fail("CUDA shows GPUs that the topology of this machine has not")
    addresses = tuple(each["pci"] for each in devices)
    return Gpus(len(devices), {VISIBLE: os.environ.get(VISIBLE, _all(len(devices)))}, addresses,
                real=True, dma_buf=all(each["dma_buf"] for each in devices))  # fmt: skip


def stand_in(count: int) -> Gpus:
    """So many GPUs that are none."""
    driver = fake_driver()
    addresses = tuple(f"0000:{0x10 + number:02x}:00.0" for number in range(count))
    variables = driver.variables(driver.built(), count, **{VISIBLE: _all(count)})
    return Gpus(count, variables, addresses, real=False)


def _all(count: int) -> str:
    return ",".join(map(str, range(count)))


def fake_driver() -> ModuleType:
    """The module beside the stand-in; not by sys.path, where this process would find its CuPy."""
    spec = importlib.util.spec_from_file_location("fake_driver", FAKE_DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

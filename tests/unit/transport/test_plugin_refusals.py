"""Why a plugin does not start: one line that says what to do, and the exit code of that."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None, reason="needs compiler: plugins are built"
)

NATIVE = Path(__file__).parents[3] / "native"
#: A plugin of v9 whose table has but an init before that is called.
SOURCE = r"""
#include "net/abi_v9.h"
namespace {
int devices(int* count) { *count = COUNT; return 0; }
int properties(int, NetPropertiesV9* p) { *p = {"net0"}; return 0; }
int listen(int, void*, void**) { return 0; }
int connect(int, void*, void**, NetDeviceHandle**) { return 0; }
int accept(void*, void**, NetDeviceHandle**) { return 0; }
int reg_mr(void*, void*, size_t, int, void**) { return 0; }
int dereg_mr(void*, void*) { return 0; }
int isend(void*, void*, size_t, int, void*, void**) { return 0; }
int irecv(void*, int, void**, size_t*, int*, void**, void**) { return 0; }
int iflush(void*, int, void**, int*, void**, void**) { return 0; }
int test(void*, int*, int*) { return 0; }
int closing(void*) { return 0; }
int init(NetLogger logger);
}
extern "C" __attribute__((visibility("default"))) NetTableV9 ncclNetPlugin_v9 = {"lazy", init};
namespace {
int init(NetLogger logger) {
  if (SAYS) logger(kNetLogWarn, 1, "init", 1, "no licence was found");
  if (CODE) return CODE;
  ncclNetPlugin_v9 = {"lazy", init, devices, properties, listen, connect, accept, reg_mr, nullptr,
                      dereg_mr, isend, LACKS ? nullptr : irecv, iflush, LACKS ? nullptr : test,
                      closing, closing, closing};
  return 0;
}
}
"""
LOAD = """
import os, sys
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.transport.load_plugin import load_plugin
try:
    plugin = load_plugin(load_settings({"plugin": sys.argv[1]}, os.environ), os.environ)
    print(plugin.file.abi, plugin.devices)
except TcpxError as error:
    print(int(error.exit_code), error)
"""


def loaded(tmp_path: Path, count: int = 1, code: int = 0, says: int = 0, lacks: int = 0,
           **environ: str) -> str:  # fmt: skip
    """What becomes of such a plugin in a process of its own."""
    (tmp_path / "plugin.cc").write_text(SOURCE)
    library = tmp_path / "libnccl-net-lazy.so"
    macros = [f"-DCOUNT={count}", f"-DCODE={code}", f"-DSAYS={says}", f"-DLACKS={lacks}"]
    command = ["c++", "-std=c++17", "-shared", "-fPIC", f"-I{NATIVE}", *macros, "-o", library]
    subprocess.run([*command, tmp_path / "plugin.cc"], check=True, timeout=100)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, library], capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1  # one line
    return done.stdout.strip()


def test_an_init_that_fails_is_quoted(tmp_path: Path) -> None:
    said = loaded(tmp_path, code=3, says=1)
    assert said.startswith("4 ")
    assert said.endswith("init returned 3 (internal error): the plugin said: no licence was found")


def test_an_init_that_fails_without_a_word_can_be_made_to_talk(tmp_path: Path) -> None:
    said = loaded(tmp_path, code=2)
    assert said.startswith("4 ")
    assert "2 (system error); it gave no reason: UCCL_TCPX_DEBUG=1 shows what it logs" in said


def test_a_table_that_stays_incomplete_is_refused_by_the_names_of_its_entries(
    tmp_path: Path,
) -> None:
    said = loaded(tmp_path, lacks=1)
    assert said.startswith("4 ")
    assert "after init its table of v9 still has no irecv, test, which NCCL calls: use" in said


def test_no_devices_are_a_plugin_that_does_not_start(tmp_path: Path) -> None:
    said = loaded(tmp_path, count=0)
    assert said.startswith("4 ")
    assert "finds 0 devices" in said
    assert "whether the hardware that it drives is there" in said


def test_no_devices_by_a_selection_are_a_mistake_of_it(tmp_path: Path) -> None:
    said = loaded(tmp_path, count=0, NCCL_SOCKET_IFNAME="nosuch0")
    assert said.startswith("2 ")
    assert "NCCL_SOCKET_IFNAME" in said

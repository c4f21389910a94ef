"""`tcpx-mpi plugins`: what is here, what a run would choose, and why nothing can be chosen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode, PluginMissing
from tcpx_mpi.plugin import find

Captured = pytest.CaptureFixture[str]


def test_plugins_lists_what_is_here_and_what_a_run_would_choose(capsys: Captured) -> None:
    assert cli.main(["plugins", "--plugin", "null"]) == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = [line for line in lines if line.startswith("->")]
    assert len(chosen) == 1
    assert "libnccl-net-null.so" in chosen[0]
    assert "v7" in chosen[0]
    assert any("/usr/local/tcpx/lib64/libnccl-net-tcpx.so" in line for line in lines)
    assert any("run would choose" in line for line in lines)
    assert lines[-1].startswith("# device ")
    assert lines[-1].endswith(": host; device type HOST, forceFlush 0, regIsGlobal 0")


def test_plugins_tells_which_memory_each_device_takes(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for like, abi, said in (
        ("", "9", "host, CUDA; device type UNPACK, forceFlush 0, regIsGlobal 0"),
        ("direct", "9", "host, CUDA; device type HOST, forceFlush 1, regIsGlobal 1"),
        ("direct", "6", "host, CUDA; device type HOST, forceFlush 0, regIsGlobal 0"),
    ):
        monkeypatch.setenv("SOFTTCPX_LIKE", like)
        assert cli.main(["plugins", "--plugin", "softtcpx", "--abi", abi]) == 0
        assert capsys.readouterr().out.rstrip().endswith(f": {said}")
    assert cli.main(["plugins", "--plugin", "softtcpx", "--json"]) == 0
    (device, *_) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["cuda"], device["dma_buf"], device["device_type"]) == (True, False, "HOST")


def test_plugins_lists_a_file_that_is_named_by_its_path(capsys: Captured, tmp_path: Path) -> None:
    mine = shutil.copy(Path(find.bundled_dir()) / "libnccl-net-null.so", tmp_path / "libmine.so")
    assert cli.main(["plugins", "--plugin", str(mine)]) == 0
    chosen = [line for line in capsys.readouterr().out.splitlines() if line.startswith("->")]
    assert [line.split()[-1] for line in chosen] == [str(mine)]


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs compiler: a plugin is built")
@pytest.mark.parametrize(
    ("name", "hint"), [("libneeded.so.1", "LD_LIBRARY_PATH"), ("libcuda.so.1", "NVIDIA driver")]
)
def test_a_library_that_a_plugin_lacks_is_named_with_the_way_to_it(
    name: str, hint: str, tmp_path: Path
) -> None:
    needed, mine = tmp_path / name, tmp_path / "libmine.so"
    shared = ["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null"]
    # Under a name that no machine has.
    subprocess.run([*shared, f"-Wl,-soname,{name}.absent", "-o", str(needed)], check=True)
    depends = ["-x", "none", "-Wl,--no-as-needed", str(needed), "-o", str(mine)]
    subprocess.run([*shared, *depends], check=True)
    with pytest.raises(PluginMissing, match=f"{name}.absent.*{hint}"):
        find.inspect(find.find_plugin(str(mine), {}, find.bundled_dir()))


def test_plugins_says_in_json_why_nothing_can_be_chosen(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1")
    assert cli.main(["plugins", "--json"]) == ExitCode.PLUGIN_MISSING
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] is None
    assert "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME" in found["error"]
    assert {"softtcpx", "null", "tcpx"} <= {plugin["name"] for plugin in found["plugins"]}

"""The commands of docs/how-to/a3-high.md, between interfaces named as on an A3 High machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from jobs import SLOTS, run

from tcpx_mpi.launch import mpirun
from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "a3-high.md"
NAMESPACE = ["unshare", "--net", "--mount"]
#: A network and a /sys of their own, with eth0 to eth4 up.
MACHINE = """set -e
mount -t sysfs sysfs /sys
ip link set lo up
for i in 0 1 2 3 4; do
  ip link add eth$i type veth peer name far$i
  ip addr add 10.219.$i.1/24 dev eth$i
  ip link set far$i up
  ip link set eth$i up
done
"""


def commands() -> str:
    """Step 5 of the page, on 2 ranks here in place of two machines."""
    section = PAGE.read_text().split("## 5. The first row")[1]
    text = section.split("```")[1]
    text = text.replace("-hostfile hostfiles/tcpx.txt", "-n 2").replace("--plugin tcpx", "")
    small = f"--sizes 64K -n 4 --hdf5 o.h5 --spool spool --check-memory {SLOTS}"
    return text.replace("-b 1M -e 64M -f 2", small)


def test_the_commands_of_the_page_put_ranks_on_the_data_nics(place: Path) -> None:
    possible = subprocess.run(
        [*NAMESPACE, "bash", "-c", MACHINE], capture_output=True, text=True, check=False
    )
    if possible.returncode != 0:
        pytest.skip(f"needs netns: {possible.stderr.strip()}")
    script = place / "script"
    script.write_text(f"{MACHINE}\n{commands()}")
    bin_ = str(Path(mpirun.find_mpirun(os.environ)).parent)
    environ = {
        "PATH": os.pathsep.join([bin_, os.environ["PATH"]]),
        "UCCL_TCPX_PLUGIN_PATH": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "NCCL_SOCKET_IFNAME": "lo",  # the profile's interfaces go before it
    }
    result = run([*NAMESPACE, "bash", str(script)], place, environ)
    assert result.code == 0, result.text
    assert "# 2 messages: all right" in result.out
    found = read_run(str(place / "o.h5"))
    assert [info.nic for info in found.header.ranks] == ["eth1", "eth2"]
    assert found.header.ranks[0].plugin_cpus == "8-35,112-139"
    assert found.header.environment["OMPI_MCA_btl_tcp_if_include"] == "eth0"
    assert [row.wrong for row in result.rows] == [0]

"""docs/how-to/clusters.md, "Pods without ssh": its commands, one after the other, by a real podman.

Run by `make test SUITE=pods`; not collected by `make test`. Images, containers and
networks are kept in folders of the test's own.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import suites
import yaml
from jobs import table_row

from tcpx_mpi.records import read_run

TREE = Path(__file__).resolve().parents[2]
PAGE = (TREE / "docs" / "how-to" / "clusters.md").read_text()
SECTION = PAGE[PAGE.index("## Pods without ssh") :]
#: The blocks of the section: pods come up, are used, and go.
UP, USE, DOWN = (
    textwrap.dedent(block).strip().splitlines()
    for block in re.findall(r"```sh\n(.*?)```", SECTION, re.S)
)
LIMIT_S = 300.0


def shell(*lines: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Commands in one shell, in the tree, up to the first that fails."""
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=TREE, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Podman with folders of its own: what else it has on this machine is left alone."""
    if lacking := suites.missing(suites.SUITES["pods"]):
        pytest.skip(f"needs pods: {', '.join(need.what for need in lacking)} not found")
    folder = tmp_path_factory.mktemp("podman")
    storage, engine = folder / "storage.conf", folder / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    # Podman asks for 1048576 of both, which not every root may; crun for cgroups of one version.
    files = min(1 << 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1] % (1 << 63))
    engine.write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
        f'[engine]\nruntime = "runc"\ntmp_dir = "{folder}/tmp"\n'
        f'static_dir = "{folder}/root/libpod"\nvolume_path = "{folder}/volumes"\n'
        f'[network]\nnetwork_config_dir = "{folder}/networks"\n'
    )
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_CONF": str(engine),
    }


@pytest.fixture(scope="module")
def pods(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The pods of the page."""
    said = tmp_path_factory.mktemp("up") / "said"
    with said.open("w") as file:
        # Its `podman system service &` stays, in a process group by which it is ended.
        up = subprocess.Popen(
            ["bash", "-e", "-c", "\n".join(UP)],
            cwd=TREE, env=environ, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        assert up.wait(LIMIT_S) == 0, said.read_text()
        yield
        down = shell(*DOWN, environ=environ)
        assert down.returncode == 0, down.stdout + down.stderr
    finally:
        shell("podman pod rm --all --force", "podman rmi --all --force", "podman network prune -f",
              environ=environ)  # fmt: skip
        os.killpg(up.pid, signal.SIGTERM)


def used(word: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The one command of the page with this word in it."""
    (line,) = [line for line in USE if word in line]
    done = shell(line, environ=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.usefixtures("pods")
def test_a_preflight_finds_the_pods_alike(environ: dict[str, str]) -> None:
    lines = used("preflight", environ).stdout.splitlines()
    assert not [line for line in lines if line.startswith("FAILED")]
    (nodes,) = [line for line in lines if " nodes answered for " in line]
    assert nodes.endswith("2 nodes answered for 2 names")


@pytest.mark.usefixtures("pods")
def test_a_run_over_both_pods_is_one_file_with_every_byte_right(environ: dict[str, str]) -> None:
    done = used("run ring", environ)
    printed = [table_row(line) for line in done.stdout.splitlines() if re.match(r" +\d+ ", line)]
    assert len(printed) == 11, done.stdout
    assert {row.wrong for row in printed} == {0}, done.stdout
    file = TREE / "build" / "pods.h5"
    file.unlink(missing_ok=True)
    used("podman cp", environ)
    run = read_run(str(file))
    assert run.complete
    assert len(run.rows) == 11
    assert all(row.checked.all() and not row.wrong.any() for row in run.rows)
    ranks = run.header.ranks
    assert [info.host for info in ranks] == ["tcpx-node-0"] * 2 + ["tcpx-node-1"] * 2
    assert len({info.node for info in ranks}) == 2
    assert {info.nic for info in ranks} == {"eth1"}
    # The file is in the first pod alone: no disk is shared.
    there = shell("podman exec tcpx-node-1-ranks ls /tmp", environ=environ)
    assert there.returncode == 0, there.stderr
    assert "pods.h5" not in there.stdout


@pytest.mark.usefixtures("pods")
def test_nothing_is_left_running_in_either_pod(environ: dict[str, str]) -> None:
    for node in (0, 1):
        left = shell(
            f"podman exec tcpx-node-{node}-ranks bash -c 'cat /proc/[0-9]*/comm'", environ=environ
        )
        assert sorted(left.stdout.split()) == ["bash", "cat", "sleep"], left.stdout


# --- The plain Job of jobs/k8s, whose pods podman can play --------------------------------------

JOB = TREE / "jobs" / "k8s" / "job.yaml"
IN_POD = (
    "in_pod() { podman --url unix:///run/tcpx-mpi/podman.sock exec -i "
    '"tcpx-mpi-$1-ranks" "${@:2}"; }\n'
)


def job_pods(folder: Path) -> Path:
    """The pods that the Job would have, with its scripts: without GPUs, manager and kubectl."""
    documents = {each["kind"]: each for each in yaml.safe_load_all(JOB.read_text())}
    launch = documents["ConfigMap"]
    launch["data"]["in_pod"] = IN_POD
    launch["data"]["hosts"] = launch["data"]["hosts"].replace("slots=8", "slots=2")
    launch["data"]["run"] = launch["data"]["run"].replace("-e 1G", "-e 1M")
    pods = [launch]
    for index in (0, 1):
        (ranks,) = documents["Job"]["spec"]["template"]["spec"]["containers"]
        given = {item["name"]: item["value"] for item in ranks["env"]}
        given |= {"PLUGIN": "softtcpx", "PROFILE": "none", "JOB_COMPLETION_INDEX": str(index)}
        container = {
            "name": "ranks", "image": "localhost/tcpx-mpi:here", "imagePullPolicy": "IfNotPresent",
            "command": ranks["command"],
            "env": [{"name": name, "value": value} for name, value in given.items()],
            "volumeMounts": [
                {"name": "launch", "mountPath": "/etc/tcpx-mpi"},
                {"name": "engine", "mountPath": "/run/tcpx-mpi"},
                {"name": "results", "mountPath": "/results"},
            ],
        }  # fmt: skip
        volumes = [
            {"name": "launch", "configMap": {"name": "tcpx-mpi"}},
            {"name": "engine", "hostPath": {"path": "/run/tcpx-mpi", "type": "Directory"}},
            {"name": "results", "emptyDir": {}},
        ]
        pods.append(
            {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"tcpx-mpi-{index}"},
                "spec": {"containers": [container], "volumes": volumes, "restartPolicy": "Never"},
            }
        )  # fmt: skip
    path = folder / "job-pods.yaml"
    path.write_text(yaml.safe_dump_all(pods))
    return path


@pytest.mark.usefixtures("pods")
def test_the_job_for_kubernetes_ends_in_both_pods_with_the_verdict_of_its_run(
    environ: dict[str, str], tmp_path: Path
) -> None:
    played = job_pods(tmp_path)
    up = shell(
        "podman kube play --network tcpx-control:interface_name=eth0 "
        f"--network tcpx-data:interface_name=eth1 {played}",
        environ=environ,
    )
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        ended = shell("podman wait tcpx-mpi-0-ranks tcpx-mpi-1-ranks", environ=environ)
        said = shell("podman logs tcpx-mpi-0-ranks 2>&1", environ=environ).stdout
        assert ended.stdout.split() == ["0", "0"], said
        printed = [table_row(line) for line in said.splitlines() if re.match(r" +\d+ ", line)]
        assert len(printed) == 11, said
        assert {row.wrong for row in printed} == {0}, said
        file = tmp_path / "ring.h5"
        copied = shell(f"podman cp tcpx-mpi-0-ranks:/results/ring.h5 {file}", environ=environ)
        assert copied.returncode == 0, copied.stderr
        run = read_run(str(file))
        assert run.complete
        assert [info.host for info in run.header.ranks] == ["tcpx-mpi-0"] * 2 + ["tcpx-mpi-1"] * 2
    finally:
        shell(f"podman kube down {played}", environ=environ)


# --- In front of a job ----------------------------------------------------------------------------

INIT = TREE / "jobs" / "k8s" / "init-container.yaml"
MONITOR = json.loads((TREE / "jobs" / "k8s" / "node-problem-detector.json").read_text())


def guarded_pod(folder: Path, plugin: str) -> Path:
    """The pod whose init container is that of the page: without GPUs, and with this plugin."""
    pod = yaml.safe_load(INIT.read_text())
    spec = pod["spec"]
    del spec["volumes"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["image"] = "localhost/tcpx-mpi:here"
        container["imagePullPolicy"] = "IfNotPresent"
        for absent in ("env", "resources", "volumeMounts"):
            container.pop(absent, None)
    (fit,) = spec["initContainers"]
    fit["command"] = [plugin if word == "tcpx" else word for word in fit["command"]]
    path = folder / "init.yaml"
    path.write_text(yaml.safe_dump(pod))
    return path


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize(("plugin", "starts"), [("softtcpx", True), ("/none.so", False)])
def test_an_init_container_stops_a_pod_on_a_node_that_is_not_ready(
    plugin: str, starts: bool, environ: dict[str, str], tmp_path: Path
) -> None:
    played = guarded_pod(tmp_path, plugin)
    try:
        up = shell(f"podman kube play {played}", environ=environ)
        said = shell(
            "podman wait tcpx-mpi-fit-work; podman logs tcpx-mpi-fit-work", environ=environ
        )
        assert ("the job of this pod" in said.stdout) == starts, up.stdout + up.stderr + said.stderr
        why = shell("podman logs tcpx-mpi-fit-fit 2>&1", environ=environ).stdout
        assert ("FAILED" in why) != starts, why
    finally:
        shell(f"podman kube down {played}", environ=environ)


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize(("plugin", "code"), [("softtcpx", 0), ("/none.so", 1)])
def test_node_problem_detector_gets_one_line_and_its_codes(
    plugin: str, code: int, environ: dict[str, str], tmp_path: Path
) -> None:
    """The command of its rule, as it calls it: without arguments, its output cut."""
    shutil.copy(TREE / "jobs" / "node" / "check.sh", tmp_path)
    (tmp_path / "node.conf").write_text(f"VENV={sys.prefix} PLUGIN={plugin}\n")
    (rule,) = MONITOR["rules"]
    folder = Path(rule["path"]).parent
    done = shell(
        f"podman run --rm -v {tmp_path}:{folder}:ro localhost/tcpx-mpi:here {rule['path']}",
        environ=environ,
    )
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    if code == 0:
        assert line == MONITOR["conditions"][0]["message"]
    else:
        assert "/none.so): no such file" in line[: MONITOR["pluginConfig"]["max_output_length"]]

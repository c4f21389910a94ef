"""The jobs for Kubernetes: valid by its schemas, scripts that shellcheck takes, one verdict.

The MPIJob's own part has no schema on PyPI; its shell is held against one of ours. The scripts of
the plain Job run in real pods in tests/pods.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tcpx_mpi.cli.preflight import command as preflight_command
from tcpx_mpi.cli.run import command as run_command

K8S = Path(__file__).parents[2] / "jobs" / "k8s"
JOB, MPIJOB, INIT = K8S / "job.yaml", K8S / "mpijob.yaml", K8S / "init-container.yaml"
VERSION = "1.37"

#: Of kubeflow.org/v2beta1, as far as the file uses it; pod templates are validated as pods.
MPIJOB_SHELL = {
    "type": "object",
    "additionalProperties": False,
    "required": ["slotsPerWorker", "mpiReplicaSpecs"],
    "properties": {
        "slotsPerWorker": {"type": "integer", "minimum": 1},
        "sshAuthMountPath": {"type": "string", "pattern": "^/"},
        "mpiImplementation": {"enum": ["OpenMPI", "Intel", "MPICH"]},
        "runPolicy": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "cleanPodPolicy": {"enum": ["None", "Running", "All"]},
                "backoffLimit": {"type": "integer"},
                "activeDeadlineSeconds": {"type": "integer"},
            },
        },
        "mpiReplicaSpecs": {
            "type": "object",
            "additionalProperties": False,
            "required": ["Launcher", "Worker"],
            "properties": {
                name: {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["replicas", "template"],
                    "properties": {
                        "replicas": {"type": "integer", "minimum": 1},
                        "restartPolicy": {"enum": ["Never", "OnFailure"]},
                        "template": {"type": "object", "required": ["spec"]},
                    },
                }
                for name in ("Launcher", "Worker")
            },
        },
    },
}


def documents(path: Path) -> dict[str, Any]:
    """The documents of a file by their kind."""
    found = list(yaml.safe_load_all(path.read_text()))
    by_kind = {document["kind"]: document for document in found}
    assert len(by_kind) == len(found)
    return by_kind


def scripts() -> dict[str, str]:
    """The scripts of the plain Job's ConfigMap."""
    data: dict[str, str] = documents(JOB)["ConfigMap"]["data"]
    return data


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.mark.parametrize("path", [JOB, MPIJOB, INIT], ids=lambda path: path.stem)
def test_every_document_is_valid_for_kubernetes(path: Path) -> None:
    for kind, document in documents(path).items():
        if kind != "MPIJob":
            kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_mpijob_has_the_shell_of_its_operator_and_valid_pods() -> None:
    job = documents(MPIJOB)["MPIJob"]
    assert job["apiVersion"] == "kubeflow.org/v2beta1"
    jsonschema.validate(job["spec"], MPIJOB_SHELL)
    for replica in job["spec"]["mpiReplicaSpecs"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
        pod["spec"] = replica["template"]["spec"]
        kubernetes_validate.validate(pod, VERSION, strict=True)


def test_the_init_container_asks_for_what_the_ranks_of_the_job_have() -> None:
    (fit,) = documents(INIT)["Pod"]["spec"]["initContainers"]
    _, ranks = containers(documents(JOB)["Job"]["spec"]["template"])
    assert fit["image"] == ranks["image"]
    assert fit["resources"] == ranks["resources"]
    assert all(item in ranks["env"] for item in fit["env"])
    assert all(mount in ranks["volumeMounts"] for mount in fit["volumeMounts"])
    assert fit["command"][:2] == ["tcpx-mpi", "preflight"]
    context = preflight_command.make_context("preflight", fit["command"][2:])
    assert context.params["plugin"] == "tcpx"


def test_a_mistake_is_seen() -> None:
    job = documents(JOB)["Job"]
    job["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSION, strict=True)
    spec = documents(MPIJOB)["MPIJob"]["spec"]
    spec["slotsPerWorkers"] = 8
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec, MPIJOB_SHELL)


def test_manager_and_ranks_share_the_directory_of_its_sockets_and_it_is_a_sidecar() -> None:
    job = documents(JOB)["Job"]["spec"]["template"]
    worker = documents(MPIJOB)["MPIJob"]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    for template in (job, worker):
        manager, ranks = containers(template)
        assert manager["restartPolicy"] == "Always"
        for container in (manager, ranks):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert mounts["/run/tcpx"] == "tcpx"
        assert manager["args"][manager["args"].index("--uds_path") + 1] == "/run/tcpx"
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        for container in (manager, ranks):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    spec = documents(JOB)["Job"]["spec"]
    nodes = [line for line in scripts()["hosts"].splitlines() if line]
    (ranks,) = job["spec"]["containers"]
    count = {item["name"]: item["value"] for item in ranks["env"]}["NODES"]
    assert spec["completions"] == spec["parallelism"] == len(nodes) == int(count)


@pytest.mark.parametrize("name", ["run", "agent", "in_pod", "main"])
def test_scripts_are_ones_that_shellcheck_takes(name: str, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text("#!/bin/bash\n" + scripts()[name])
    done = subprocess.run(
        [str(Path(sys.prefix) / "bin" / "shellcheck"), "-e", "SC1091,SC2046", str(script)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("source", ["job", "mpijob"])
def test_the_command_line_of_tcpx_mpi_is_one_that_it_takes(source: str) -> None:
    if source == "job":
        text = scripts()["run"]
    else:
        launcher = documents(MPIJOB)["MPIJob"]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
        (text,) = containers(launcher)[0]["args"]
    words = shlex.split(text.replace("\\\n", " ").replace('"$PLUGIN"', "softtcpx"))
    start = max(index for index, word in enumerate(words) if word == "tcpx-mpi")
    assert words[start + 1] == "run"
    context = run_command.make_context("run", words[start + 2 :], resilient_parsing=True)
    assert context.args == []


FAKE_KUBECTL = """#!/bin/bash
# Finds pod INDEX by its label, and runs commands "there": by bash, with the files of that pod.
echo "$*" >>"$CALLS"
if [[ $1 = get ]]; then echo "pod/tcpx-mpi-${4##*=}-x7k2p"; exit; fi
[[ $1 = exec && $3 = pod/tcpx-mpi-1-x7k2p && $5 = ranks ]] || exit 9
shift 6
words=("${@//\\/tmp\\/tcpx-mpi./$PODS/1/tcpx-mpi.}")
exec "${words[@]}"
"""


@pytest.fixture
def pods(tmp_path: Path) -> dict[str, str]:
    """Scripts with paths of this test, a fake kubectl and mpirun, and the environment for them."""
    launch, programs = tmp_path / "launch", tmp_path / "bin"
    for folder in (launch, programs, tmp_path / "0", tmp_path / "1"):
        folder.mkdir()
    for name, text in scripts().items():
        (launch / name).write_text(text.replace("/etc/tcpx-mpi", str(launch)))
    for name, text in (
        ("kubectl", FAKE_KUBECTL),
        ("mpirun", '#!/bin/bash\necho "$@" >"$CALLS.mpirun"\nexit "$VERDICT"\n'),
        ("tcpx-mpi", "#!/bin/bash\necho -x A=1\n"),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}", "PODS": str(tmp_path), "NODES": "2",
        "CALLS": str(tmp_path / "calls"), "PLUGIN": "tcpx", "PROFILE": "a3-highgpu-8g",
        "CONTROL_NIC": "eth0",
    }  # fmt: skip


def start(index: int, pods: dict[str, str], **environ: str) -> subprocess.Popen[str]:
    main = Path(pods["PODS"]) / "launch" / "main"
    own = Path(pods["PODS"]) / f"main.{index}"
    own.write_text(
        main.read_text().replace(
            *(("/tmp/tcpx-mpi.", f"{pods['PODS']}/1/tcpx-mpi.") if index else ("", ""))
        )
    )
    return subprocess.Popen(
        ["bash", str(own)], env={**pods, **environ, "JOB_COMPLETION_INDEX": str(index)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("verdict", ["0", "9"])
def test_both_pods_end_with_the_exit_code_of_the_run(pods: dict[str, str], verdict: str) -> None:
    other = start(1, pods)
    # Pod 0 writes into the pod's own /tmp, which its script sees as /tmp too.
    first = start(0, pods, VERDICT=verdict)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == int(verdict), said
    other.communicate(timeout=60)
    assert other.returncode == int(verdict)
    passed = Path(pods["CALLS"] + ".mpirun").read_text()
    assert "-x A=1" in passed
    assert "run ring --plugin tcpx" in passed


def test_a_pod_that_never_answers_ends_the_job_with_a_line(pods: dict[str, str]) -> None:
    first = start(0, {**pods, "NODES": "3"}, VERDICT="0", PATIENCE_S="1")
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 4
    assert "pod 2 does not answer after 1 s" in said
    assert not Path(pods["CALLS"] + ".mpirun").exists()


def test_the_agent_runs_a_command_in_the_pod_of_a_hosts_number(pods: dict[str, str]) -> None:
    agent = Path(pods["PODS"]) / "launch" / "agent"
    done = subprocess.run(
        ["bash", str(agent), "-x", "-q", "tcpx-mpi-1", "echo", "$((40 + 2))", ";", "exit", "3"],
        env=pods, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "42\n")

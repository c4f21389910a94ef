"""Profiles: what they set and never override, which one fits, and what is wrong with a file."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

import machines
import pytest
from machines import GOLDEN, record_of

from tcpx_mpi import cli
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.cpu_bindings import (
    MAX_RANGES,
    RX_VARIABLE,
    TX_VARIABLE,
    bindings_in,
    bindings_text,
    parse_bindings,
    split_numa_node,
)
from tcpx_mpi.machine.topology import Topology
from tcpx_mpi.plugin.find import prepare_environment

A3 = machines.machine("a3-highgpu-8g")
SERVER = machines.machine("gpu-server")
LAPTOP = machines.machine("laptop")


def a3_profile() -> profiles.Profile:
    profile = profiles.find_profile("a3-highgpu-8g", A3)
    assert profile is not None
    return profile


# --- Which one ----------------------------------------------------------------------------------


def test_auto_is_the_profile_whose_machine_it_is_and_else_none() -> None:
    found = profiles.find_profile("auto", A3)
    assert found is not None
    assert found.source == "profile a3-highgpu-8g (auto)"
    assert profiles.find_profile("auto", SERVER) is None
    assert profiles.find_profile("auto", LAPTOP) is None
    assert profiles.find_profile("none", A3) is None


@pytest.mark.parametrize("lacking", ["a GPU", "a NIC", "a NIC that is up", "CPUs", "a NUMA node"])
def test_auto_wants_all_of_a_machine(lacking: str) -> None:
    eth3_down = [
        dataclasses.replace(nic, up=False) if nic.name == "eth3" else nic for nic in A3.nics
    ]
    changed = {
        "a GPU": dataclasses.replace(A3, gpus=A3.gpus[:7], pci_gpus=A3.pci_gpus[:7]),
        "a NIC": dataclasses.replace(A3, nics=A3.nics[1:]),
        "a NIC that is up": dataclasses.replace(A3, nics=tuple(eth3_down)),
        "CPUs": dataclasses.replace(A3, cpus=A3.cpus[:104]),
        "a NUMA node": dataclasses.replace(A3, numa_nodes=A3.numa_nodes[:1]),
    }[lacking]
    assert profiles.find_profile("auto", changed) is None


def test_a_process_that_may_use_one_gpu_is_still_on_the_machine_of_its_profile() -> None:
    found = profiles.find_profile("auto", dataclasses.replace(A3, gpus=A3.gpus[3:4]))
    assert found is not None
    assert found.source == "profile a3-highgpu-8g (auto)"


def test_a_machine_that_a_profile_was_made_for_is_told_which_nic_it_lacks() -> None:
    nics = {nic.name: nic for nic in A3.nics}
    down = {**nics, "eth3": dataclasses.replace(nics["eth3"], up=False, state="down")}
    absent = {name: nic for name, nic in nics.items() if name != "eth0"}
    said = [
        profiles.near_miss(dataclasses.replace(A3, nics=tuple(each.values())))
        for each in (down, absent)
    ]
    fits = "profile a3-highgpu-8g fits but for its NICs"
    assert said == [f"{fits}: NIC eth3 down", f"{fits}: no NIC eth0"]
    assert [profiles.near_miss(other) for other in (SERVER, LAPTOP)] == ["", ""]


def test_every_shipped_profile_has_a_signature_by_which_auto_finds_it() -> None:
    assert profiles.undated() == ["a3-highgpu-8g", "a3-megagpu-8g"]
    for name in profiles.shipped():
        profile = profiles.find_profile(name, A3)
        assert profile is not None
        assert profile.signature
        assert profile.about


def test_a_machine_with_eight_data_nics_is_a3_mega_though_it_has_all_that_a3_high_has() -> None:
    eth4 = next(nic for nic in A3.nics if nic.name == "eth4")
    more = tuple(dataclasses.replace(eth4, name=f"eth{n}") for n in range(5, 9))
    found = profiles.find_profile("auto", dataclasses.replace(A3, nics=(*A3.nics, *more)))
    assert found is not None
    assert found.source == "profile a3-megagpu-8g (auto)"
    variables = dict(found.variables(A3))
    assert variables["NCCL_FASTRAK_IFNAME"] == ",".join(f"eth{n}" for n in range(1, 9))
    assert variables["NCCL_FASTRAK_CTRL_DEV"] == "eth0"
    assert not [name for name in variables if "GPUDIRECTTCPX" in name]


def test_a_dated_recipe_has_its_versions_and_is_never_found_by_itself() -> None:
    new, old = profiles.recipes()
    assert (new.source, old.source) == (
        "profile a3-highgpu-8g@2026-06-22",
        "profile a3-highgpu-8g@2024-02",
    )
    assert new.versions == {"plugin": "3.1.12", "manager": "2.0.15", "nccl": "2.19.4"}
    assert old.versions == {"plugin": "3.1.9", "manager": "2.0.12", "nccl": "2.19.3"}
    changed = {
        name for name, value in new.variables(A3) if dict(old.variables(A3)).get(name) != value
    }
    assert changed == {"NCCL_ALGO"}
    own = dict(a3_profile().variables(A3))
    assert own["NCCL_NSOCKS_PERTHREAD"] == "2"
    assert dict(new.variables(A3))["NCCL_NSOCKS_PERTHREAD"] == "4"


def test_a_family_that_no_plugin_is_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"family \(ib\) is unknown: use tcpx or fastrak"):
        profiles.parse_profile("p.toml", "profile p.toml", {"family": "ib"})


# --- What it sets -------------------------------------------------------------------------------


def test_the_environment_of_an_a3_machine() -> None:
    lines = [f"{name}={value}" for name, value in a3_profile().variables(A3)]
    assert "\n".join(lines) + "\n" == (GOLDEN / "a3-highgpu-8g.env.txt").read_text()


def test_what_the_user_has_set_is_left_and_its_source_said() -> None:
    environ = {"NCCL_NSOCKS_PERTHREAD": "4", "NCCL_GPUDIRECTTCPX_CTRL_DEV": " ", TX_VARIABLE: "x"}
    found = {
        name: (value, source)
        for name, value, source in profiles.environment_of(a3_profile(), A3, environ)
    }
    assert found["NCCL_NSOCKS_PERTHREAD"] == ("4", "environment")
    assert found[TX_VARIABLE] == ("x", "environment")
    # Set to nothing is not set.
    assert found["NCCL_GPUDIRECTTCPX_CTRL_DEV"] == ("eth0", "profile a3-highgpu-8g")
    assert profiles.environment_of(None, A3, environ) == []


def test_mpi_is_kept_on_the_control_nic_unless_the_user_has_said_otherwise() -> None:
    environ = {"OMPI_MCA_btl_tcp_if_include": "eth5"}
    profiles.keep_mpi_on_control_nic("auto", A3, environ)
    assert environ["OMPI_MCA_btl_tcp_if_include"] == "eth5"
    assert environ["OMPI_MCA_oob_tcp_if_include"] == "eth0"
    assert environ["PRTE_MCA_prte_if_include"] == "eth0"
    sources = {
        name: source for name, _, source in profiles.environment_of(a3_profile(), A3, environ)
    }
    assert sources["OMPI_MCA_btl_tcp_if_include"] == "environment"
    # Set before by the profile itself: no user's.
    assert sources["PRTE_MCA_prte_if_include"] == "profile a3-highgpu-8g"


def test_a_rank_knows_what_the_profile_had_set_for_its_mpirun() -> None:
    environ: dict[str, str] = {}
    profiles.keep_mpi_on_control_nic("auto", A3, environ)
    del environ["PRTE_MCA_prte_if_include"]  # which mpirun keeps for itself
    profiles.keep_mpi_on_control_nic("auto", A3, environ)
    sources = [source for _, _, source in profiles.environment_of(a3_profile(), A3, environ)]
    assert set(sources) == {"profile a3-highgpu-8g"}


@pytest.mark.parametrize(("spec", "topology"), [("auto", LAPTOP), ("a3-highgpu-8g", SERVER),
                                                ("nonsense", A3), ("none", A3)])  # fmt: skip
def test_where_no_profile_holds_mpi_is_left_alone(spec: str, topology: Topology) -> None:
    environ: dict[str, str] = {}
    profiles.keep_mpi_on_control_nic(spec, topology, environ)
    assert environ == {}


def prepared(chunk: str, profile: str, **environ: str) -> tuple[str, str, str]:
    settings = load_settings({"pattern": "ring", "chunk": chunk}, environ)
    variables = [("NCCL_DYNAMIC_CHUNK_SIZE", profile, "profile x"), ("NCCL_A", "1", "profile x")]
    first, *others = prepare_environment(settings, environ, variables)
    assert others == [("NCCL_A", "1", "profile x")]
    return first


def test_a_profiles_chunk_size_holds_unless_it_is_too_small_or_the_user_has_one() -> None:
    name = "NCCL_DYNAMIC_CHUNK_SIZE"
    assert prepared("64K", "524288") == (name, "524288", "profile x")
    assert prepared("1M", "524288") == (name, "1048576", "derived from --chunk")
    found = prepared("64K", "524288", NCCL_DYNAMIC_CHUNK_SIZE="65536")
    assert found == (name, "65536", "environment")


def test_the_page_of_a3_machines_has_what_the_profile_sets_and_where_it_puts_ranks() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "a3-high.md").read_text()
    assert "was not run on A3 hardware" in page
    assert (GOLDEN / "a3-highgpu-8g.placement.txt").read_text() in page
    for name, value in a3_profile().variables(A3):
        assert name in page or name == RX_VARIABLE
        assert value in page or name in (TX_VARIABLE, RX_VARIABLE)


# --- A profile and a machine that do not fit ----------------------------------------------------


def test_a_nic_that_is_absent_or_down_is_named_with_its_node() -> None:
    with pytest.raises(UsageError, match=r"profile a3-highgpu-8g: hostA has no NIC eth0"):
        a3_profile().require(SERVER, "hostA")
    down = [
        dataclasses.replace(nic, up=False, state="down") if nic.name == "eth2" else nic
        for nic in A3.nics
    ]
    with pytest.raises(UsageError, match=r"hostA has NIC eth2 down"):
        a3_profile().require(dataclasses.replace(A3, nics=tuple(down)), "hostA")
    a3_profile().require(A3, "hostA")


def test_a_cpu_that_the_machine_or_its_cgroup_lacks_is_named() -> None:
    limits = dataclasses.replace(A3.limits, cpuset=tuple(range(104)))
    with pytest.raises(UsageError, match=r"hostA has no CPU 112 for the tx_bindings of eth1 \(it"):
        a3_profile().require(dataclasses.replace(A3, limits=limits), "hostA")


# --- Files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("controlnic = 'eth0'", "controlnic is no part of a profile"),
        ("control_nic = 1", "control_nic (1) is no text"),
        ("data_nics = 'eth1'", "data_nics (eth1) is no list"),
        ("data_nics = ['']", "data_nics"),
        ("data_nics = ['a']\nnic_of_gpu = ['b']", "nic_of_gpu has b"),
        ("[signature]\ngpu = 1", "signature.gpu is unknown"),
        ("[signature]\ngpus = '1'", "no table of whole numbers"),
        ("[signature]\ngpus = true", "no table of whole numbers"),
        ("[environment]\nNCCL_A = 1", "no table of texts"),
        ("data_nics = ['a']\n[tx_bindings]\nb = '1-2'", "tx_bindings.b is not in data_nics"),
        ("data_nics = ['a']\n[rx_bindings]\na = '2-1'", "rx_bindings.a (2-1) is no list of CPUs"),
        ("data_nics = ['a']\n[rx_bindings]\na = ''", "rx_bindings.a () is no list of CPUs"),
        ("tx_bindings = 'other'", "tx_bindings (other)"),
        ("[signature", "is no TOML"),
    ],
)
def test_a_bad_profile_is_named_with_its_key(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        profiles.find_profile(str(path), A3)
    assert str(path) in str(caught.value)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="a3-megagpu-8g, auto, none"):
        profiles.find_profile("a3", A3)
    with pytest.raises(UsageError, match=r"--profile: /no/such\.toml: no such file"):
        profiles.find_profile("/no/such.toml", A3)


# --- Bindings -----------------------------------------------------------------------------------


def test_bindings_are_written_as_ranges_only_and_read_back() -> None:
    bindings = {"eth1": (8, 9, 10, 112), "eth2": (3,)}
    assert bindings_text(bindings) == "eth1:8-10,112-112;eth2:3-3"
    assert parse_bindings("X", bindings_text(bindings)) == bindings


def test_of_more_ranges_than_tcpx_reads_the_longest_are_written() -> None:
    cpus = (2, *(cpu for start in range(0, 100, 10) for cpu in range(start, start + 2)))
    text = bindings_text({"eth1": cpus})
    assert text.count("-") == MAX_RANGES
    assert text.startswith("eth1:0-2,")


@pytest.mark.parametrize("text", ["eth1", "eth1:8", "eth1:8-9,10", ":1-2", "eth1:2-1", "eth1:"])
def test_what_tcpx_could_not_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"{TX_VARIABLE} .*ranges only"):
        parse_bindings(TX_VARIABLE, text)


def test_a_ninth_range_is_refused() -> None:
    text = "eth1:" + ",".join(f"{cpu}-{cpu}" for cpu in range(0, 18, 2))
    with pytest.raises(UsageError, match="has 9 ranges"):
        parse_bindings(RX_VARIABLE, text)


def test_sending_and_receiving_count_together() -> None:
    environ = {TX_VARIABLE: "eth1:1-2", RX_VARIABLE: "eth1:5-5;eth2:7-7"}
    assert bindings_in(environ) == {"eth1": (1, 2, 5), "eth2": (7,)}
    assert bindings_in({}) == {}


@pytest.mark.parametrize("topology", [A3, SERVER], ids=["a3-highgpu-8g", "gpu-server"])
@pytest.mark.parametrize("numa_node", [0, 1])
def test_a_numa_node_is_split_by_cores_within_the_cgroup(
    topology: Topology, numa_node: int
) -> None:
    parts = split_numa_node(topology, numa_node)
    assert all(parts)
    allowed = set(topology.limits.cpuset or topology.cpus)
    for core in topology.cores:
        assert sum(bool(set(core) & set(part)) for part in parts) <= 1
    for part in parts:
        assert set(part) <= set(topology.cpus_of(numa_node)) & allowed


def test_two_cores_are_not_split() -> None:
    ours, sending, receiving = split_numa_node(machines.flat(2), 0)
    assert (ours, sending, receiving) == ((0, 1), (), ())


# --- tcpx-mpi env -------------------------------------------------------------------------------

Captured = pytest.CaptureFixture[str]
FROM_A3 = ("--from", record_of("a3-highgpu-8g"))


HOSTILE_NAMES = ("A=1; touch X; B", "A B", "A\\nB", "1A", "", "A-B", "$(touch X)", "A=", "\u00c4")
OF_SHELLS = ("PATH", "BASH_ENV", "PROMPT_COMMAND", "LD_PRELOAD", "BASH_FUNC_ls", "PS4", "IFS")


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, *OF_SHELLS])
@pytest.mark.parametrize("form", ["shell", "mpirun", "json"])
def test_no_name_of_a_file_becomes_shell(
    name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.toml").write_text(f'[environment]\n"{name}" = "1"\n')
    assert cli.main(["env", "--profile", str(tmp_path / "p.toml"), "--format", form]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert f"{tmp_path}/p.toml: environment" in error


def test_no_value_and_no_path_of_a_file_becomes_shell(tmp_path: Path) -> None:
    value = "a'$(touch v)'`touch w`\"\ntouch x"
    place = tmp_path / "a\ntouch y\n; touch z"
    place.mkdir()
    (place / "p.toml").write_text(f"[environment]\nNCCL_A = {json.dumps(value)}\n")
    (tmp_path / "here").mkdir()
    script = 'eval "$("$0" -m tcpx_mpi env --profile "$1")" && printf %s "$NCCL_A"'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, str(place / "p.toml")], cwd=tmp_path / "here",
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == value
    assert not list((tmp_path / "here").iterdir())


def test_env_for_a_shell_is_quoted_and_says_its_sources(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NSOCKS_PERTHREAD", "4")
    assert cli.main(["env", *FROM_A3]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    assert all(export == "export" and "=" in pair for export, pair in words)
    assert any(pair.startswith(f"{TX_VARIABLE}=eth1:8-21,112-125;eth2:") for _, pair in words)
    assert "export NCCL_NSOCKS_PERTHREAD=4  # environment" in lines


def test_env_for_mpirun_is_made_of_x_options(capsys: Captured) -> None:
    assert cli.main(["env", "--profile", "a3-highgpu-8g", "--format", "mpirun"]) == 0
    output, errors = capsys.readouterr()
    words = output.split()  # as $(...) splits it
    assert words[::2] == ["-x"] * (len(words) // 2)
    assert "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,eth3,eth4" in words[1::2]
    assert "OMPI_MCA_btl_tcp_if_include=eth0" in words[1::2]
    # mpirun's own cannot go by -x.
    assert not any("PRTE_MCA" in word for word in words)
    assert "export PRTE_MCA_prte_if_include=eth0" in errors


def test_env_in_json_has_name_value_and_source(capsys: Captured) -> None:
    assert cli.main(["env", *FROM_A3, "--format", "json"]) == 0
    found = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert found["NCCL_DYNAMIC_CHUNK_SIZE"] == {
        "name": "NCCL_DYNAMIC_CHUNK_SIZE",
        "value": "524288",
        "source": "profile a3-highgpu-8g (auto)",
    }


def test_env_where_no_profile_fits_prints_nothing_and_says_so(capsys: Captured) -> None:
    assert cli.main(["env", "--from", record_of("laptop")]) == 0
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors == "# no profile: none fits this machine, of a3-highgpu-8g, a3-megagpu-8g\n"


def test_a_diff_names_what_differs_from_the_environment_or_from_another_profile(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = ["--from", record_of("a3-highgpu-8g")]
    recipe = profiles.find_profile("a3-highgpu-8g@2026-06-22", A3)
    assert recipe is not None
    for name, value in recipe.variables(A3):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NCCL_NSOCKS_PERTHREAD", "2")
    monkeypatch.delenv("NCCL_ALGO")
    dated = ["env", "--profile", "a3-highgpu-8g@2026-06-22", *machine]
    assert cli.main([*dated, "--diff"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["#", "variable", "a3-highgpu-8g@2026-06-22", "here"],
        ["NCCL_ALGO", "Ring,Tree", "not", "set"],
        ["NCCL_NSOCKS_PERTHREAD", "4", "2"],
        ["#", "2", "of", "22", "variables", "differ"],
    ]
    assert cli.main([*dated, "--diff", "a3-highgpu-8g@2024-02"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["NCCL_ALGO", "Ring,Tree", "Ring"]
    # A terminal that is narrower than the table.
    monkeypatch.setattr("tcpx_mpi.cli.env.terminal_columns", lambda: 40)
    assert cli.main([*dated, "--diff", "a3-highgpu-8g@2024-02"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "NCCL_ALGO: Ring,Tree | Ring"


def test_bad_input_of_env_is_one_line(capsys: Captured, tmp_path: Path) -> None:
    spaced = tmp_path / "spaced.toml"
    spaced.write_text('[environment]\nNCCL_A = "a b"\n')
    for argv, part in (
        (["--format", "xml"], "--format (xml)"),
        (["--profile", "a4"], "--profile (a4)"),
        (["--profile", str(spaced), "--format", "mpirun"], "NCCL_A (a b"),
    ):
        assert cli.main(["env", *argv]) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        assert errors.count("\n") == 1
        assert part in errors

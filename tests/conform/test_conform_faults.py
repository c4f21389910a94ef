"""A plugin with one fault: its clause is red, what needs it is not tried, and no other is red."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpus
import pytest
import refplugin_build
from conform_command import LIMIT_S, NO_GPU, Found, conform
from try_faults import built_on

from tcpx_mpi.conform import flushing, gpu_memory
from tcpx_mpi.conform.table import BY_NAME

SOURCE = Path(__file__).parent / "faulty" / "faulty.cc"
DRIVER = Path(__file__).with_name("try_faults.py")

#: The fault, the clause that it breaks, and a part of what is said of it.
FAULTS = [
    ("no-name", "table", "its table has no name"),
    ("entry-missing", "init", "after init its table has no irecv"),
    ("init-crashes", "init", "init: the plugin has crashed by SIGABRT"),
    ("no-devices", "devices", "it has 0 devices"),
    ("unwritten", "properties-written", "not written: maxComms"),
    ("other-layout", "properties-plausible", "maxComms is 0, maxRecvs is 0"),
    ("other-unpack", "properties-plausible", "netDeviceVersion is 8, where NCCL unpacks 7"),
    ("endless-message", "properties-plausible", "maxP2pBytes is 18446744073709551615"),
    ("name-changes", "strings", "its name or pciPath has changed"),
    ("type-without-entries", "device-entries", "its netDeviceType is UNPACK, without getDeviceMr"),
    ("dma-buf-bit", "dma-buf", "ptrSupport has DMABUF, and regMrDmaBuf is NULL"),
    ("second-init-fails", "second-init", "of another communicator, returned 3"),
    ("no-finalize", "finalize", "finalize is NULL"),
    ("one-context", "contexts", "listen returned 3"),
    ("loaded-once", "load-again", "init returned 2"),
    ("ends-for-good", "load-again", "where its library stays mapped: init returned 2"),
    ("v-device-fails", "virtual-device", "make_v_device returned 3"),
    ("fused-half", "fused-devices", "made of devices 0 and 1 says vProps (1, 0)"),
    ("attributes-refused", "attributes", "set_net_attr returned 5"),
    ("long-handle", "listen", "listen wrote 130 bytes of handle: there are 128"),
    ("connect-refuses", "connect", "connect returned 2"),
    ("connect-hangs", "connect", "hangs: connect did not end within"),
    ("connect-impatient", "connect-first", "connect returned 6"),
    ("accept-early", "accept-first", "accept came to a comm before anyone had connected"),
    ("accept-waits-on", "accept-first", "connect did not come to a comm while accept waited"),
    ("accept-exits", "accept-first", "the plugin has ended this process by exit(7)"),
    ("device-handle-given", "device-handles", "connect gave a device handle"),
    ("buffer-a-comm", "one-bounce-buffer", ", and another 0x"),
    ("buffer-a-device", "one-bounce-buffer", ", and one of device 1 0x"),
    ("odd-refused", "register", "reg_mr returned 4"),
    ("twice-refused", "register-twice", "reg_mr returned 4"),
    ("region-narrows", "register-large", "reg_mr returned 4"),
    ("garbles", "message", "1 of 4096 bytes of a message are wrong, the first is 2048"),
    ("empty-never-done", "sizes", "not every request was done"),
    ("early-lost", "send-first", "not every request was done"),
    ("spills", "neighbours", "1 bytes before a message of 1 at 4097 were written"),
    ("overwrites", "shorter", "bytes behind a message of 1000 bytes were written"),
    ("wrong-size", "reported-size", "test reports 16384 bytes of a receive of 1000"),
    ("no-sizes", "reported-size", "test does not write the size of a receive: NCCL then"),
    ("completes-twice", "done-once", "a receive was done before its message was sent"),
    ("reorders", "order", "bytes of a message are wrong"),
    ("odd-places", "in-flight", "bytes of a message are wrong"),
    ("seventeenth-lost", "full", "not every request was done"),
    ("one-request", "full", "it has room for 1 requests: NCCL has 8"),
    ("full-fails", "full", "irecv number 2 returned 3: full is 0 and a NULL request"),
    ("leaks-requests", "released", "was busy (a NULL request), and took nothing"),
    ("wraps", "many-messages", "bytes of a message are wrong"),
    ("one-comm", "several-comms", "not every request was done"),
    ("rarely-wrong", "comm-after-comm", "bytes of a message are wrong"),
    ("not-reentrant", "two-threads", " returned 3"),
    ("two-crash", "two-threads", " by 2 threads: the plugin has crashed by SIGSEGV"),
    ("two-hang", "two-threads", " by 2 threads did not end within"),
    ("group-refused", "grouped", "irecv returned 4"),
    ("tags-ignored", "tags", "bytes of a message are wrong"),
    ("optional-crashes", "optional-completion", "irecv: the plugin has crashed by SIGABRT"),
    ("phandle-refused", "phandle", "isend returned 4"),
    ("profiler-stray", "profiler", "profFunction was called with a handle that is NULL"),
    ("flush-never-done", "flush", "iflush did not end within"),
    ("flush-spoils", "flush", "1 of 4096 bytes of a message are wrong, the first is 4095"),
    ("flush-spills", "flush", "1 bytes behind a message of 4096 at 4096 were written"),
    ("flush-writes-sizes", "flush", "test: the plugin has crashed by SIGSEGV"),
    ("flush-once", "flush-unasked", "iflush returned 3"),
    ("flush-whole-only", "flush-sizes", "iflush returned 4"),
    ("flush-empty-refused", "flush-empty", "iflush returned 4"),
    ("flush-one-only", "flush-several", "iflush returned 5"),
    ("flush-closed-fails", "flush-closed", "iflush returned 6"),
    ("end-refused", "register-whole", "reg_mr returned 4"),
    ("odd-gpu-refused", "register-odd", "reg_mr returned 4"),
    ("stale-region", "register-reused", "of memory that came to the address of what was freed"),
    ("freed-taken", "register-freed", "regMr took memory of a GPU that was freed"),
    ("freed-closes", "register-freed", "has closed a descriptor"),
    ("host-as-gpu-lost", "register-host-as-gpu", " bytes are wrong of or around a message of 4096"),
    ("dma-buf-late", "dma-buf-message", "isend returned 3"),
    ("dma-buf-offset-refused", "dma-buf-offset", "reg_mr_dma_buf returned 4"),
    ("dma-buf-any", "dma-buf-closed", "regMrDmaBuf took a descriptor that is closed"),
    ("one-gpu", "two-gpus", "reg_mr returned 4"),
    ("message-narrows", "large-message", "isend returned 4"),
    ("lost-sender-silent", "lost-sender", "test told nothing of the peer's death"),
    ("lost-receiver-silent", "lost-receiver", "neither isend nor test told of the peer's death"),
    ("bye-ignored", "closed-sender", "hangs: test after the sender has closed did not"),
    ("close-order-hangs", "close-order", "hangs: close_recv did not end within"),
    ("close-unused-fails", "close-unused", "close_listen returned 3"),
    ("close-pending-crashes", "close-pending", "close_recv with requests in flight: the plugin"),
    ("leaks-descriptors", "given-back", "descriptors more after"),
]
#: These are tried in memory of a GPU, the others in the host's.
OF_GPUS = {clause.name for clause in (*flushing.CLAUSES, *gpu_memory.CLAUSES)}
#: Of a call that never returns, and the clause that comes to it first.
HANGS = {
    "init-hangs": "init",
    "connect-hangs": "connect",
    "accept-hangs": "connect",
    "register-hangs": "register",
    "bye-ignored": "closed-sender",
    "close-order-hangs": "close-order",
}
#: Of a clause; what hangs takes that long.
DEADLINE_S = "4"
#: By fault, then by clause, the verdict and its reason.
Verdicts = dict[str, dict[str, tuple[str, str]]]
#: So many faults are tried at the same time.
AT_ONCE = 4


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return refplugin_build.build(tmp_path_factory.mktemp("faulty"), SOURCE)


def test_each_clause_has_a_fault() -> None:
    assert {clause for _, clause, _ in FAULTS} == set(BY_NAME)


def test_an_odd_property_keeps_from_being_tried_what_reads_it_alone() -> None:
    of_devices_made = {"virtual-device", "fused-devices"}
    assert built_on("properties-plausible") == of_devices_made
    assert built_on("properties-written") == of_devices_made | {"properties-plausible"}


def test_without_a_fault_every_clause_holds(plugin: Path, tmp_path: Path) -> None:
    found = conform(tmp_path, str(plugin), "--quick")
    assert found.code == 0, found.out
    without = {name for name, verdict in found.verdicts().items() if verdict != "pass"}
    assert without == {
        "device-entries",
        "dma-buf",
        "one-bounce-buffer",
        "large-message",
        "many-messages",
        *OF_GPUS,
    }, found.out


def test_without_a_fault_every_clause_of_a_gpus_memory_holds(plugin: Path, tmp_path: Path) -> None:
    two = {**gpus.stand_in(2).variables, "FAULTY_MEMORY": "cuda"}
    found = conform(tmp_path, str(plugin), "--memory", "cuda", "--quick", **two)
    assert found.code == 0, found.out
    verdicts = found.verdicts()
    assert {verdicts[clause] for clause in OF_GPUS} == {"pass"}, found.out


@pytest.mark.parametrize(
    ("of", "clause", "said"),
    [
        ("receiver-first", "send-first", "isend is busy until there is a receive"),
        ("receiver-first", "full", " requests, then busy"),
        ("unpacks", "one-bounce-buffer", "of 3 comms, of two devices"),
        ("unpacks", "strings", "the strings stay as they are"),
    ],
)
def test_a_plugin_of_another_kind_keeps_the_contract(
    of: str, clause: str, said: str, plugin: Path, tmp_path: Path
) -> None:
    found = conform(tmp_path, str(plugin), "--only", clause, FAULT=of)
    assert found.code == 0, found.out
    assert said in found.reasons()[clause]


def test_a_plugin_that_looks_for_the_current_gpu_in_init_finds_one(
    plugin: Path, tmp_path: Path
) -> None:
    which = ("--only", "message", "--memory", "host")
    two = {**gpus.stand_in(2).variables, "FAULT": "needs-a-gpu"}
    found = conform(tmp_path, str(plugin), *which, **two)
    assert found.code == 0, found.out
    without = conform(tmp_path, str(plugin), *which, **(two | NO_GPU))
    assert "the plugin has crashed by" in without.reasons()["init"], without.out


@pytest.fixture(scope="module")
def hung(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Found, str]]:
    """By fault, what was found and the mark of its processes; all at once: they wait."""

    def tried(fault: str) -> tuple[Found, str]:
        folder = tmp_path_factory.mktemp(fault)
        mark = f"{fault} of {folder}"
        which = ("--only", HANGS[fault], "--deadline", "2")
        return conform(folder, str(plugin), *which, FAULT=fault, CONFORM_MARK=mark), mark

    with ThreadPoolExecutor(len(HANGS)) as pool:
        return dict(zip(HANGS, pool.map(tried, HANGS), strict=True))


@pytest.mark.parametrize("fault", HANGS)
def test_a_plugin_that_hangs_ends_the_clause_and_leaves_no_process(
    fault: str, hung: dict[str, tuple[Found, str]]
) -> None:
    found, mark = hung[fault]
    reason = found.reasons()[HANGS[fault]]
    assert reason.startswith("hangs: "), reason
    assert reason.endswith(" did not end within 2 s"), reason
    assert not list(processes_with(f"CONFORM_MARK={mark}"))


def processes_with(variable: str) -> Iterator[str]:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in environ.read_bytes().split(b"\0"):
                yield environ.parent.name


def verdicts_of(plugin: Path, faults: dict[str, str]) -> Verdicts:
    """Of what is tried, by fault, around its clause; several at once: it is mostly waiting."""
    two = {**os.environ, **gpus.stand_in(2).variables, "FAULTY_MEMORY": "cuda"}
    of_gpus = [tried for tried, clause in faults.items() if clause in OF_GPUS]
    of_host = [tried for tried, clause in faults.items() if clause not in OF_GPUS]
    parts = [
        subprocess.Popen(
            [sys.executable, str(DRIVER), str(plugin), memory, DEADLINE_S, *tried[part::AT_ONCE]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
        )
        for memory, environ, tried in (
            ("host", {**os.environ, **NO_GPU}, of_host), ("cuda", two, of_gpus),
        )
        for part in range(AT_ONCE)
    ]  # fmt: skip
    found = {}
    for part in parts:
        out, err = part.communicate(timeout=LIMIT_S)
        assert part.returncode == 0, err
        found.update(json.loads(line) for line in out.splitlines())
    return found


@pytest.fixture(scope="module")
def around_each(plugin: Path) -> Verdicts:
    """Of its clause, of what that needs and of what needs it."""
    return verdicts_of(plugin, {f"{fault}:{clause}": clause for fault, clause, _ in FAULTS})


@pytest.fixture(scope="module")
def of_all(plugin: Path) -> Verdicts:
    """Of every clause, but for the costly ones."""
    cheap = {fault: clause for fault, clause, _ in FAULTS if not BY_NAME[clause].costly}
    return verdicts_of(plugin, cheap)


each_fault = pytest.mark.parametrize(
    ("fault", "clause", "said"), FAULTS, ids=[name for name, *_ in FAULTS]
)


@each_fault
def test_a_fault_turns_its_clause_red_and_what_needs_it_is_not_tried(
    fault: str, clause: str, said: str, around_each: Verdicts
) -> None:
    found = around_each[fault]
    assert red_of(found) == [clause], found
    assert said in found[clause][1]
    for name in built_on(clause):
        verdict, reason = found[name]
        assert verdict == "not tried", name
        assert reason in {f"needs {need}" for need in BY_NAME[name].needs}


def test_of_two_threads_the_call_that_hangs_is_named_and_not_the_last_one(
    around_each: Verdicts,
) -> None:
    reason = around_each["two-hang"]["two-threads"][1]
    assert re.match(r"hangs: (isend|irecv|test) by 2 threads did not", reason), reason


@pytest.mark.variant  # what has nothing to do with the fault passes without it, too
@each_fault
def test_a_fault_turns_no_other_clause_red(
    fault: str, clause: str, said: str, of_all: Verdicts
) -> None:
    if not BY_NAME[clause].costly:
        assert red_of(of_all[fault]) == [clause], of_all[fault]


def red_of(found: dict[str, tuple[str, str]]) -> list[str]:
    return [name for name, (verdict, _) in found.items() if verdict == "fail"]


@pytest.mark.parametrize(("fault", "code", "said"), [
    ("wrong-size", 9, "1 clause failed: reported-size"),
    ("entry-missing", 4, "faulty: its table of v11 does not start (init): after init"),
])  # fmt: skip
def test_the_command_ends_with_the_code_and_the_clause(
    fault: str, code: int, said: str, plugin: Path, tmp_path: Path
) -> None:
    found = conform(tmp_path, str(plugin), "--only", "reported-size", FAULT=fault)
    assert found.code == code
    assert found.err.startswith(f"tcpx-mpi: error: {said}")


def test_a_second_init_that_fails_is_found_with_what_the_plugin_said(
    refplugin: Path, tmp_path: Path
) -> None:
    found = conform(tmp_path, str(refplugin), "--only", "load-again")
    assert found.code == 9, found.out
    told = (
        "where its library stays mapped: init returned 3; the plugin said: refplugin: a second init"
    )
    assert found.reasons()["load-again"] == told, found.out


@pytest.mark.parametrize(("fault", "harm"), [
    ("one-request", "[NCCL is not hurt]"), ("full-fails", "[hurts NCCL]"),
])  # fmt: skip
def test_what_hurts_nccl_is_what_it_takes_for_an_error(
    fault: str, harm: str, plugin: Path, tmp_path: Path
) -> None:
    found = conform(tmp_path, str(plugin), "--only", "full", FAULT=fault)
    (line,) = [line for line in found.out.splitlines() if line.startswith("FAIL")]
    assert line.endswith(harm), found.out


def test_what_is_known_of_a_plugin_is_no_failure(plugin: Path, tmp_path: Path) -> None:
    known = tmp_path / "mine.toml"
    known.write_text(
        '[known]\nreported-size = {reason = "we report what was posted", seen = "test reports"}\n'
    )
    which = ("--only", "reported-size", "--expect", str(known))
    found = conform(tmp_path, str(plugin), *which, FAULT="wrong-size")
    assert (found.code, found.verdicts()["reported-size"]) == (0, "known"), found.err
    said = "we report what was posted (test reports 16384 bytes of a receive of 1000)"
    assert found.reasons()["reported-size"] == said
    assert "# --expect" not in found.out


def test_another_fault_of_a_clause_is_not_excused(plugin: Path, tmp_path: Path) -> None:
    known = tmp_path / "mine.toml"
    known.write_text('[known]\nreported-size = {reason = "rounded up", seen = "of 4096 bytes"}\n')
    which = ("--only", "reported-size", "--expect", str(known))
    found = conform(tmp_path, str(plugin), *which, FAULT="wrong-size")
    assert (found.code, found.verdicts()["reported-size"]) == (9, "fail"), found.err
    told = "# --expect excuses another fault, whose words were not seen: reported-size"
    assert found.out.splitlines()[-1] == told


def test_what_is_known_and_passes_all_the_same_is_told(plugin: Path, tmp_path: Path) -> None:
    known = tmp_path / "mine.toml"
    known.write_text('[known]\nshorter = {reason = "once", seen = "x"}\n')
    found = conform(tmp_path, str(plugin), "--only", "shorter", "--expect", str(known))
    assert found.code == 0, found.err
    told = "# --expect excuses what passes here, and need not: shorter"
    assert found.out.splitlines()[-1] == told


@pytest.mark.parametrize(("text", "said"), [
    ('[known]\nfulll = "x"\n', "fulll is no clause (did you mean full?)"),
    ("[known]\nfull = 3\n", "full has no reason"),
    ('[known]\nfull = "the 17th is an error"\n', "full excuses whatever is seen: write full"),
    ('[known]\nfull = {reason = "x", seen = 3}\n', "full has a reason and seen"),
    ('[known]\nfull = {reason = "x", seen = "y", since = "v7"}\n', "full has a reason and seen"),
    ("known = 3\n", "expected one table [known]"),
])  # fmt: skip
def test_expectations_that_say_nothing_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    found = conform(tmp_path, "softtcpx", "--expect", str(file))
    assert (found.code, len(found.err.splitlines())) == (2, 1)
    assert said in found.err

"""What a step says of each node, and what all of them amount to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.preflight.findings import Checked, CheckFinding, checked
from tcpx_mpi.qualify.judge import (
    Ended,
    Qualification,
    Step,
    culprits,
    named_in,
    of_preflight,
    of_run,
)
from tcpx_mpi.qualify.launch import has_result
from tcpx_mpi.qualify.results import cases, in_short, metrics
from tcpx_mpi.run.smoke import Arrival, footer_lines

NODES = ("n1", "n10", "n2.example", "n3")


def ended(*findings: tuple[str, str, str], code: int | None = 0, error: str = "") -> Ended:
    events: list[dict[str, Any]] = [{"event": "header"}]
    texts = [{"severity": s, "title": title, "text": text} for s, title, text in findings]
    events.append({"event": "end", "exit_code": code, "findings": texts})
    return Ended(code, events, [error] if error else [])


def blamed(found: Sequence[CheckFinding]) -> list[str]:
    return [checked(each).node for each in found if each.severity is Severity.BAD]


def test_a_name_that_is_part_of_another_is_not_that_node() -> None:
    assert named_in("rank 3 on n10 (NIC eth1)", NODES) == ["n10"]
    assert named_in("NIC eth1 of n1, receiving", NODES) == ["n1"]
    assert named_in("xn1 n1-b n1.example n1#0 an3", NODES) == []
    assert named_in("n2.example: gone. n3.", NODES) == ["n2.example", "n3"]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("rank 2 on n1, 3 on n1 did not answer the roll call; rank 0 on n3: no progress", ["n1"]),
        ("rank 2 on n1 has died; rank 0 on n3: its connection is gone", ["n1"]),
        ("rank 0 on n1 (NIC eth1): connections did not come up; rank 2 is on n3", ["n1", "n3"]),
        ("mpirun ended with exit code 1", []),
    ],
)
def test_who_did_not_answer_is_the_cause_and_not_who_waited(text: str, nodes: list[str]) -> None:
    assert culprits(text, NODES) == nodes


def test_who_is_slow_or_loses_packets_is_unfit_and_who_is_unseen_is_not() -> None:
    found = list(
        of_run(
            "pairs",
            ended(
                ("", "Slow", "rank 3 on n1 (device 1, NIC eth2), sending: 4 x the 10 us"),
                ("bad", "Slow", "NIC eth2 of n10 (rank 3), receiving: 4 x the 10 us"),
                ("doubtful", "Loses packets", "NIC eth1 of n3, receiving: 1 %"),
                ("", "Not confirmed", "rank 1 on n2.example"),
                ("", "Slowest rank", "rank 1 on n2.example in 4 of 12 rows"),
            ),
            NODES,
        )
    )
    assert blamed(found) == ["n1", "n10", "n3"]
    nobody = ("", "Slow", "nobody; a rank goes unseen below 1.2 x the 10 us")
    assert list(of_run("pairs", ended(nobody), NODES)) == []


def test_a_slow_rail_is_of_all_nodes_and_of_none_by_itself() -> None:
    rail = "rail eth2 (NICs of this name on 2 nodes: ranks 1, 3), receiving: 4 x the 10 us"
    assert blamed(list(of_run("pairs", ended(("bad", "Slow", rail)), NODES))) == [""]


def test_what_cannot_be_told_is_a_doubt_of_all() -> None:
    text = "cannot tell (noise 90 %); farthest: rank 0 on n1"
    (found,) = of_run("pairs", ended(("doubtful", "Slow", text)), NODES)
    assert (found.severity, checked(found).node) == (Severity.DOUBTFUL, "")


def test_an_error_is_of_the_nodes_that_it_names_or_of_all() -> None:
    error = "rank 2 on n1 did not answer the roll call"
    assert blamed(list(of_run("smoke", ended(code=7, error=error), NODES))) == ["n1"]
    gate = "the run fails its gate: from 1 MiB on: ratio to raw 0.1 x, must be >= 0.25"
    assert blamed(list(of_run("ring", ended(code=9, error=gate), NODES))) == [""]
    (silent,) = of_run("ring", Ended(255), NODES)
    assert silent.text == "it ended with exit code 255 without a word"
    # One that was ended because its time was over says nothing of anybody.
    assert list(of_run("ring", Ended(None), NODES)) == []
    assert not Ended(None).completed
    # One that told its end and was left over by a launcher that hangs has said it all.
    hung = Ended(None, ended(code=7).events, [error])
    assert hung.completed
    assert blamed(list(of_run("pairs", hung, NODES))) == ["n1"]


def test_a_check_that_failed_is_of_its_node_and_a_difference_of_those_that_differ() -> None:
    found = [
        Finding(Severity.BAD, "plugin", "is missing", "install it", Checked("n1")),
        Finding(Severity.DOUBTFUL, "open files", "1024", "raise it", Checked("n3")),
        Finding(Severity.DOUBTFUL, "same MTU", "3 of 4 nodes have 1500, n10 has 9000"),
        Finding(Severity.DOUBTFUL, "same Python", "3 of 4 nodes have 3.11, n3 has 3.12"),
        Finding(Severity.GOOD, "same MPI", "n1"),
    ]
    judged = list(of_preflight(found, NODES))
    assert blamed(judged) == ["n1", "n10"]
    # Another Python is no fault; who has it is said all the same.
    unlike = qualification(*judged, nodes=NODES)
    assert unlike.differences() == ["Python: 3 of 4 nodes have 3.11, n3 has 3.12"]
    assert unlike.differences("n3") == unlike.differences()
    assert unlike.differences("n1") == []
    assert unlike.verdict("n3") == "fit"
    assert "# differs    Python: 3 of 4 nodes have 3.11, n3 has 3.12" in unlike.lines()


def qualification(
    *findings: CheckFinding, missing: str = "", nodes: Sequence[str] = ("a", "b", "c")
) -> Qualification:
    return Qualification(nodes, findings, [Step("pairs", 1.0, missing)])


def bad(node: str) -> CheckFinding:
    return Finding(Severity.BAD, "pairs", f"it is {node or 'all'}", evidence=Checked(node))


DOUBT: CheckFinding = Finding(Severity.DOUBTFUL, "pairs", "cannot tell", evidence=Checked(""))


@pytest.mark.parametrize(
    ("found", "code", "verdicts"),
    [
        (qualification(), 0, ["fit", "fit", "fit"]),
        (qualification(bad("b")), 9, ["fit", "unfit", "fit"]),
        (qualification(bad("")), 9, ["not judged"] * 3),
        (qualification(DOUBT), 11, ["not judged"] * 3),
        (qualification(missing="no time was left"), 12, ["not judged"] * 3),
        (qualification(bad("b"), missing="no time"), 9, ["not judged", "unfit", "not judged"]),
        (qualification(DOUBT, missing="no time was left"), 12, ["not judged"] * 3),
    ],
)
def test_what_was_not_looked_at_is_never_good(
    found: Qualification, code: int, verdicts: list[str]
) -> None:
    assert [found.verdict(node) for node in found.nodes] == verdicts
    document = found.document()
    assert [each["verdict"] for each in document["nodes"]] == verdicts
    assert found.exit_code == code == document["exit_code"]


def test_there_is_a_line_for_each_that_is_unfit_and_one_for_all_others() -> None:
    reasons = [Finding(Severity.BAD, f"step {n}", "why", evidence=Checked("b")) for n in range(4)]
    lines = qualification(bad("b"), bad("b"), *reasons).lines()
    assert lines == [
        "unfit       b  pairs: it is b; also step 0: why; also step 1: why; and 2 more, which "
        "--json has",
        "fit         a, c",
        "# pairs      1.0 s",
    ]
    assert in_short(qualification(bad("b"))) == "unfit: b; pairs: it is b"


def test_others_forms_say_the_same() -> None:
    found = qualification(bad("b"))
    assert [(case.name, case.failure, case.skipped) for case in cases(found)] == [
        ("all nodes", "", ""), ("a", "", ""), ("b", "pairs", ""), ("c", "", ""),
    ]  # fmt: skip
    fit, _, code, _ = metrics(found, {"SLURM_JOB_ID": "7"})
    assert [(labels["node"], value) for labels, value in fit.samples] == [
        ("a", True), ("b", False), ("c", True),
    ]  # fmt: skip
    assert code.samples == [({"slurm_job_id": "7"}, ExitCode.BELOW_GATE)]
    unjudged = qualification(missing="no time was left")
    assert [case.skipped for case in cases(unjudged)] == ["", *["not judged"] * 3]
    assert metrics(unjudged, {})[0].samples == []


def test_a_code_of_0_is_no_result_where_no_rank_came_to_its_end() -> None:
    """mpirun may end with 0 when a node dies."""
    footer = footer_lines([Arrival(0, 1, 0, "", 10, ())])
    assert has_result("\n".join(["a table", *footer]), [])
    assert not has_result("\n".join(footer_lines([Arrival(0, 1, 3, "", 10, ())])), [])
    assert has_result("", [{"event": "header"}, {"event": "end"}])
    assert not has_result("a table", [{"event": "header"}])

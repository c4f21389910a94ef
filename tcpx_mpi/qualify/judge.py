"""The judgement of a step on each node: by its events, its errors and its exit code. Pure.

What is good says nothing; a difference between nodes is a note, and no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.findings.gpus import THROTTLED
from tcpx_mpi.findings.losses import LOSES
from tcpx_mpi.findings.stragglers import SLOW
from tcpx_mpi.preflight.findings import Checked, CheckFinding, checked
from tcpx_mpi.qualify.devices import Device, is_against, is_suspect
from tcpx_mpi.records import POWER_CAP

#: A rank of which a roll call says so is the cause, whatever others were waiting for.
_GONE = re.compile(r"rank .* (?:did not answer|has died)")
#: What preflight compares between nodes, and what of it only warns but keeps bytes from arriving.
_SAME, _MUST_AGREE = "same ", "same MTU"
#: The title of what differs.
DIFFERS = "differs"
#: What slows a GPU down.
_REASONS = re.compile(rf"{THROTTLED} \(([^)]*)\)")
#: So many reasons stand in a node's line.
_MOST_REASONS = 3
#: What a run says where nobody is slow, or where that cannot be told.
_NOBODY = ("nobody", "elsewhere")


@dataclass(frozen=True)
class Ended:
    """The end of a step."""

    #: None: it was ended, because its time was over.
    code: int | None
    #: What rank 0 told as it went on (`--json-stream`).
    events: Sequence[Mapping[str, Any]] = ()
    #: Lines of errors, without the program's name.
    errors: Sequence[str] = ()
    elapsed_s: float = 0.0

    @property
    def completed(self) -> bool:
        """Whether it came to its own end, well or not."""
        return self.code is not None or any(each["event"] == "end" for each in self.events)


def of_preflight(findings: Sequence[CheckFinding], nodes: Sequence[str]) -> Iterator[CheckFinding]:
    """Each failed check by the node that it is of; what must agree, by the nodes that differ."""
    for each in findings:
        node = checked(each).node
        if each.severity is Severity.BAD or (
            each.severity is Severity.DOUBTFUL and each.title == _MUST_AGREE
        ):
            title = f"preflight, {each.title}"
            yield from _blame([node] if node else named_in(each.text, nodes), title, each.text)
        elif each.severity is Severity.DOUBTFUL and each.title.startswith(_SAME):
            text = f"{each.title.removeprefix(_SAME)}: {each.text}"
            for differing in named_in(each.text, nodes):
                yield Finding(Severity.NOTE, DIFFERS, text, evidence=Checked(differing))


def of_run(title: str, ended: Ended, nodes: Sequence[str]) -> Iterator[CheckFinding]:
    """The findings of a run on nodes; without a node they are on all of them."""
    end: Mapping[str, Any] = next((each for each in ended.events if each["event"] == "end"), {})
    for found in end.get("findings", ()):
        text, doubtful = found["text"], found["severity"] == Severity.DOUBTFUL.value
        if found["title"] == LOSES or (found["title"] == SLOW and not doubtful):
            if not text.startswith(_NOBODY):
                name = found["title"].lower()
                yield from _blame(named_in(text, nodes), f"{title}, {name}", text)
        elif found["title"] == SLOW:
            yield Finding(Severity.DOUBTFUL, title, text, evidence=Checked(""))
        elif _is_throttled(text):
            yield from _blame(named_in(text, nodes), f"{title}, GPU", text)
    code = ended.code if ended.code is not None else end.get("exit_code")
    if code in (None, ExitCode.OK):
        return
    text = ended.errors[0] if ended.errors else f"it ended with exit code {code} without a word"
    yield from _blame(culprits(text, nodes), title, text)


def _is_throttled(text: str) -> bool:
    """Whether it is a GPU's heat, power or hardware that slows it down, not a cap on its power."""
    reasons = _REASONS.search(text)
    return reasons is not None and set(reasons[1].split(", ")) != {POWER_CAP}


def culprits(text: str, nodes: Sequence[str]) -> list[str]:
    """Whom an error is about: those who did not answer before those who waited for them."""
    gone = [part for part in text.split("; ") if _GONE.search(part)]
    return named_in("; ".join(gone), nodes) or named_in(text, nodes)


def named_in(text: str, nodes: Sequence[str]) -> list[str]:
    """The nodes whose names a text has, as words of their own."""
    return [
        node for node in nodes if re.search(rf"(?<![\w.#-]){re.escape(node)}(?![\w#-]|\.\w)", text)
    ]


def _blame(nodes: Collection[str], title: str, text: str) -> Iterator[CheckFinding]:
    for node in nodes or [""]:
        yield Finding(Severity.BAD, title, text, evidence=Checked(node, ExitCode.BELOW_GATE))


@dataclass(frozen=True)
class Step:
    """One step of a qualification."""

    name: str
    elapsed_s: float
    #: Why it has not been looked at; "": it has.
    missing: str = ""


@dataclass(frozen=True)
class Qualification:
    """Findings by node, and the steps that they are out of."""

    nodes: Sequence[str]
    findings: Sequence[CheckFinding]
    steps: Sequence[Step]
    devices: Sequence[Device] = field(default=())

    def differences(self, node: str = "") -> list[str]:
        """The settings of a node that differ from the others'; "": of all nodes, each once."""
        found = [f for f in self.findings if f.title == DIFFERS]
        return list(dict.fromkeys(f.text for f in found if node in ("", checked(f).node)))

    def unfit(self, node: str) -> list[CheckFinding]:
        """The evidence against a node; "": against all of them together."""
        return [f for f in self.findings if f.severity is Severity.BAD and checked(f).node == node]

    def verdict(self, node: str) -> str:
        """In a word."""
        if self.unfit(node):
            return "unfit"
        return "fit" if self.exit_code is ExitCode.OK or self._rest_is_judged else "not judged"

    def of_device(self, device: Device) -> tuple[str, list[str]]:
        """Verdict and evidence: what is said against its node is its doing, where it is not that of
        another device or rank there."""
        said = [*self.unfit(device.node), *self.unfit("")]
        against = [f"{f.title}: {f.text}" for f in said if is_against(device, f.text)]
        others = [each for each in self.devices if each.node == device.node and each != device]
        open_to_doubt = [
            f
            for f in said
            if is_suspect(device, f.text)
            or not any(is_against(other, f.text) or is_suspect(other, f.text) for other in others)
        ]
        if against:
            return "unfit", against
        return "not judged" if open_to_doubt or not self._rest_is_judged else "fit", []

    @property
    def _rest_is_judged(self) -> bool:
        """Whether all that was to be looked at was, of those against whom nothing was found."""
        doubts = any(f.severity is Severity.DOUBTFUL for f in self.findings)
        return not doubts and not self.unfit("") and not any(step.missing for step in self.steps)

    @property
    def exit_code(self) -> ExitCode:
        """Unfit before not looked at, before not to be told."""
        if any(f.severity is Severity.BAD for f in self.findings):
            return ExitCode.BELOW_GATE
        if any(step.missing for step in self.steps):
            return ExitCode.PARTIAL_RESULT
        return ExitCode.OK if self._rest_is_judged else ExitCode.INCONCLUSIVE

    def lines(self) -> list[str]:
        """A line for each that is unfit, one for all other nodes, one for what was looked at."""
        lines = []
        for node in ("", *self.nodes):
            if reasons := list(dict.fromkeys(f"{f.title}: {f.text}" for f in self.unfit(node))):
                more = len(reasons) - _MOST_REASONS
                shown = "; also ".join(reasons[:_MOST_REASONS])
                rest = f"; and {more} more, which --json has" if more > 0 else ""
                lines.append(f"unfit       {node or 'all nodes'}  {shown}{rest}")
        for verdict in ("fit", "not judged"):
            names = [node for node in self.nodes if self.verdict(node) == verdict]
            if names:
                lines.append(f"{verdict:<10}  {', '.join(names)}")
        for each in self.findings:
            if each.severity is Severity.DOUBTFUL:
                lines.append(f"# {each.title}: {each.text}")
        lines += [f"# {DIFFERS:<10} {text}" for text in self.differences()]
        for step in self.steps:
            how = f"not looked at: {step.missing}" if step.missing else f"{step.elapsed_s:.1f} s"
            lines.append(f"# {step.name:<10} {how}")
        return lines

    def document(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "exit_code": int(self.exit_code),
            "nodes": [
                {
                    "node": node,
                    "verdict": self.verdict(node),
                    "evidence": [f"{each.title}: {each.text}" for each in self.unfit(node)],
                    "differs": self.differences(node),
                    "devices": [
                        {"device": device.shown, "verdict": verdict, "evidence": evidence}
                        for device in self.devices
                        if device.node == node
                        for verdict, evidence in [self.of_device(device)]
                    ],
                }
                for node in self.nodes
            ],
            "all_nodes": [f"{each.title}: {each.text}" for each in self.unfit("")],
            "doubts": [
                f"{each.title}: {each.text}"
                for each in self.findings
                if each.severity is Severity.DOUBTFUL
            ],
            "steps": [
                {"step": step.name, "elapsed_s": step.elapsed_s, "missing": step.missing or None}
                for step in self.steps
            ],
        }

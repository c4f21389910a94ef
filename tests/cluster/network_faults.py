"""What a network does to a run: slow, lossy, down, flapping, reset; and a node that dies.

Each fault is on one interface of one node and ends with its context.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from namespaces import wait_for_carrier
from nodes import Node

#: What is waited for takes a second or two on an idle machine.
LIMIT_S = 100.0


@contextlib.contextmanager
def link_down(node: Node, interface: str) -> Iterator[None]:
    """An interface that is down: neither end has a carrier."""
    node.run("ip", "link", "set", interface, "down")
    try:
        yield
    finally:
        node.run("ip", "link", "set", interface, "up")
        wait_for_carrier(node.space, interface)


@contextlib.contextmanager
def rate_limit(node: Node, interface: str, rate: str) -> Iterator[None]:
    """What leaves by an interface leaves at `rate` ("200mbit"); a short queue drops the rest."""
    shape = ("tbf", "rate", rate, "burst", "32kb", "limit", "64kb")
    node.run("tc", "qdisc", "add", "dev", interface, "root", *shape)
    try:
        yield
    finally:
        node.run("tc", "qdisc", "del", "dev", interface, "root")


@contextlib.contextmanager
def slow_arrivals(nodes: tuple[Node, Node], at: int, interface: str, rate: str) -> Iterator[None]:
    """The bytes that arrive at an interface of node `at` arrive at `rate`, all together.

    It is the cable's other end that sends so slowly, which nobody can tell. Packets of less than
    128 bytes pass: acknowledgements of what goes the other way are no arrivals.
    """
    other = nodes[1 - at]
    tc = ("tc", "qdisc", "add", "dev", interface)
    small = ("u32", "match", "u16", "0", "0xff80", "at", "2", "flowid", "1:1")
    other.run(*tc, "root", "handle", "1:", "htb", "default", "2")
    try:
        for number, of_class in (("1", "100gbit"), ("2", rate)):
            words = ("parent", "1:", "classid", f"1:{number}", "htb", "rate", of_class)
            other.run("tc", "class", "add", "dev", interface, *words)
        other.run("tc", "filter", "add", "dev", interface, "parent", "1:", "protocol", "ip", *small)
        yield
    finally:
        other.run("tc", "qdisc", "del", "dev", interface, "root")


@contextlib.contextmanager
def loss(node: Node, interface: str, one_in: int) -> Iterator[None]:
    """One packet in so many is dropped by the receiver."""
    with _input_rule(node, interface, f"numgen random mod {one_in} == 0 drop"):
        yield


@contextlib.contextmanager
def firewall(node: Node, interface: str) -> Iterator[None]:
    """Everything that comes in by an interface is dropped without an answer."""
    with _input_rule(node, interface, "drop"):
        yield


def reset_connections(node: Node, interface: str) -> int:
    """Resets all TCP connections at the node's own address there; how many there were."""
    own = node.address(interface)
    return len(node.run("ss", "-KntH", f"src {own}").splitlines())


def kill(node: Node) -> None:
    """The node dies: all its processes but the keeper, in whose memory its files are."""
    while pids := set(node.processes()) - {node.keeper.pid}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)  # the kernel ends them in its own time


def until_sending_in_vain(nodes: tuple[Node, Node], interface: str) -> None:
    """Returns when TCP has sent to an address there again and again, without an answer."""
    pairs = (nodes, nodes[::-1])
    ways = [(near, far.address(interface)) for near, far in pairs]
    until(
        lambda: any(" backoff:" in near.run("ss", "-intH", f"dst {far}") for near, far in ways),
        "retransmission",
    )


def until(condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Looks again and again until it is so."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.01)  # a poll with a deadline: nothing tells us


@contextlib.contextmanager
def _input_rule(node: Node, interface: str, rule: str) -> Iterator[None]:
    if shutil.which("nft") is None:
        pytest.skip("needs netns: nft not found, install nftables")
    node.run("nft", "add table inet fault")
    node.run("nft", "add chain inet fault in { type filter hook input priority 0; }")
    node.run("nft", f"add rule inet fault in iifname {interface} {rule}")
    try:
        yield
    finally:
        node.run("nft", "delete table inet fault")

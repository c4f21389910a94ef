"""Messages through a plugin within this process, called as NCCL would: messages.py PLUGIN ABI PLAN

PLAN is JSON, {"sizes": [...], "then": [...]}. For each size a message is sent, and a line of JSON
says what came of it: "ok", "wrong N" (bytes), "code N of CALL", "not done: CALL". What follows:

  "fork"    a child goes on with the same comms, and ends by _exit
  "hold"    a receive is posted for which nothing is sent, and tested until there is a line of input
  "wait"    a line of input is waited for
  "threads" for each line of input a thread of its own sends a message, until there is none
  "leave"   the process ends by _exit, with the comms open
  "again"   all of it once more, from init on
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.conform.bench import Bench, Pair
from tcpx_mpi.conform.memory import Area
from tcpx_mpi.conform.outcome import Broken

PATIENCE_S = 20.0
#: Of a message that never ends: as many rounds of test, a millisecond each.
ROUNDS = 300
WARN, ALL = 2, (1 << 64) - 1


def say(what: str) -> None:
    print(json.dumps(what), flush=True)


class Ends:
    """A connection, with memory on both sides."""

    def __init__(self, bench: Bench, largest: int) -> None:
        self.bench = bench
        self.pair: Pair = bench.connect()
        self.source, self.target = Area(largest), Area(largest)
        self.of_source = bench.register(self.pair.send, self.source)
        self.of_target = bench.register(self.pair.receive, self.target)

    def receive(self, size: int) -> tuple[int, int]:
        place = ([self.target.address], [size], [0], [self.of_target])
        code, request = self.bench.call("irecv", self.pair.receive, *place)
        return code, request

    def message(self, size: int) -> str:
        self.source.bytes[:size] = np.arange(size) % 251
        self.target.bytes[:size] = 0
        code, receive = self.receive(size)
        if code:
            return f"code {code} of irecv"
        what = (self.source.address, size, 0, self.of_source)
        code, send = self.bench.call("isend", self.pair.send, *what)
        if code:
            return f"code {code} of isend"
        under_way, said = {"irecv": receive, "isend": send}, ""
        for _ in range(ROUNDS):
            for name, request in list(under_way.items()):
                code, done, sizes = self.bench.table.test(request, 1)
                if code:
                    return f"code {code} of test of {name}"
                if done:
                    del under_way[name]
                    if name == "irecv":
                        self.bench.table.irecv_consumed(self.pair.receive, 1, request)
                        said = f", reported {sizes[0]}" if sizes[0] >= 0 else ""
            if not under_way:
                wrong = int((self.source.bytes[:size] != self.target.bytes[:size]).sum())
                return f"wrong {wrong}{said}" if wrong else f"ok{said}"
            time.sleep(0.001)
        return f"not done: {' '.join(sorted(under_way))}"

    def hold(self) -> None:
        _, request = self.receive(64)
        while not select.select([sys.stdin], [], [], 0.002)[0]:
            self.bench.table.test(request, 1)


def in_threads(ends: Ends) -> None:
    """Each thread ends when the next one is there, so that none has the place of the one before."""
    last = None
    for _ in sys.stdin:
        goes, ends_now = threading.Event(), threading.Event()

        def one(goes: threading.Event = goes, ends_now: threading.Event = ends_now) -> None:
            goes.wait()
            say(ends.message(64))
            ends_now.wait()

        thread = threading.Thread(target=one)
        thread.start()
        if last is not None:
            last[1].set()
            last[0].join()
        goes.set()
        last = thread, ends_now
    if last is not None:
        last[1].set()
        last[0].join()


def once(plugin: str, abi: int, sizes: list[int], then: list[str]) -> None:
    bench = Bench(plugin, abi, "host", PATIENCE_S, lambda thread, step: None)
    bench.start()
    ends = Ends(bench, max([*sizes, 64]))
    for size in sizes:
        say(ends.message(size))
    if "fork" in then:
        child = os.fork()
        if child == 0:
            say(ends.message(64))
            os._exit(0)
        os.waitpid(child, 0)
    if "hold" in then:
        say("holds")
        ends.hold()
    if "wait" in then:
        say("waits")
        sys.stdin.readline()
    if "threads" in then:
        in_threads(ends)
    if "leave" in then:
        os._exit(0)
    bench.close(ends.pair)
    if bench.table.has_contexts:
        bench.good("finalize")


def main(plugin: str, abi: str, plan: str) -> None:
    _native.print_plugin_log(WARN + 1 if os.environ.get("SHOW_INFO") else WARN, ALL)
    asked = json.loads(plan)
    then = asked.get("then", [])
    try:
        for _ in range(2 if "again" in then else 1):
            once(plugin, int(abi), asked["sizes"], then)
    except Broken as broken:
        say(f"broken: {broken}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Every reader of a file, with seeds, mutants and what is done with one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit"))

import invented
import invented_runs
import invented_tap
import mutants
import nccl_tests_logs
import numpy as np
import structures

from tcpx_mpi import cli
from tcpx_mpi.config.file import read_config
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.conform.expectations import of_file
from tcpx_mpi.errors import PartialResult
from tcpx_mpi.exchange.nccl_tests import write_run
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.placement_file import read_placement
from tcpx_mpi.patterns.matrix import read_matrix
from tcpx_mpi.preflight.hostfile import read_hostfile
from tcpx_mpi.preflight.hostfile_forms import Launcher
from tcpx_mpi.records import Journal, read_run
from tcpx_mpi.report.plugin_trace import RECORD, PluginTrace
from tcpx_mpi.tap.file import DONE, SEND

FIXTURES = Path(__file__).parents[2] / "fixtures"

#: Writes a mutant into a directory; the command line that reads it, or a call in its place.
Make = Callable[[Path, random.Random], list[str] | Callable[[], object]]


@dataclass(frozen=True)
class Reader:
    make: Make
    #: Codes that an input may end with: 2 a bad one, 12 half of one, and verdicts.
    codes: tuple[int, ...] = (0, 2)
    #: So many in `make test`: what half a second has room for.
    quick: int = 150
    #: Of this process's own CPU time: others may have the CPUs.
    limit_s: float = 2.0


#: A mutant has a line 1,000 times, now and then: as many rows, of which each takes 9 ms to write on
#: a machine with much else to do.
_OF_1000_ROWS_S = 15.0
#: Documents have up to 200.
_OF_200_ROWS_S = 4.0
#: A mutant whose messages are long has as many chunks as may be simulated (MOST_CHUNKS), at 4 us
#: each.
_OF_ALL_CHUNKS_S = 20.0


def readers(seeds: Path) -> Mapping[str, Reader]:
    """All of them; seeds that have to be made are made in that directory."""
    runs = _runs(seeds)
    journals = _journals(seeds)
    return {
        "hdf5": Reader(_hdf5(runs), (0, 2, 9, 10, 11, 12, 14), 100),
        "journal": Reader(_merge(journals), (0, 2, 12), 100),
        "log of nccl-tests": Reader(_import(_logs()), (0, 2, 12), 60, _OF_1000_ROWS_S),
        "json of nccl-tests": Reader(_import_json(), (0, 2, 12), 60, _OF_200_ROWS_S),
        "log of nccl": Reader(_doctor(), (0, 2, 9, 11), 60),
        "recorded machine": Reader(_topo()),
        "config": Reader(_texts(_configs(), lambda path: read_config(path))),
        "profile": Reader(_profile()),
        "placement": Reader(_texts([_PLACEMENT], read_placement)),
        "gate": Reader(_gate(runs[0]), (0, 2, 9)),
        "expectations": Reader(_texts([_EXPECTED], of_file)),
        "matrix": Reader(_texts([_MATRIX], lambda path: read_matrix(path, 1.0))),
        "hostfile": Reader(_texts(_HOSTFILES, _hostfile)),
        "plugin trace": Reader(_trace()),
        "tap": Reader(_tap()),
        "replay": Reader(_replay(seeds), (0, 2), 60, _OF_ALL_CHUNKS_S),
    }


_ONLY_READ = 0.85
_PLACEMENT = "".join(
    f'[[rank]]\nlocal_rank = {n}\nnic = "eth{n}"\ngpu = {n}\ncpu = 4\nmemory_node = 0\n\n'
    for n in range(3)
)
_EXPECTED = '[known]\nC1 = "a reason"\n'
_MATRIX = "".join(f"{n} 1024 2048 4096\n" for n in range(4))
_HOSTFILES = [
    "n1 slots=8\nn2 slots = 8 max_slots=9\n# none\nme@10.0.0.3 slots=8\n", "n1:8\nn2:8 binding=x\n"
]  # fmt: skip
_GATE = """[gate]
plugin = "softtcpx_v7"
ranks = 4
provenance = "here"

[[limit]]
pattern = "ring"
memory = "host"
size = "1M"
busbw_min = 4.2

[[limit]]
pattern = "ring"
memory = "host"
size = 4096
p99_us_max = 3
"""


def _runs(seeds: Path) -> list[Path]:
    made = {
        "sound": invented_runs.sound(rows=3), "troubled": invented_runs.troubled(),
        "beside": invented_runs.beside_baselines(), "several": invented_runs.sound(rows=1),
    }  # fmt: skip
    paths = [Path(write_run(run, str(seeds / f"{name}.h5"))) for name, run in made.items()]
    return [*paths, *sorted((FIXTURES / "runs").glob("*.h5"))]


def _hdf5(runs: list[Path]) -> Make:
    def make(place: Path, random_: random.Random) -> list[str] | Callable[[], object]:
        seed = random_.choice(runs)
        structures.hdf5_of(seed, place / "o.h5", random_)
        file, other = str(place / "o.h5"), str(seed)
        # A command takes ten times as long, most of it with the same figures.
        if random_.random() < _ONLY_READ:
            return lambda: _read(file)
        return random_.choice(
            [
                ["report", file], ["report", file], ["report", file, "--trace"],
                ["report", file, other], ["compare", file, other], ["compare", other, file],
                ["export", file, "--json", "--output", str(place / "out")],
                ["export", file, "--csv", "--table", "rows", "--output", str(place / "out")],
                ["export", file, "--csv", "--output", str(place / "out")],
                ["join", str(place / "out.h5"), file, other],
                ["gate", "--calibrate", file, other, "--output", str(place / "out")],
            ]
        )  # fmt: skip

    return make


def _read(path: str) -> None:
    run = read_run(path)
    for launch in run.all_launches:
        for row in launch.rows:
            for phase in row.samples:
                row.samples[phase]
    if run.missing:
        raise PartialResult("; ".join(run.missing))


def _journals(seeds: Path) -> list[bytes]:
    found = []
    for rank in range(2):
        journal = Journal(str(seeds), "0" * 12, rank, 2)
        if rank == 0:
            journal.write_header(invented.run_header(2, run_id="0" * 12))
        for index in range(2):
            facts = invented.row_facts(index)
            part = invented.rank_row(rank, facts)
            journal.append_batch(index, facts.size_bytes, "warmup", 0, part.warmup)
            journal.append_batch(index, facts.size_bytes, "timed", 0, part.samples)
            if (rank, index) != (1, 1):
                journal.append_result(facts, part)
        found.append(Path(journal.path).read_bytes())
    return found


def _merge(journals: list[bytes]) -> Make:
    def make(place: Path, random_: random.Random) -> list[str]:
        mutated = random_.randrange(len(journals))
        for rank, journal in enumerate(journals):
            content = structures.journal_of(journal, random_) if rank == mutated else journal
            (place / f"{rank}.journal").write_bytes(content)
        return ["join", str(place / "out.h5"), str(place / "0.journal"), str(place / "1.journal")]

    return make


def _logs() -> list[str]:
    found = [path.read_text(errors="replace") for path in (FIXTURES / "nccl_tests").glob("*.log")]
    return [nccl_tests_logs.TABLE, *found]


def _import(logs: list[str]) -> Make:
    def make(place: Path, random_: random.Random) -> list[str]:
        content = mutants.text_of(random_.choice(logs), random_)
        if random_.random() < 0.2:
            content = random_.choice((gzip.compress, bz2.compress, lzma.compress))(content)
            if random_.random() < 0.5:
                content = mutants.bytes_of(content, random_)
        (place / "o.log").write_bytes(content)
        return ["import", str(place / "o.log"), "--output", str(place / "out.h5")]

    return make


def _import_json() -> Make:
    seeds = [json.loads(path.read_text()) for path in (FIXTURES / "nccl_tests").glob("*.json")]

    def make(place: Path, random_: random.Random) -> list[str]:
        text = json.dumps(mutants.value_of(random_.choice(seeds), random_))
        content = mutants.text_of(text, random_) if random_.random() < 0.2 else text.encode()
        (place / "o.json").write_bytes(content)
        return ["import", str(place / "o.json"), "--output", str(place / "out.h5")]

    return make


def _doctor() -> Make:
    logs = [path.read_text() for path in (FIXTURES / "doctor").glob("*.log")]

    def make(place: Path, random_: random.Random) -> list[str]:
        (place / "o.log").write_bytes(mutants.text_of(random_.choice(logs), random_))
        return ["doctor", str(place / "o.log")]

    return make


def _topo() -> Make:
    seeds = [json.loads(path.read_text()) for path in (FIXTURES / "topology").glob("*.json")]

    def make(place: Path, random_: random.Random) -> list[str]:
        found = mutants.value_of(random_.choice(seeds), random_)
        for _ in range(random_.choice((0, 1, 3))):
            table = found.get(random_.choice(("files", "links"))) if isinstance(found, dict) else 0
            if isinstance(table, dict) and table:
                texts = (*mutants.NUMBERS, *mutants.TEXTS, "0::/../../x", "0::" + "/a" * 3000)
                table[random_.choice(list(table))] = random_.choice(texts)
        (place / "m.json").write_text(json.dumps(found))
        words = random_.choice((["topo"], ["topo", "--json"], ["env"], ["topo", "--ranks", "8"]))
        return [*words, "--from", str(place / "m.json")]

    return make


def _texts(seeds: list[str], call: Callable[[str], object]) -> Make:
    def make(place: Path, random_: random.Random) -> Callable[[], object]:
        (place / "in").write_bytes(mutants.text_of(random_.choice(seeds), random_))
        return lambda: call(str(place / "in"))

    return make


def _configs() -> list[str]:
    return [
        load_settings({"pattern": "ring"}, {}).to_toml(),
        'pattern = "ring"\nsizes = [4096, "64K"]\n',
    ]


def _profile() -> Make:
    folder = Path(profiles.__file__).parent
    seeds = [path.read_text() for path in sorted(folder.glob("*.toml"))]
    machine = str(FIXTURES / "topology" / "a3-highgpu-8g.json")

    def make(place: Path, random_: random.Random) -> list[str]:
        (place / "p.toml").write_bytes(mutants.text_of(random_.choice(seeds), random_))
        words = random_.choice(
            (["env"], ["env", "--format", "mpirun"], ["topo"], ["env", "--diff"])
        )
        return [*words, "--from", machine, "--profile", str(place / "p.toml")]

    return make


def _gate(run: Path) -> Make:
    def make(place: Path, random_: random.Random) -> list[str]:
        (place / "g.toml").write_bytes(mutants.text_of(_GATE, random_))
        return ["gate", str(run), str(place / "g.toml")]

    return make


def _hostfile(path: str) -> object:
    return [read_hostfile(path, Launcher(name, hydra)) for name, hydra in _LAUNCHERS]


_LAUNCHERS = (("Open MPI 5", False), ("Intel MPI 2021", True))


def _trace() -> Make:
    records = np.zeros(8, RECORD)
    records["step"] = range(8)
    sizes = np.array([40, RECORD.itemsize], "<u4").tobytes()
    seed = b"STCPXTR1" + sizes + np.array([8, 5, 1], "<u8").tobytes() + records.tobytes()

    def make(place: Path, random_: random.Random) -> Callable[[], object]:
        (place / "t").write_bytes(mutants.bytes_of(seed, random_))
        return lambda: PluginTrace([(1, str(place / "t"))])

    return make


def _tap() -> Make:
    record = invented_tap.record
    sent = [record(kind, n, 100 * n, 4096) for n in range(3) for kind in (SEND, DONE)]
    seed = invented_tap.file_of(0, "send", *sent)

    def make(place: Path, random_: random.Random) -> list[str]:
        (place / "t.tap").write_bytes(mutants.bytes_of(seed, random_))
        return ["tap", str(place / "t.tap"), *random_.choice(([], ["--json"]))]

    return make


def _replay(seeds: Path) -> Make:
    """The record of a job of 2 ranks, one of whose files is a mutant."""
    sent = [invented_tap.Message(n, n + 50, n, n + 60, 4096) for n in range(0, 900, 300)]
    job = {(0, 1, 0): sent, (1, 0, 0): sent}
    folder = invented_tap.write_job(seeds / "job", job, 2)
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}

    def make(place: Path, random_: random.Random) -> list[str]:
        (place / "job").mkdir(exist_ok=True)
        for name, seed in whole.items():
            (place / "job" / name).write_bytes(seed)
        name = random_.choice(sorted(whole))
        (place / "job" / name).write_bytes(mutants.bytes_of(whole[name], random_))
        costs = ["--latency", "20", "--bandwidth", "10"]
        return ["simulate", "--replay", str(place / "job"), "--ranks", "2", *costs]

    return make


def command(words: list[str]) -> int:
    """The exit code of a command line, in this process."""
    return cli.main(words)

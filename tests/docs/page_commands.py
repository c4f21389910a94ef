"""Every command of docs/, as its pages have it, and why some are not run by SUITE=docs.

tests/unit/docs/test_page_commands.py holds the list against the pages; SUITE=docs runs the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Made of what the program says of itself: usage, and examples in it.
MADE = "reference/commands.md"
#: What a line of a block begins with if it is a command; others are what a command prints.
PROGRAMS = (
    "tcpx-mpi", "mpirun", "make", "python", "python3", "pip", "sbatch", "srun", "podman", "kubectl",
    "export", "mkdir", "cp", "ls", ".", "for", "all_reduce_perf", "sudo",
)  # fmt: skip

#: How a command begins that SUITE=docs does not run: why.
NOT_RUN = {
    "make setup": "SUITE=roots runs it on fresh systems",
    ". .venv/bin/activate": "SUITE=roots runs it on fresh systems",
    "make bench": "SUITE=roots runs it on fresh systems",
    "python3 -m venv venv": "SUITE=wheel runs it",
    "pip install --find-links dist": "SUITE=wheel runs it",
    "pip install 'tcpx-mpi[analysis]'": "`make setup-tests` installs it",
    "pip install 'tcpx-mpi[nixl]'": "339 MB",
    "export NIXL_PLUGIN_DIR": "needs NIXL",
    "tcpx-mpi nixl": "needs NIXL",
    "make pod-image": "SUITE=pods runs it",
    "mkdir -p /run/tcpx-mpi": "SUITE=pods runs it",
    "podman": "SUITE=pods runs it",
    "tcpx-mpi qualify": "SUITE=qualify runs it",
    "python tests/cluster/cluster.py": "SUITE=qualify has two nodes of its own",
    "sbatch": "SUITE=slurm runs it",
    "srun": "SUITE=slurm runs it",
    "tcpx-mpi import results": "the result of a job; SUITE=slurm has it",
    "tcpx-mpi report results": "the result of a job; SUITE=slurm has it",
    "mkdir -p /usr/local/tcpx": "needs TCPX",
    "cp -a /var/lib/tcpx": "needs TCPX",
    "ls /run/tcpx": "needs TCPX's receive-datapath manager",
    "export PRTE_MCA_prte_if_include": "tests/mpi/test_a3_environment.py runs it",
    "mpirun -hostfile": "needs two machines; tests/cluster has two namespaces",
    "tcpx-mpi preflight --hostfile": "needs two machines; tests/cluster has two namespaces",
    "NCCL_DEBUG=INFO": "a job of the reader's",
    "kubectl": "needs a cluster; tests/pods runs the jobs' scripts",
    "all_reduce_perf": "needs nccl-tests and GPUs",
    "make test SUITE=gpu": "needs a GPU",
    "make test SUITE=nccl": "needs a GPU",
    "make wheelhouse": "needs a GPU",
    "tcpx-mpi run pair --ranks 2 --memory cuda": "needs a GPU",
}


@dataclass(frozen=True)
class Command:
    """A command of a page below docs/."""

    page: str
    text: str

    @property
    def left_out(self) -> list[str]:
        """The entries of NOT_RUN that name it."""
        return [start for start in NOT_RUN if self.text.startswith(start)]


def commands_in(page: str, text: str) -> list[Command]:
    """The commands in the blocks of a page's text, without prompts, labels and comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [
        re.sub(r"^(\$ |[\w-]+: +(?=tcpx-mpi ))", "", line)
        for language, block in blocks
        if language in ("", "sh")
        for line in re.sub(r" *\\\n *", " ", block).splitlines()
    ]
    # Two blanks are before a comment, or before what a list says of a command.
    return [
        Command(page, re.split(r" {2,}(?=\S)", line)[0].rstrip())
        for line in lines
        if line.split(" ")[0] in PROGRAMS or re.match(r"[A-Z][A-Z_]+=", line)
    ]


def documented() -> list[Command]:
    """Every command of docs/, page by page, in the order of each page."""
    docs = REPOSITORY / "docs"
    pages = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    return [
        command
        for page in pages
        if page != MADE
        for command in commands_in(page, (docs / page).read_text())
    ]

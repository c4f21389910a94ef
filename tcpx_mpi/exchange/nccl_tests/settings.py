"""Settings of an nccl-tests run, by the names of its JSON, from either kind of log."""

from __future__ import annotations

from collections.abc import Mapping

from tcpx_mpi.exchange.nccl_tests.model import Log, stored_integer


def take_settings(log: Log, told: Mapping[str, str]) -> None:
    """Take what was asked for into the log; of a number that is too large nothing."""

    def number(name: str) -> int:
        try:
            return stored_integer(told[name]) if name in told else -1
        except ValueError as error:
            log.damaged.append(f"{name} in the header: {error}")
            return -1

    log.settings = dict(told)
    log.min_bytes, log.max_bytes = number("minimum_bytes"), number("maximum_bytes")
    log.step_factor = number("step_factor")
    log.step_bytes = -1 if log.step_factor > 1 else number("step_bytes")
    log.warmup_iters, log.iters = number("warmup_iters"), number("iterations")
    log.agg_iters, log.check = number("aggregated_iterations"), number("validation")
    blocking = told.get("blocking_collectives", "").lower()
    log.blocking = {"true": 1, "1": 1, "false": 0, "0": 0}.get(blocking, -1)
    log.gpus_of_process = max(number("nthreads"), 1) * max(number("ngpus"), 1)

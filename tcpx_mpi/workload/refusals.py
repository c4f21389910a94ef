"""Refusals: settings that a program does not have, or not for this number of ranks.

Each raises UsageError, one line; a matrix is read here, once.
"""

from __future__ import annotations

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import AUTO, NAMES, find_program
from tcpx_mpi.patterns.groups import group_numbers, sizes
from tcpx_mpi.patterns.matrix import Matrix, read_matrix, read_sequence, require_ranks
from tcpx_mpi.patterns.moe_shape import MOST_TOKENS, shape_of
from tcpx_mpi.patterns.program import ALIGNMENT, Program
from tcpx_mpi.patterns.recording import Recording
from tcpx_mpi.schedule.pattern import fewer_than_two
from tcpx_mpi.units import figure, format_size


def require_options(settings: Settings, program: Program) -> None:
    """Refusals that do not depend on the number of ranks."""
    _require_open_loop(settings, program)
    _require_groups_of_receives(settings)
    if "load_bytes" in program.options:
        _require_no_turns(settings)
    if "sequence_paths" in program.options and settings.sequence_paths and settings.matrix_path:
        raise UsageError("--matrix and --sequence both say who sends how much: give one of them")
    if "skew" in program.options:
        _require_tokens(settings)
    calls = {"mpi": program.mpi, "nccl": program.nccl_call}
    if settings.unalign and (who := next((n for n in settings.against if calls.get(n)), None)):
        raise UsageError(
            f"-u/--unalign ({settings.unalign}) is not of {who}'s own {calls[who]}, whose buffers "
            "begin where slots do: leave one of them out, or use --against raw"
        )
    if "stagger_s" in program.options and settings.stagger_s and not settings.blocking:
        raise UsageError(
            f"--stagger ({settings.stagger_s:g}s) is of iterations that start together: add -z 1"
        )
    if "root" in program.options and settings.root == "all":
        raise UsageError(
            f"-r/--root all is for nccl-tests' programs: give {program.name} one rank, or use "
            "gather or scatter"
        )


def _require_open_loop(settings: Settings, program: Program) -> None:
    """Refuses what --rate cannot be with."""
    if not settings.rates:
        return
    given = ",".join(f"{rate:g}" for rate in settings.rates)
    if not program.first().open_loop:
        able = [name for name in NAMES if find_program(name).first().open_loop]
        raise UsageError(
            f"--rate ({given}) has no {program.name}, whose ranks wait for each other: "
            f"use {', '.join(able)}"
        )
    if len(set(settings.rates)) < len(settings.rates):
        raise UsageError(f"--rate ({given}) has a rate twice: use -N/--run_cycles to repeat rows")
    for option, is_given in (
        ("-z/--blocking", settings.blocking),
        ("--against", settings.against),
        ("--trace", settings.trace),
        ("--one-way", settings.one_way),
    ):
        if is_given:
            raise UsageError(
                f"--rate and {option} exclude each other: give one of them, --rate begins "
                "iterations by the clock"
            )
    least = min(settings.rates)
    if 1 / least > settings.stall_timeout_s / 2:
        raise UsageError(
            f"--rate ({least:g}) leaves {1 / least:g} s between two iterations, "
            f"and --stall-timeout ends a run after {settings.stall_timeout_s:g} s: use a higher "
            "rate, or a timeout of twice that and more"
        )


def _require_groups_of_receives(settings: Settings) -> None:
    """Refuses what --multi-recv cannot be with."""
    receives = settings.multi_recv
    if receives == 1:
        return
    for option, is_given in (("--rate", settings.rates), ("--trace", settings.trace)):
        if is_given:
            raise UsageError(
                f"--multi-recv ({receives}) and {option} exclude each other: give one of them"
            )
    for option, window in (
        ("--window-send", settings.window_send),
        ("--window-recv", settings.window_recv),
    ):
        if window < receives:
            raise UsageError(
                f"{option} ({window}) is smaller than the {receives} messages of one request "
                f"(--multi-recv): use {receives} or more"
            )


def require_line_rate(settings: Settings, bytes_of_largest: int, mbps: int, nic: str) -> None:
    """Refuses a rate at which the largest size would be more than a NIC can carry; -1: unknown."""
    if not settings.rates or mbps <= 0:
        return
    most = max(settings.rates)
    wanted = most * bytes_of_largest * 8 / 1e6
    if wanted > mbps:
        size = format_size(max(settings.sizes))
        raise UsageError(
            f"--rate ({most:g}) is {figure(wanted, 4)} Mbit/s at {size}, more than the {mbps} of "
            f"{nic}: use {figure(mbps / wanted * most, 4)} or less, or smaller sizes"
        )


def _require_tokens(settings: Settings) -> None:
    """Before they are drawn."""
    shape = shape_of(settings.moe)
    if settings.agg_iters > 1:
        raise UsageError(
            f"-m/--agg_iters ({settings.agg_iters}) is more than the one matrix that an iteration "
            f"of {settings.pattern} has: leave it out"
        )
    if max(settings.sizes) // shape.token_bytes > MOST_TOKENS:
        raise UsageError(
            f"-e/--maxbytes ({max(settings.sizes)}) is more than {MOST_TOKENS} tokens of "
            f"{shape.token_bytes} bytes: use {MOST_TOKENS * shape.token_bytes} or less"
        )


def _require_no_turns(settings: Settings) -> None:
    """A pattern with a load has two sides that take the turns, one round trip each."""
    if settings.against:
        raise UsageError(
            f"--against has no {settings.pattern}: run pingpong beside peers, and this one alone"
        )
    if settings.agg_iters > 1:
        raise UsageError(
            f"-m/--agg_iters ({settings.agg_iters}) is more than the one round trip that "
            f"{settings.pattern} times: leave it out"
        )


def require_groups(settings: Settings, program: Program, world: int) -> int:
    """The number of ranks of a group. Raises UsageError for groups that cannot be."""
    if not settings.groups():
        return world
    variable = "NCCL_TESTS_SPLIT" if settings.split else "NCCL_TESTS_SPLIT_MASK"
    if not program.typed:
        raise UsageError(
            f"{variable} ({settings.groups()}) makes groups for nccl-tests' "
            f"programs, not for {settings.pattern}: unset it, or use sendrecv or alltoall"
        )
    found = sizes(group_numbers(settings.groups(), world))
    if len(found) > 1 or min(found) < 2:
        counts = ", ".join(map(str, sorted(found)))
        raise UsageError(
            f"{variable} ({settings.groups()}) makes groups of {counts} of "
            f"{world} ranks; all groups must have as many, and 2 or more"
        )
    return found.pop()


def require_program(settings: Settings, program: Program, world: int) -> int:
    """Algorithm, groups, root and NCCL; how many ranks a group has."""
    if program.typed and settings.algo not in (AUTO, *program.algos):
        known = ", ".join((AUTO, *program.algos))
        raise UsageError(f"--algo ({settings.algo}) is none of {program.name}: use one of {known}")
    if refusal := fewer_than_two(settings.pattern, world):
        raise UsageError(refusal)
    ranks = require_groups(settings, program, world)
    if program.rooted and settings.root != "all" and int(settings.root) >= ranks:
        raise UsageError(
            f"-r/--root ({settings.root}) is none of {ranks} ranks; use 0 to {ranks - 1}, or all"
        )
    if "nccl" in settings.against and not program.nccl:
        raise UsageError(
            f"--against nccl has no {program.name}; use --against raw, which runs "
            "the same schedule over plain TCP"
        )
    return ranks


def sequence_of(settings: Settings, program: Program) -> tuple[Matrix, ...]:
    """The matrices of a program that takes several in turn."""
    paths = settings.sequence_paths
    if "sequence_paths" not in program.options or not paths:
        return ()
    return tuple(read_sequence(paths, settings.matrix_scale))


def recording_of(settings: Settings, ranks: int) -> Recording | None:
    """What a program that is of a recording sends again, of as many ranks as there are."""
    program, path = find_program(settings.pattern), settings.replay_path
    if "replay_path" not in program.options:
        if path is not None:
            raise UsageError(
                f"--replay ({path}) is what is sent, and {settings.pattern} is another: give one "
                "of them"
            )
        return None
    if path is None:
        raise UsageError(f"{settings.pattern} needs --replay DIR, a folder of the tap's files")
    from tcpx_mpi.tap.recording import Part, read_recording

    part = Part(settings.replay_from_s, settings.replay_for_s)
    found = read_recording(path, settings.gaps, part)
    if found.world != ranks:
        raise UsageError(
            f"--ranks ({ranks}) is not the number of ranks that --replay ({path}) has records of "
            f"({found.world}): use {found.world}"
        )
    if found.longest_idle_s > settings.stall_timeout_s / 2:
        raise UsageError(
            f"--gaps ({settings.gaps:g}) keeps a rank idle for {found.longest_idle_s:.3g} s, and "
            f"--stall-timeout ends a run after {settings.stall_timeout_s:g} s: use smaller gaps, "
            "or a timeout of twice that and more"
        )
    return found


def matrix_of(settings: Settings, program: Program, ranks: int) -> Matrix | None:
    """The matrix of a program that has one, None without a file.

    What all ranks agree upon is so what they run, even if the file is written anew meanwhile.
    """
    if "matrix_path" not in program.options or settings.matrix_path is None:
        return None
    if not program.matrix_in_bytes:
        return read_matrix(settings.matrix_path, settings.matrix_scale, alignment=1)
    if len(set(settings.sizes)) > 1:
        raise UsageError(
            "-b/--minbytes and -e/--maxbytes must be equal with --matrix, which has the sizes; "
            "give one size that is at least what a rank sends or receives"
        )
    matrix = read_matrix(settings.matrix_path, settings.matrix_scale, alignment=ALIGNMENT)
    require_ranks(matrix, ranks, settings.sizes[0], f"--matrix ({settings.matrix_path})")
    return matrix

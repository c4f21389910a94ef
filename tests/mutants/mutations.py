"""Ways to break the sources, each of which must be noticed: a function, and what changes in it.

A pattern is found in the functions of a name, wherever they stand, and must be there just once:
moved code needs no change here, and code that was renamed or rewritten fails loudly.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from broken_copy import REPOSITORY, Patch


@dataclass(frozen=True)
class Mutation:
    """A change of one function, and what notices it.

    `detected_by`: "native PROGRAM.TEST", "run NAME: REGEX of the verdict", "ratio", "conform
    CLAUSE", or "SANITIZER: REGEX of its report".
    """

    name: str
    why: str
    detected_by: str
    function: str  # as it is defined: in C++ `Class::name` or `name`, in Python `name`
    pattern: str  # a regular expression
    replacement: str  # as of re.sub


WRONG = r"exit 5, wrong [1-9]\d*"

MUTATIONS = (
    # --- A wrong byte is noticed, counted and told --------------------------------------------
    Mutation("removed_check", "The check looks at no slot.", "run null: exit 0, wrong 0",
             "verify_slots", r"SlotVerdict total;", r"\g<0> count = 0;"),
    Mutation("removed_poison", "Slots keep what they had: what never came may be right by chance.",
             f"run null: {WRONG}",
             "poison_slots", r"spans\[s\]\.bytes", r"0 * \g<0>"),
    Mutation("payload_without_iteration", "All iterations carry the same bytes.",
             "native payload.a_stale_slot_is_found",
             "payload_key", r"sender, iteration\)", "sender, 0 * iteration)"),
    Mutation("unread_guard", "Bytes behind a slot are not looked at.",
             "native payload.a_write_behind_a_slot_is_found",
             "verify_slots", r"i < slots\.used \+ slots\.guard", "i < slots.used"),
    Mutation("byte_flipped_by_the_plugin", "The plugin changes one bit of what it has received.",
             f"run checked: {WRONG}",
             "RecvComm::copy_from_stage", r"std::memcpy\(reader\.cursor, from, bytes\);",
             r"\g<0> if (bytes > 64) *reader.cursor ^= 1;"),
    Mutation("python_unchecked_shown_as_checked", "A row that was not checked says 0 wrong bytes.",
             "run unchecked: exit 0, wrong 0",
             "summarise", r"(?<=wrong=int\(found\.sum\(\)\)) if checked else None", ""),
    Mutation("python_wrong_bytes_are_a_success", "Wrong bytes do not change the exit code.",
             r"run null: exit 0, wrong [1-9]\d*",
             "outcome_of",
             r"(?<=wrong_of_baselines\(summaries\):\n        return ExitCode\.)WRONG_BYTES", "OK"),
    # --- Chunks: each once, in its place, in order, within the window --------------------------
    Mutation("dropped_chunk", "The ragged end of a message is neither sent nor received.",
             f"run checked: {WRONG}",
             "chunks_of", r"\(bytes \+ chunk_bytes - 1\) / chunk_bytes",
             "std::max<uint64_t>(1, bytes / chunk_bytes)"),
    Mutation("swapped_chunk", "The first two chunks of a received message change places.",
             f"run checked: {WRONG}",
             "add_step", r"to\.offset\) \+ at;",
             r"to.offset) + (kind == FlowKind::kReceive && c < 2 && chunks > 2 ? "
             r"(1 - c) * chunk_bytes_ : at);"),
    Mutation("sends_run_ahead", "Sends of the next iteration begin before this one is complete.",
             "native timed_loop_order.sends_wait_for_the_iteration_before_and_receives_do_not",
             "may_begin", r"kind == FlowKind::kReceive", "kind != FlowKind::kCopy"),
    Mutation("window_off_by_one", "A window takes one request too many.",
             "native timed_loop_windows.a_window_is_filled_and_never_exceeded",
             "advance", r"< (?=static_cast<uint64_t>\(window\))", "<= "),
    Mutation("skipped_consume", "Receives are not consumed: the plugin has no slot for the 17th.",
             "run checked: exit 13, wrong none",
             "finish", r"feed\.net\(\)\.offers_consumed\(\)", "false"),
    # --- Fragments: all of them, within bounds, in place before the end is told ----------------
    Mutation("unpack_skips_the_last_fragment", "The last fragment stays in the bounce buffer.",
             r"run emulated: exit 5, wrong \d+",
             "unpack_reference", r"i < source\.count", "i + 1 < source.count"),
    Mutation("unpack_out_of_bounds", "A fragment may end behind what was posted.",
             "native unpack.a_fragment_that_ends_beyond_what_was_posted_is_told_and_nothing_is_"
             "written",
             "unpack_bounds", r"&& fragment\.len <= posted - fragment\.dst_off", ""),
    Mutation("gpu_finished_too_early", "What was launched is taken for what is in place.",
             "native cuda_faults.nothing_is_finished_while_the_gpu_has_not_got_to_it",
             "CudaUnpacker::has_ended", r"__atomic_load_n\(seen, \w+\) >= launch\.ticket",
             "*seen + launch.ticket > 0"),
    Mutation("kernel_skips_the_last_fragment", "The kernel leaves out the last fragment.",
             "native unpack_cuda.random_receives_become_what_the_cpu_makes_of_them_in_every_mode",
             "take", r"index >= item", "index + 1 >= item"),
    Mutation("kernel_ignores_odd_alignment", "The kernel reads from the aligned address below.",
             "native unpack_cuda.every_alignment_of_source_and_destination_at_every_length_is_"
             "exact",
             "move_quads", r"kAligned \? low\[k\] : cut_out\(low\[k\], high\[k\], skip\)",
             "low[k]"),
    Mutation("group_begun_late", "Only one end of a channel counts what it has drawn.",
             "native grouped_loop.both_ends_of_a_channel_draw_alike_and_each_byte_is_sent_once",
             "GroupedLoop::took", r"\+\+drawn\.chunks;",
             "drawn.chunks += flow.kind == FlowKind::kSend;"),
    Mutation("group_of_any_size", "Messages of a group may have any size.",
             "native grouped_loop.the_size_of_each_message_is_compared_with_what_was_sent",
             "has_sizes", r"if \(sizes\[i\] == group\.sizes\[i\]\) ", ""),
    # --- A run ends when it should, and closes in order ----------------------------------------
    Mutation("deadline_ignored", "The total time of a run does not end it.",
             "native timed_loop_faults.the_total_time_ends_a_batch_that_moves",
             "BatchLoop::look_around", r"coarse_now_ > plan\.end_by_ns", "false"),
    Mutation("lost_peer_unnoticed", "What a peer that has closed did not send counts as come.",
             "native raw_loop.a_closed_connection_is_a_fault_with_call_and_flow",
             "RawLoop::move_bytes", r"if \(n < 0 \|\| \(n == 0 && size > 0\)\) \{",
             "if (n == 0) n = static_cast<ssize_t>(size); if (n < 0) {"),
    Mutation("memory_kept_at_close", "A comm is closed before its memory is taken back.",
             "native connections.memory_is_deregistered_before_its_comm_is_closed",
             "Connections::close", r"for \(void\* mhandle : handles\) [^;]*;", ""),
    # --- A figure is what it says ---------------------------------------------------------------
    Mutation("slowed_engine", "Each receive takes 20 ms more; not those that measure the engine.",
             "ratio",
             "TimedLoop::finished", r"(?=finish_chunk\(flow\.source)",
             r"for (const int64_t until = now_ns() + 20'000'000; "
             r"flow.kind == FlowKind::kReceive && chunk.bytes > 4096 && now_ns() < until;) {}"),
    # --- What a plugin breaks of the contract is seen by a clause ------------------------------
    Mutation("done_before_it_is_whole", "A request is done as soon as it is the oldest.",
             "conform done-once",
             "Comm::test", r"(?<=landed \|\| ring_\.)([^;]*) > head;", r"\1 >= head;"),
    Mutation("pieces_in_one_place", "Each piece of a message goes to its beginning.",
             "conform sizes",
             "RecvComm::begin_piece", r"request\.data \+ header\.offset", "request.data"),
    Mutation("empty_never_done", "An empty message waits for a byte.", "conform sizes",
             "RecvComm::announce", r"request\.left = (?=request\.total = header\.total;)",
             "request.left = header.total + (header.total == 0), "),
    Mutation("short_never_done", "A message is done when its receive is full.", "conform shorter",
             "RecvComm::announce", r"request\.total = header\.total;",
             r"request.capacity; \g<0>"),
    Mutation("slots_never_free", "A receive that is consumed keeps its slot.", "conform released",
             "RecvComm::consumed", r"oldest \+ 1, ", "oldest, "),
    Mutation("numbers_wrap", "A header has 12 bits of its message's number.",
             "conform many-messages",
             "SendComm::fill", r"make_chunk_header\(next_,", "make_chunk_header(next_ & 0xfff,"),
    Mutation("dead_sender_unnoticed", "A peer that has closed or died is waited for.",
             "conform lost-sender",
             "RecvComm::judge_losses", r"!losing_ \|\|", "true || !losing_ ||"),
    Mutation("odd_sizes_refused", "Memory is registered in whole pages only.", "conform register",
             "reg_mr", r"data == nullptr && size > 0", "odd_size || (data == nullptr && size > 0)"),
    Mutation("descriptors_kept", "What is closed stays open.", "conform given-back",
             "reset", r"if \(fd_ >= 0\) ::close\(fd_\);", ""),
    Mutation("listener_closes_last", "A listener does not close while a comm is open.",
             "conform close-order",
             "close_listen", r"return (?=close<Listener)",
             "return plugin().open > 1 ? kNetSystemError : "),
    Mutation("connect_impatient", "Connect gives up at its 20th call.", "conform connect-first",
             "connect_step", r"= (?=attempt->connector\.advance)",
             "= [] { static int calls = 0; return ++calls; }() > 20 ? kNetSystemError : "),
    Mutation("buffer_a_connection", "Each connection has a bounce buffer of its own.",
             "conform one-bounce-buffer",
             "BounceRange::of", r"known = range;", ""),
    Mutation("initialised_twice", "A second init looks for devices once more.",
             "conform second-init",
             "init", r"if \(self\.tried\) return [^;]*;", ""),
)  # fmt: skip


def patch_of(mutation: Mutation) -> Patch:
    """A mutation of the repository's sources. Raises ValueError if it does not fit them."""
    file, old, new = mutated(mutation, REPOSITORY, ("native", "tcpx_mpi"))
    place = str(file.relative_to(REPOSITORY))
    return Patch(mutation.name, mutation.why, mutation.detected_by, place, ((old, new),))


def mutated(mutation: Mutation, root: Path, folders: Sequence[str]) -> tuple[Path, str, str]:
    """Its file in one of the folders below `root`, the function as it is, and as it becomes.

    Raises ValueError unless, in all functions of that name, the pattern is found just once.
    """
    bodies = [
        (path, body)
        for folder in folders
        for path, text in sources(root / folder)
        if mutation.function in text
        for body in FUNCTIONS[path.suffix](text, mutation.function)
    ]
    found = [
        (path, body, match)
        for path, body in bodies
        for match in re.finditer(mutation.pattern, body)
    ]
    if len(found) != 1:
        raise ValueError(
            f"{mutation.name}: {mutation.pattern} is found {len(found)} times, not once, in "
            f"{len(bodies)} functions {mutation.function}"
        )
    path, body, match = found[0]
    return (
        path,
        body,
        body[: match.start()] + match.expand(mutation.replacement) + body[match.end() :],
    )


@functools.cache
def sources(folder: Path) -> list[tuple[Path, str]]:
    """The files of a folder in which functions are found, and their text."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in FUNCTIONS)
    return [(path, path.read_text()) for path in files]


def functions_in_cpp(text: str, name: str) -> Iterator[str]:
    """The definitions of a function: from its name to its closing brace."""
    for start in re.finditer(rf"(?<![\w:.>]){re.escape(name)}(?=\()", text):
        head = _balanced(text, start.end(), "()")
        opening = re.compile(r"[\s\w]*(?=\{)").match(text, head)
        if opening:
            yield text[start.start() : _balanced(text, opening.end(), "{}")]


def functions_in_python(text: str, name: str) -> Iterator[str]:
    """The definitions of a function, whichever class they are in."""
    if f"def {name}(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield "".join(text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])


FUNCTIONS = {
    ".cc": functions_in_cpp,
    ".h": functions_in_cpp,
    ".cu": functions_in_cpp,
    ".py": functions_in_python,
}


def _balanced(text: str, at: int, pair: str) -> int:
    """Where the bracket that opens at `at` has closed."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return place + 1
    return len(text)


#: By file: the next one of a file breaks it anew before anything is compiled of the sound one.
PATCHES = sorted(map(patch_of, MUTATIONS), key=lambda patch: (patch.file, patch.name))


def detected_by(kind: str) -> list[Patch]:
    """The patches that something of this kind detects: "native", "run" or "ratio"."""
    return [patch for patch in PATCHES if patch.detected_by.split()[0] == kind]

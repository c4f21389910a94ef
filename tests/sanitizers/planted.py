"""Defects that a sanitizer must find."""

from __future__ import annotations

from mutations import Mutation

PLANTED = (
    Mutation("completed_without_release",
             "A worker tells that a request is complete, and publishes nothing of what it wrote.",
             r"thread: data race.*softtcpx::",
             "Comm::complete_in_order", r"completed, std::memory_order_release",
             "completed, std::memory_order_relaxed"),
    Mutation("record_without_release",
             "A caller's record is there before what it says.",
             r"thread: data race.*tap::",
             "put", r"head \+ 1, std::memory_order_release", "head + 1, std::memory_order_relaxed"),
    Mutation("region_never_freed", "A registration is taken back and its record kept.",
             r"address: leak of .*softtcpx::Region.*reg_mr",
             "dereg_mr", r"delete region;", ""),
    Mutation("shift_by_the_whole_width", "A random number is shifted by more bits than it has.",
             r"address: shift exponent 6[45] is too large.*BouncePool::random",
             "BouncePool::random", r"random_state_ >> 27", "random_state_ >> (64 + below % 2)"),
    Mutation("worker_adopts_without_its_lock",
             "A connection is handed to a worker without the lock of its list.",
             r"thread: data race.*Worker::(adopt|take_changes)",
             "Worker::adopt", r"const std::lock_guard<std::mutex> lock\(mutex_\);", ""),
    Mutation("write_behind_the_readers", "A receiver writes behind the readers of its sockets.",
             r"address: heap-buffer-overflow.*RecvComm::step",
             "RecvComm::step", r"(?=SocketReader& reader = readers_\[socket\];)",
             "readers_[sockets_.data.size()].left = 0; "),
)  # fmt: skip

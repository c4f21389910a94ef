"""Who asks whom, in which memory; shapes of KV caches."""

from __future__ import annotations

import itertools

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.nixl.request import PRESETS, Request, kv_shape, request_of_kv
from tcpx_mpi.nixl.roles import Roles, memory_bytes, refuse_memory, roles_of


@pytest.mark.parametrize(
    ("initiators", "targets", "world", "expected"),
    [
        (None, None, None, ((0,), (1,))),
        (None, None, 5, ((0, 1), (2, 3, 4))),
        ("0-3", "4-7", 8, ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("0,2", None, 4, ((0, 2), (1, 3))),
        (None, "0", 4, ((1, 2, 3), (0,))),
        (None, "1-3", None, ((0,), (1, 2, 3))),
    ],
)
def test_who_is_not_named_is_the_other(
    initiators: str | None, targets: str | None, world: int | None,
    expected: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:  # fmt: skip
    roles = roles_of(initiators, targets, 1, world)
    assert (roles.initiators, roles.targets) == expected


@pytest.mark.parametrize(
    ("initiators", "targets", "world", "text"),
    [
        ("0", None, 1, "nixl needs 2 ranks, and mpirun started 1"),
        ("0-3", "4-8", 8, "name rank 8, and mpirun started 8"),
        ("0-1", "2", 4, "rank 3 is neither"),
        ("0-3", None, 4, r"--initiators \(0-3\) leaves no rank for --targets"),
        ("99999999", "0", 4, "is no list of ranks"),
        ("0-1,1-2", "2-3", 4, "overlap in rank 2"),
    ],
)
def test_what_ranks_cannot_be_is_refused(
    initiators: str, targets: str | None, world: int, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        roles_of(initiators, targets, 1, world)


def test_no_two_requests_share_memory_on_either_side() -> None:
    roles = Roles((0, 2), (1, 3, 4), batch=3)
    for rank in range(roles.world):
        used = [
            roles.slot(rank, peer, number)
            for peer, number in itertools.product(roles.peers(rank), range(roles.batch))
        ]
        assert sorted(used) == list(range(roles.slots(rank)))
    assert [roles.slots(rank) for rank in range(5)] == [9, 6, 9, 6, 6]


def test_a_node_needs_what_all_of_its_agents_and_one_judgement_each_need() -> None:
    roles = Roles((0,), (1, 2))
    nodes, names = ["a", "b", "b"], ["one", "two", "two"]
    needed = 2 * 1000 + 2 * 3 * 1000
    refuse_memory(roles, 1000, nodes, names, [0, needed, needed])
    with pytest.raises(UsageError, match=r"agents on two need 7.81 KiB, available are 7.81 KiB"):
        refuse_memory(roles, 1000, nodes, names, [0, needed, needed - 1])
    with pytest.raises(UsageError, match="are more than 9223372036854775807 bytes"):
        memory_bytes(roles, 0, 1 << 62)


def test_a_cache_has_keys_and_values_of_each_layer_and_block() -> None:
    assert request_of_kv("read", kv_shape("3,2,8,16,33")) == Request("read", 18, 512, 1024)
    # Kibibytes of a token, as the models' authors have them.
    of_token = {
        name: shape.blocks * shape.block_bytes / shape.tokens / 1024
        for name, shape in PRESETS.items()
    }
    assert of_token == {
        "llama-3.1-8b": 128.0,
        "llama-3.1-70b": 320.0,
        "mixtral-8x7b": 128.0,
        "qwen3-235b-a22b": 188.0,
        "deepseek-v3": 68.625,
    }


def test_four_agents_of_every_small_preset_have_room_in_a_small_machine() -> None:
    for name in PRESETS:
        small = kv_shape(f"{name}-small")
        assert small.tokens * 32 == PRESETS[name].tokens
        slot = request_of_kv("write", small).slot_bytes
        refuse_memory(Roles((0, 1), (2, 3)), slot, ["a"] * 4, ["a"] * 4, [16 << 30] * 4)

"""softtcpx: a peer one of whose sockets breaks is error 2."""

from __future__ import annotations

import socket

import pytest
from ends import ends_of
from fresh_process import in_fresh_process
from net_v7 import SUCCESS, SYSTEM, Memory, Net, until
from own_process import data_sockets

pytestmark = pytest.mark.only_softtcpx


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process()
def test_the_end_of_a_data_socket_right_behind_its_last_byte_is_noticed(
    environ: dict[str, str],
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(b"s" * 5000), Memory(5000))
    control_and_data = data_sockets(port_side=False)
    receiver.post(0, 5000)
    for _ in range(100):  # the first looks, that find nothing yet
        assert net.test(receiver.pending[0]) == (SUCCESS, False)
    sender.post(0, 5000)
    until(sender.test_head, "the send")
    # Descriptors are handed out in order: the control socket is the older one.
    control_and_data[1].shutdown(socket.SHUT_WR)
    receiver.post(0, 5000)
    until(receiver.test_head, "what was sent")
    assert net.code_of(receiver.pending[0]) == SYSTEM


@pytest.mark.parametrize("victim", [0, 2])  # of control and two data sockets
@pytest.mark.parametrize("receiving_side", [True, False])
@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_broken_socket_ends_the_pending_requests_with_code_2(
    environ: dict[str, str], victim: int, receiving_side: bool
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(64 << 20), Memory(64 << 20))
    receiver.post(0, 64 << 20)
    sockets = data_sockets(port_side=receiving_side)
    assert len(sockets) == 3
    sockets[victim].shutdown(socket.SHUT_RDWR)
    # A connection of which one socket is gone: more is sent than its buffers hold.
    sender.post(0, 64 << 20)
    codes: dict[bool, int] = {}

    def both_failed() -> bool:
        for end in (sender, receiver):
            code, done = net.test(end.pending[0])
            assert not done
            if code != SUCCESS:
                codes[end.sends] = code
                if len(codes) == 1:  # as a caller does: the first error closes that side
                    close = net.table.close_send if end.sends else net.table.close_recv
                    assert code == SYSTEM
                    assert close(end.comm) == SUCCESS
                    survivors.remove(end)
                    return True
        return False

    survivors = [sender, receiver]
    until(both_failed, "the first error")
    assert net.code_of(survivors[0].pending[0]) == SYSTEM

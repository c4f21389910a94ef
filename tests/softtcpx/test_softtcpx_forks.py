"""softtcpx in a forked child: connections of its own, or a refusal that harms nobody."""

from __future__ import annotations

import ctypes
import os

import pytest
from ends import exchange
from fresh_process import in_fresh_process
from net_v7 import HANDLE_BYTES, INVALID_USAGE, Connecting, Net, connected, handshake

pytestmark = pytest.mark.only_softtcpx


@pytest.mark.parametrize("environ", [{}, {"NCCL_SOCKET_NTHREADS": "1"}])
@in_fresh_process()
def test_a_child_that_is_forked_before_any_connection_has_its_own(environ: dict[str, str]) -> None:
    net = Net().started()
    child = os.fork()
    exchange(net, *connected(net))
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("environ", [{}, {"NCCL_SOCKET_NTHREADS": "1"}])
@in_fresh_process()
def test_a_child_that_is_forked_later_is_refused_and_harms_nothing(environ: dict[str, str]) -> None:
    net = Net(log=True).started()
    ends = connected(net)
    listen_comm, handle = net.listen()
    child = os.fork()
    if child == 0:
        at, own = ctypes.create_string_buffer(HANDLE_BYTES), ctypes.c_void_p()
        listening = net.table.listen(0, at, ctypes.byref(own))
        codes = (listening, Connecting(net, handle).step()[0], net.accept(listen_comm)[0])
        why = f"process {os.getpid()} was forked from process {os.getppid()}"
        told = [line for line in net.log_lines if why in line]
        os._exit(0 if codes == (INVALID_USAGE,) * 3 and len(told) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    exchange(net, *ends)
    exchange(net, *handshake(net, listen_comm, Connecting(net, handle)))

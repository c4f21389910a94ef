"""Runs the schedules of all ranks with a clock: what a pattern would take on a network of given
latency and bandwidth.

The order of things is the interpreter's: queues of (peer, lane, channel, direction), windows,
predecessors chunk by chunk or whole, iterations back to back. To it come costs, as LogGP has them
(Alexandrov et al. 1995): a chunk takes its NIC, at either end, `overhead + bytes / bandwidth`, and
is on its way `latency` between them. A NIC takes the chunks of its ranks one after the other, out
and in at the same time. A send is complete when it has left its NIC, a receive when its bytes are
there and it is posted. A reduction may cost something for each byte, a copy costs nothing; the
network between the NICs never fills, and all NICs are alike.
"""

from tcpx_mpi.schedule.simulator.costs import Costs
from tcpx_mpi.schedule.simulator.predict import Prediction, predict

__all__ = ["Costs", "Prediction", "predict"]

"""Runs the schedules of all ranks in numpy, as the engine would, and proves what they promise.

No run asks it: the tests prove every pattern, and `prove` is there for whoever writes one.

The model is the engine's. A rank has one queue for each (peer, lane, channel, direction) and one
for each channel's copies, all in the order of its table; chunk c of a step is on channel
c % channels. Only the head of a queue may be posted: when its predecessors are satisfied, its
window has room, and, for sends and copies, the rank has finished all earlier iterations. Receives
are posted as early as that allows, also those of later iterations. Messages meet their receives in
order, for each (source, destination, lane, channel). Nothing else orders anything.

Instead of payload every byte carries its origin: iteration, rank and offset in that rank's
payload. A reduction makes a multiset of origins, in any order; a scaled value is another one. Such
a value is known by a 62-bit number (`values`), so a proof of it errs with probability 2^-62 a byte.

Whatever may happen stays possible until it happens, whatever else happens before. So the end does
not depend on the order of events, and one order without a deadlock proves all; `order` is there to
test that claim. Races within a rank are looked for in the table, not in one lucky order.
"""

from tcpx_mpi.schedule.interpreter.proof import prove

__all__ = ["prove"]

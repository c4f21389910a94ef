"""Two sessions of this process and a message between them: hanging_call.py PLUGIN [OPTIONS] [S].

OPTIONS are those of Session, in Python. What else this program has takes S seconds to end."""

import ast
import atexit
import sys
import time

import numpy as np

if len(sys.argv) > 3:
    # Holds the end of the process, which is what is tested, behind all that is imported.
    atexit.register(time.sleep, float(sys.argv[3]))

from tcpx_mpi import Session

options = ast.literal_eval(sys.argv[2]) if len(sys.argv) > 2 else {}
one, other = (Session(plugin=sys.argv[1], channels=1, **options) for _ in range(2))
of_one, of_other = one.listen(), other.listen()
one.load_remote_conn_info(of_other)
other.load_remote_conn_info(of_one)
one.establish()
other.establish()
source, sink = np.full(100_003, 7, np.uint8), np.zeros(100_003, np.uint8)
sent, received = one.register_memory(source), other.register_memory(sink)
with one.create_transfer() as sends, other.create_transfer() as receives:
    receives.post_recv(received)
    sends.post_send(sent)
    receives.wait()
    sends.wait()
one.deregister_memory(sent)
one.close()
other.close()
print("right" if (sink == source).all() else "wrong")

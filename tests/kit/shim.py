"""`python` and `oauthbroker` in the shell of a page: hands the command to the test (tests/kit/shims.py), ends as it ends."""

import marshal
import os
import signal
import socket
import sys

if __name__ == "__main__":
    address, *words = sys.argv[1:]
    test = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    test.connect(f"\0{address}")
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: test.send(bytes([number])))
    socket.send_fds(test, [marshal.dumps((words, os.getcwd(), dict(os.environ)))], [0, 1, 2])  # noqa: PTH109  (small)
    status = int(test.recv(10))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)

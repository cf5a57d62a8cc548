"""Become another user for good, then a command. A script of the standard library alone. Arguments: the user id, the
group id, then the command. Exit status 126: it could not be started."""

from __future__ import annotations

import ctypes
import os
import sys

NO_NEW_PRIVILEGES = 38  # of prctl(2)
NOT_STARTED = 126


def main() -> None:
    user, group, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.unsetenv("PWD")  # bubblewrap has set it
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell
    except OSError as error:
        sys.stderr.write(f"user {user} cannot run {command[0]}: {error.strerror}\n")
    os._exit(NOT_STARTED)


if __name__ == "__main__":
    main()

"""The system calls that a sandbox refuses, as a filter of the kernel (seccomp, in classic BPF). They reach kernel code
that no tool needs (mounts, namespaces, keyrings, tracing, modules, clocks), or leave something behind: files that
change their user when they are run, and input to a terminal."""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence
from functools import cache
from typing import Final, Literal

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # seccomp(2)
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
_X32: Final = 0x40000000  # numbers of another set of calls on x86_64

_NAMESPACES: Final = 0x7E020000  # the flags CLONE_NEW*
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_SET_ID: Final = 0o6000  # S_ISUID, S_ISGID
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # input to a terminal
_FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; AF_VSOCK knows no namespace

# Numbers on x86_64 and aarch64.
_REFUSED: Final = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "syslog": (103, 116), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
# Programs fall back to an older call, whose arguments a filter can read.
_ABSENT: Final = {
    "clone3": (435, 435), "openat2": (437, 437), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}  # fmt: skip
Test = tuple[int, Literal["any", "equal"], int]  # which argument, how, and of what
_BY_ARGUMENTS: Final[Sequence[tuple[str, tuple[int | None, int | None], Sequence[Test]]]] = (
    ("clone", (56, 220), [(0, "any", _NAMESPACES)]),
    ("ioctl", (16, 29), [(1, "equal", _TIOCSTI)]),
    ("ioctl", (16, 29), [(1, "equal", _TIOCLINUX)]),
    ("chmod", (90, None), [(1, "any", _SET_ID)]),
    ("fchmod", (91, 52), [(1, "any", _SET_ID)]),
    ("fchmodat", (268, 53), [(2, "any", _SET_ID)]),
    ("fchmodat2", (452, 452), [(2, "any", _SET_ID)]),
    ("mkdir", (83, None), [(1, "any", _SET_ID)]),
    ("mkdirat", (258, 34), [(2, "any", _SET_ID)]),
    ("mknod", (133, None), [(1, "any", _SET_ID)]),
    ("mknodat", (259, 33), [(2, "any", _SET_ID)]),
    ("creat", (85, None), [(1, "any", _SET_ID)]),
    ("open", (2, None), [(1, "any", _CREATES), (2, "any", _SET_ID)]),
    ("openat", (257, 56), [(2, "any", _CREATES), (3, "any", _SET_ID)]),
)
_SOCKET: Final = (41, 198)
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, architecture


@cache
def filter_program(machine: str = platform.machine()) -> bytes:
    """Return the filter for a machine, as bubblewrap takes it; nothing for a machine whose numbers are not known."""
    if (known := _MACHINES.get(machine)) is None:
        return b""
    column, architecture = known
    program = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, yes=1), _step(_RETURN, _KILL)]
    program += [_step(_LOAD, _NUMBER)]
    if column == 0:
        program += [_step(_AT_LEAST, _X32, no=1), _refuse(errno.ENOSYS)]
    for table, error in ((_REFUSED, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                program += [_step(_EQUAL, number, no=1), _refuse(error)]
    for _name, places, tests in _BY_ARGUMENTS:
        if (number := places[column]) is not None:
            program += _by_arguments(number, tests)
    return b"".join([*program, *_families(_SOCKET[column]), _step(_RETURN, _ALLOW)])


def _by_arguments(number: int, tests: Sequence[Test]) -> list[bytes]:
    """Refuse a call for which all tests hold. The number is loaded again for the steps that follow."""
    steps = list[bytes]()
    for left, (argument, how, value) in zip(range(len(tests) - 1, -1, -1), tests, strict=True):
        how_code = _ANY_BIT if how == "any" else _EQUAL
        steps += [_step(_LOAD, _ARGUMENTS + 8 * argument), _step(how_code, value, no=2 * left + 1)]
    steps += [_refuse(errno.EPERM), _step(_LOAD, _NUMBER)]
    return [_step(_EQUAL, number, no=len(steps)), *steps]


def _families(number: int) -> list[bytes]:
    allowed = [_step(_EQUAL, each, yes=len(_FAMILIES) - at) for at, each in enumerate(_FAMILIES)]
    steps = [_step(_LOAD, _ARGUMENTS), *allowed, _refuse(errno.EAFNOSUPPORT)]
    return [_step(_EQUAL, number, no=len(steps)), *steps]


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction. `yes` and `no` are how many of the next ones a jump leaves out."""
    return struct.pack("=HBBI", code, yes, no, value)

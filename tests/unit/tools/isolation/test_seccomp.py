"""The filter of system calls, run as the kernel runs it."""

from __future__ import annotations

import errno
import struct

import pytest

from oauthbroker.tools.isolation.seccomp import filter_program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers by name, (x86_64, aarch64), copied from the headers of Linux: asm/unistd_64.h and asm-generic/unistd.h.
REFUSED = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272, mount 165 40,
umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, open_tree_attr 467 467, move_mount 429 429,
fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, unshare 272 97, setns 308 268,
add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282,
fanotify_init 300 262, open_by_handle_at 304 265, kexec_load 246 104, kexec_file_load 320 294, init_module 175 105,
finit_module 313 273, delete_module 176 106, acct 163 89, quotactl 179 60, quotactl_fd 443 443, reboot 169 142,
swapon 167 224, swapoff 168 225, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, syslog 103 116,
vhangup 153 58, iopl 172 -, ioperm 173 -
"""
ABSENT = "clone3 435 435, openat2 437 437, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427"
NEW_USER, THREAD, CREATES, TEMPORARY, SET_UID, SET_GID = 0x10000000, 0x003D0F00, 0o100, 0o20200000, 0o4755, 0o2755
# A call with its arguments: refused, and the same call as programs make it.
BY_ARGUMENTS = [
    *(
        ("clone 56 220", (flag,), (THREAD,))
        for flag in (NEW_USER, 0x20000, 0x40000000, 0x2000000, 0x4000000, 0x8000000)
    ),
    ("clone 56 220", (0x20000000 | 17,), (17,)),
    ("ioctl 16 29", (0, 0x5412), (0, 0x5401)),
    ("ioctl 16 29", (0, 0x541C), (0, 0x541B)),
    ("chmod 90 -", (0, SET_UID), (0, 0o755)),
    ("fchmod 91 52", (0, SET_GID), (0, 0o755)),
    ("fchmodat 268 53", (0, 0, SET_UID), (0, 0, 0o1777)),
    ("fchmodat2 452 452", (0, 0, SET_UID), (0, 0, 0o755)),
    ("mkdir 83 -", (0, SET_GID), (0, 0o755)),
    ("mkdirat 258 34", (0, 0, SET_GID), (0, 0, 0o755)),
    ("mknod 133 -", (0, SET_UID), (0, 0o644)),
    ("mknodat 259 33", (0, 0, SET_UID), (0, 0, 0o644)),
    ("creat 85 -", (0, SET_UID), (0, 0o644)),
    ("open 2 -", (0, CREATES, SET_UID), (0, CREATES, 0o644)),
    ("open 2 -", (0, TEMPORARY, SET_UID), (0, 0, SET_UID)),
    ("openat 257 56", (0, 0, CREATES, SET_UID), (0, 0, CREATES, 0o644)),
    ("openat 257 56", (0, 0, TEMPORARY, SET_GID), (0, 0, 0, SET_UID)),
]
FAMILIES = {1, 2, 10, 16}
SOCKET = {"x86_64": 41, "aarch64": 198}


def numbers(table: str, machine: str) -> dict[str, int]:
    rows = [row.split() for row in table.replace("\n", " ").split(",")]
    column = 1 + list(MACHINES).index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def decision(machine: str, number: int, arguments: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """Return what the filter of a machine answers to a system call."""
    words = [number, architecture or MACHINES[machine], 0, 0]
    for each in (*arguments, *[0] * (6 - len(arguments))):
        words += [each & 0xFFFFFFFF, each >> 32]
    program: list[tuple[int, int, int, int]] = [
        struct.unpack("=HBBI", step) for step in _pieces(filter_program(machine))
    ]
    at = loaded = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            loaded = words[value // 4]
        elif code == 0x06:
            return value
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += yes if holds else no


def _pieces(program: bytes) -> list[bytes]:
    return [program[at : at + 8] for at in range(0, len(program), 8)]


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_no_tool_needs_are_refused_and_all_others_allowed(machine):
    refused, absent = numbers(REFUSED, machine), numbers(ABSENT, machine)
    expected = dict.fromkeys(range(500), ALLOW)
    expected |= dict.fromkeys(refused.values(), ERRNO | errno.EPERM)
    expected |= dict.fromkeys(absent.values(), ERRNO | errno.ENOSYS)
    expected[SOCKET[machine]] = ERRNO | errno.EAFNOSUPPORT  # of family 0
    assert expected == {number: decision(machine, number) for number in expected}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "refused", "usual"), BY_ARGUMENTS)
def test_calls_are_refused_by_their_arguments(machine, call, refused, usual):
    for number in numbers(call, machine).values():
        assert ERRNO | errno.EPERM == decision(machine, number, refused)
        assert ALLOW == decision(machine, number, usual)


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_four_families(machine):
    allowed = {family for family in range(64) if decision(machine, SOCKET[machine], (family,)) == ALLOW}
    assert FAMILIES == allowed


def test_another_set_of_numbers_is_no_way_around():
    i386, x32 = 0x40000003, 0x40000000
    assert KILL == decision("x86_64", 26, architecture=i386)
    assert ERRNO | errno.ENOSYS == decision("x86_64", x32 | 101)


def test_a_machine_without_known_numbers_has_no_filter():
    assert b"" == filter_program("riscv64")

"""A tool that tries to leave its sandbox. Each attempt ends with OSError, which says that it was refused, or returns what
it got. No attempt changes a setting of the machine: they look at the flags of mounts, ask `access`, and connect without
sending."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_TRACEME, PTRACE_ATTACH, KEYCTL_GET_KEYRING_ID, NEW_USER = 0, 16, 0, 0x10000000
TIOCSTI, AF_VSOCK = 0x5412, 40
NUMBERS = {
    "x86_64": {"keyctl": 250, "userfaultfd": 323, "bpf": 321},
    "aarch64": {"keyctl": 219, "userfaultfd": 282, "bpf": 280},
}
ENVIRONMENT = {"PATH", "LANG", "HOME", "PWD", "LC_CTYPE"}
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "shm", "pts", "ptmx", "console", "core", "fd", "stdin"}
DEVICES |= {"stdout", "stderr"}


def refused(what: str) -> None:
    raise OSError(what)


def must(safe: object, reported: object) -> Any:
    """Raise OSError for a safe state; else return the finding."""
    return refused("as it should be") if safe else reported


def called(result: int) -> int:
    """Return the result of a function of C. Raises OSError for its error."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def syscall(name: str, *arguments: int) -> int:
    return called(LIBC.syscall(NUMBERS[os.uname().machine][name], *arguments))


def names(folder: str) -> set[str]:
    return {each.name for each in Path(folder).iterdir()}


def read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def connected(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> str:
    with socket.socket(family, kind) as line:
        line.settimeout(2)
        line.connect(address)
        return "connected"


def mounts() -> list[tuple[str, set[str]]]:
    """Return the places of all mounts, with the flags of each."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [(each[4], set(each[5].split(","))) for each in lines]


def writable_mounts(args: Any) -> list[str]:
    own = {args["workdir"], "/tmp", *(f"/dev/{each}" for each in DEVICES)}
    return [place for place, flags in mounts() if "ro" not in flags and place not in own]


def with_devices() -> list[str]:
    return [place for place, flags in mounts() if not {"nodev", "nosuid"} <= flags and place[:5] != "/dev/"]


def host_environment(args: Any) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [str(each)] if args["canary"] in each.read_text(errors="replace") else []
        except OSError:
            continue
    return found


def first_process(_args: Any) -> Any:
    found = {each.partition("=")[0] for each in Path("/proc/1/environ").read_text().split("\0") if each}
    return must(found <= ENVIRONMENT, found)


def descriptors(_args: Any) -> Any:
    found = {each.name: str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if _is_open(each.name)}
    kinds = {"/dev/null"} | {each for each in found.values() if each.startswith("socket:")}
    return must(len(found) <= 4 and set(found.values()) <= kinds, found)


def _is_open(number: str) -> bool:
    """Return whether a descriptor is open still: the one that lists the others is not."""
    try:
        os.fstat(int(number))
    except OSError:
        return False
    return True


def traces(_args: Any) -> Any:
    return called(LIBC.ptrace(PTRACE_ATTACH, 1, None, None))


def is_traced(_args: Any) -> Any:
    """Ask in a child, which would stop at its next signal."""
    child = os.fork()
    if child == 0:
        os._exit(LIBC.ptrace(PTRACE_TRACEME, 0, None, None) & 1)
    return must(os.waitpid(child, 0)[1] != 0, "traced")


def types_into_terminal(_args: Any) -> Any:
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, TIOCSTI, b"x")
    finally:
        os.close(master)
        os.close(slave)
    return "typed"


def set_id(args: Any) -> Any:
    file = Path(args["workdir"], "file")
    file.touch()
    file.chmod(0o4755)
    return oct(file.stat().st_mode)


def set_id_from_the_start(args: Any) -> Any:
    os.close(os.open(Path(args["workdir"], "other"), os.O_CREAT | os.O_WRONLY, 0o4755))
    return "created"


def device(args: Any) -> Any:
    os.mknod(Path(args["workdir"], "device"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return "made"


def forks(args: Any) -> Any:
    """Fork, a bounded number of times, until the limit. The children wait for a pipe that this process closes."""
    reading, writing = os.pipe()
    children = []
    try:
        for _ in range(2 * args["processes"]):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            children.append(child)
    finally:
        os.close(writing)
        for child in children:
            os.waitpid(child, 0)
    return len(children)


def limited(process: str) -> bool:
    """Return whether a process has no capability, can get none, and has the filter of system calls."""
    lines = Path("/proc", process, "status").read_text().splitlines()
    facts = dict(line.split(":\t") for line in lines if ":\t" in line)
    known = os.uname().machine in NUMBERS
    return int(facts["CapPrm"], 16) == 0 and facts["NoNewPrivs"] == "1" and facts["Seccomp"] == ("2" if known else "0")


def size(path: str) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def hidden(args: Any) -> Any:
    """Look for the canary in every file of the machine that has it."""
    found = []
    for each in args["secrets"]:
        try:
            found += [each] if args["canary"] in Path(each).read_text() else []
        except OSError:
            continue
    return must(not found, found)


ATTEMPTS: dict[str, Callable[[Any], Any]] = {
    "the broker's socket": lambda args: connected(socket.AF_UNIX, args["socket"]),
    "an abstract socket": lambda args: connected(socket.AF_UNIX, "\0" + args["abstract"]),
    "a server of this machine": lambda args: connected(socket.AF_INET, ("127.0.0.1", args["port"])),
    "the metadata address": lambda _args: connected(socket.AF_INET, ("169.254.169.254", 80), socket.SOCK_DGRAM),
    "a public address": lambda _args: connected(socket.AF_INET, ("192.0.2.1", 80), socket.SOCK_DGRAM),
    "sockets of virtual machines": lambda _args: socket.socket(AF_VSOCK).close(),
    "raw packets": lambda _args: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "secrets in files": hidden,
    "users of the machine": lambda _args: Path("/etc/passwd").read_text(),
    "root's folder": lambda _args: must(names("/root") <= {".pyenv"}, names("/root")),
    "files that may be written": lambda args: must(not writable_mounts(args), writable_mounts(args)),
    "devices and user ids of mounts": lambda _args: must(not with_devices(), with_devices()),
    "the root folder": lambda _args: must(read_only("/"), "writable"),
    "/dev itself": lambda _args: must(read_only("/dev"), "writable"),
    "/proc/sys": lambda _args: must(read_only("/proc/sys"), "writable"),
    "settings of the kernel": lambda _args: must(not os.access("/proc/sys/kernel/core_pattern", os.W_OK), "writable"),
    "environments of processes": lambda args: must(not host_environment(args), host_environment(args)),
    "environment of the first process": first_process,
    "own environment": lambda _args: must(set(os.environ) <= ENVIRONMENT, sorted(os.environ)),
    "processes of the machine": lambda args: os.kill(args["victim"], 0),
    "a list of processes": lambda _args: must(len(list(Path("/proc").glob("[0-9]*"))) < 5, "many"),
    "descriptors": descriptors,
    "to trace": traces,
    "to be traced": is_traced,
    "rights of the first process": lambda _args: must(limited("1"), "more rights than the tool"),
    "a user namespace": lambda _args: called(LIBC.unshare(NEW_USER)),
    "a mount": lambda _args: called(LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "an unmount": lambda _args: called(LIBC.umount2(b"/proc", 0)),
    "a keyring": lambda _args: syscall("keyctl", KEYCTL_GET_KEYRING_ID, -4, 0),
    "userfaultfd": lambda _args: syscall("userfaultfd", 1),
    "bpf": lambda _args: syscall("bpf", 0, 0, 0),
    "input of a terminal": types_into_terminal,
    "a program with a user id": set_id,
    "a program that is made with a user id": set_id_from_the_start,
    "a device": device,
    "a hard link to a file of its own": lambda args: os.link(args["entry"], f"{args['workdir']}/link"),
    "a hard link to the system": lambda args: os.link("/usr/bin/env", f"{args['workdir']}/link"),
    "shared memory": lambda args: called(LIBC.shmget(args["segment"], 0, 0)),
    "files in shared memory": lambda args: Path(args["shared"]).read_text(),
    "core files": lambda _args: must(resource.getrlimit(resource.RLIMIT_CORE) == (0, 0), "allowed"),
    "more processes": forks,
    "more memory for files": lambda args: must(max(size("/tmp"), size("/dev/shm")) <= args["size"], "unlimited"),
    "rights": lambda _args: must(limited("self"), Path("/proc/self/status").read_text()),
    "another user": lambda _args: must((os.getuid(), os.getgid()) == (1000, 1000), os.getuid()),
    "the name of the machine": lambda _args: must(socket.gethostname() == "sandbox", socket.gethostname()),
    "a session of the machine": lambda _args: must(os.getsid(0) != 0, "no session of its own"),
    "other devices": lambda _args: must(names("/dev") <= DEVICES, names("/dev")),
}


def escape(ctx: Any, args: Any) -> Any:
    """Return what attempts got, by their names."""
    got = {}
    for name, attempt in ATTEMPTS.items():
        try:
            got[name] = str(attempt({**args, "workdir": str(ctx.workdir)}))
        except OSError:
            continue
    return got


def missing(_ctx: Any, args: Any) -> Any:
    """Return the paths that should be there and are not."""
    return [each for each in args["shown"] if not Path(each).exists()]


def sleeps(_ctx: Any, _args: Any) -> Any:
    import time

    time.sleep(300)


handlers = {"escape": escape, "missing": missing, "sleeps": sleeps}

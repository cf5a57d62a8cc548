"""Attempts on the targets, with their gains, and the measured reasons for the rest: on files, and on PostgreSQL."""

from __future__ import annotations

ON_FILES = {
    "cold call": """\
two ways were slower by 6 %: the JSON parser of the standard library, and keys by `hmac.digest` in place of HKDF. If
the record cost nothing to decode, the call would still take 3.9 limits; with the grant in memory and decided anew it
takes 2. Reading (43 us) and deciding (39 us) take 82 us alone and 112 us by turns: together they need more than the
processor's caches hold.""",
    "audit entry": """\
one format string for each type gained 0.3 of 7.5 us and was dropped. The entry's object takes 0.9 writes of such a
line, its text 1.7, the MAC of the chain 0.8. An entry whose object and text are ready takes 3.5.""",
    "`store.put` alone": """\
a write reads the header alone of a version that this process has opened or sealed, and no longer takes its disk space
first: 1.19, and 1.18 before, in eleven pairs of runs on a quiet machine, so no gain. 21 short system calls more than
the bare ones are left, for the lock, its name, the keyring and the version in place. The order after a crash and the
rotation of keys need them. So the ratio follows the disk: 1.18 to 1.21 minutes later, when a bare replacement took
1.1 ms in place of 0.64. A write takes 0.3 ms of user time, the bare one 0.12.""",
    "`store.put` together": """\
a fifth of the writes met a lock that another write of this process held, and polled for it every 5 ms. Now that one
wakes them, and the header is enough: 0.78 where it was 0.75, the medians of eleven pairs of runs on a quiet machine.
It follows the disk, too: 0.72 to 0.76 minutes after this run. Three things were dropped: a thread that syncs the
files of all (0.28), and 32 threads and a folder's sync for each write (no gain).""",
    "a whole refresh, without the provider's answer": """\
strace counts the four syncs of the two writes. A refresh takes 4.7 ms of CPU: the writes 1.8, the request 1.7, and
the lease, the looks at the grant, the reserved space and two audit entries 1.2. So the ratio follows the disk: 1.2
where two writes take 19 ms, 1.7 where they take 2 ms.""",
    "16 refreshes at once, each": """\
they share syncs: 0.21 to 0.33 of one alone where two writes take 20 to 30 ms. At 2 ms it is 0.68 to 0.78, because a
refresh is then 3.6 ms of one core's work.""",
    "an event on files": """\
strace counts nine syncs against three: body, place, lease and acknowledgement each replace a file, which takes two,
and the body is removed. A replacement takes 0.64 ms where an appended line with its sync takes 0.17, so that four of
them alone are five times the limit. By now, cachegrind counts 6.15 million instructions for an event and 8.41 at this
run (3 % less time): a part is encoded from the texts of its unchanged entries, and a lease looks once. An appended
log, sealed as a sketch, takes 2.3 limits and needs another write protocol. Small bodies in the place's segment save
three syncs, but one damaged segment would lose up to 64 events. An event runs as many functions with 100,000 others
as with 100; so many take 17 of the 20 MiB of a queue.""",
    "16 events at once, each": """\
changes that wait for the same queue are written once for all: 0.13 of one alone on a slow disk, 0.4 on a fast one,
where an event is 1.9 ms of one core's work.""",
    "first token of a new process": """\
516 ms became 411 by dataclasses that are made with less work, by forms and pages that are loaded when they are used,
and by a collector that rests during imports. Since this run, cachegrind counts 1,587 M instructions in place of 1,740
M: a first instance of a dataclass needs no compiled code, and validators of rare parts and of a CredentialApp are
built when a file has one. Python with asyncio, TLS, YAML, pydantic and cryptography takes 709 M of them, two thirds
of what 250 ms allow. The 350 modules of an open broker take 505 M, the configuration 250 M. A way of our own to
collect the fields of dataclasses would save 20 M by names that Python keeps private, flock without the import of
filelock 31 M, and expressions compiled at their first use 2 %: none was done.""",
    "a call of an isolated tool": """\
its two processes took 3.8 times the CPU of a plain Python before, and take 3.1 now, by turns beside other work. The
first one imports neither `json` nor `typing`; the second one neither `socket` nor, before a tool asks, `logging`, and
finds itself compiled. The end of a process wakes the first one, which looked every 10 ms.""",
}
"""Shown for every full run, whether the target is met or not."""

MEASURED = """\
## On PostgreSQL

The table has times of a quiet machine. These attempts were measured by `bench_postgres`, `bench_workers --quick` and
short scripts, both versions by turns, on two cores with much other work: CPU times hold, rates are too low."""

ON_POSTGRES = {
    "`store.get`, of one select (target 1.6)": """\
2.0 to 2.3 of the select's CPU before, 1.7 to 1.8 now (174 and 140 us at best). A connection prepares a statement that
it runs again, which saves 18 us here and two thirds of the CPU in the database. One watch of all statements in place
of three timers for each, and fewer generators around it, save 16 us. Of the rest the driver takes 60 us, as for the
select alone, the pool and the limits of time 30, opening and checking the record 50.""",
    "`store.put`, of one update (target 1.8)": """\
2.4 of the update's CPU before, 2.0 now (245 and 205 us at best), by the same changes.""",
    "warm calls in one process, of pgbench (target 0.6)": """\
Four callers needed 90 us of CPU for a call and 40 in the database, now 66 and 12: 2,300 to 2,800 calls a second
became 6,500 in the same minutes, about 0.5 of the 13,000 of pgbench. Callers that wait share a statement: sixteen
need 35 us and 4 in the database for each call, and make 14,000 calls a second. The call without its statement takes
about 30 us, which is what four callers lack.""",
    "`POST /v1/tokens`, of pgbench (target 0.4)": """\
With 1, 2 and 4 workers, 0.07, 0.11 and 0.08 became 0.41, 0.45 and 0.35, all on the two cores that the load and the
database use as well. A request's CPU in the database fell from 16, 29 to 51 and 72 to 81 us to 11, 24 to 29 and 34 to
52. In the workers it is 90, 150 and 230 us, because fewer callers meet in each statement, so that more workers than
free cores stay slower, unless they have a feed. To wait for more callers was not tried: each call would wait.""",
    "a database that comes back (target 3 s)": """\
Attempts to connect and one statement, two each second, tell when it is back, and a new pool takes over. After 5 to
300 s without it the first good answer came 0.4 to 1.1 s after its start (`tests.faults.outages`). The first call
without it failed after 2.2 s, later ones within 1.2 ms, with the cause.""",
    "2,000 grants expire at once (targets 150 a second, 1.1 calls a grant)": """\
The places for an app's calls grow by one with a round of good answers, and 429 or late answers halve them. Alone they
gave 154 calls a second, where 32 places allow 160. Whole refreshes on files reach 94: one takes 7.2 ms of a process's
CPU, 4 of them in the system, for three durable writes and a lease, and threads wait for the interpreter's lock. Two
threads in place of 16 gave 117, but share no sync of a slow disk; one that computes at a time gave 111 and cost a
fifth of `store.put` together. With 50 a second at the provider there were 1.09 calls a grant.""",
    "`keys reseal` (target 5,000 records a second)": """\
One statement replaces 128 records whose header is still the one that was read, in place of one. 580 to 1,400 a second
became 2,600 to 5,000, with a quarter of the CPU. On files 250 to 360 became 570 to 900, by shared syncs of folders.""",
}
"""The tries to bring calls on PostgreSQL to their targets, their gains, and the reasons where they fall short. Measured
by CPU or by turns beside other work, so that no figure of a run of `make bench` stands beside them."""

"""Attempts on the rows of files, with their gains, and the measured reasons for the rest."""

from __future__ import annotations

TRIED = {
    "cold call": """\
two ways were slower by 6 %: the JSON parser of the standard library, and keys by `hmac.digest` in place of HKDF. If the
record cost nothing to decode, the call would still take 3.9 limits; with the grant in memory and decided anew it takes
2. Reading (43 us) and deciding (39 us) take 82 us alone and 112 us by turns: together they need more than the
processor's caches hold. cachegrind counts 165,000 instructions for the limit and 580,000 for the call.""",
    "audit entry": """\
one format string for each type gained 0.3 of 7.5 us and was dropped. In writes of such a line, the entry's object takes
0.9, its text 1.7, the MAC of the chain 0.8. An entry whose object and text are ready takes 3.5, so that 4 leaves half a
write for both.""",
    "audit entry of a repeated call": """\
object and text are ready; the MAC, the longer line and the look at the end of the file remain. A MAC by a copied
`hmac` object took 0.4 us longer than by two copied hashes.""",
    "`store.put` alone": """\
a write reads the header alone of a version that this process has opened or sealed, and no longer takes its disk space
first: 1.22 where it was 1.27 in the same minutes. 21 short system calls more than the bare ones are left, for the lock,
its name, the keyring and the version in place. The order after a crash and the rotation of keys need them.""",
    "`store.put` together": """\
a fifth of the writes met a lock that another write of this process held, and polled for it every 5 ms. Now that one
wakes them, and the header is enough: 0.81 where it was 0.7 in the same minutes. Three things were dropped: a thread
that syncs the files of all (0.28), and 32 threads and a folder's sync for each write (no gain).""",
    "a whole refresh, without the provider's answer": """\
strace counts four syncs, those of the two writes. A refresh takes 4.7 ms of CPU: the writes 1.8, the request 1.7, and
the lease, the looks at the grant, the reserved space and two audit entries 1.2, none of them much. So the ratio follows
the disk: 1.2 where two writes take 19 ms, 1.7 where they take 2 ms.""",
    "16 refreshes at once, each": """\
they share syncs: 0.21 to 0.33 of one alone where two writes take 20 to 30 ms. At 2 ms it is 0.68, because a
refresh is then 3.6 ms of one core's work.""",
    "an event on files": """\
strace counts nine syncs against three: body, place, lease and acknowledgement each replace a file, which takes two, and
the body is removed. Fewer need a log that each queue appends to, another format. One by one, an event costs 2 ms of CPU
with 1,000 others, 3.1 with 5,000, and 4.4 with 11,586, where the 2 MiB of a queue are full and the process is 6 MiB
larger. Further events wait in the outboxes of their grants, so that none costs more.""",
    "16 events at once, each": """\
changes that wait for the same queue are written once for all: 0.13 of one alone.""",
}
"""Shown for every full run, whether the target is met or not."""

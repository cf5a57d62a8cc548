"""The sentences of docs/performance.md that hold for every run."""

from __future__ import annotations

INTRO = """\
# Performance

Written by `make performance` from [the figures of one run](performance/results.json); a test refuses a page that
differs.

Absolute times differ from machine to machine. Ratios of one run hold: both sides took turns in the same minutes.
Each figure is the median of its rounds. [Targets](performance-targets.md), [an operator with
many grants](performance-operators.md) and [all other figures](performance-figures.md) have pages of their own.
"""
QUICK = """\
**This was a quick run.** Its small counts show that each bench runs. They say nothing about speed. Repeat it as
described [below](#how-to-repeat-it)."""
TARGETS = """\
# Performance: targets

Written by `make performance` from the run of [performance](performance.md).

A target is a ratio to the least that any safe broker must do, to a bare server, or to a peer. `before` is a run of
an earlier version on a machine of the same kind. The rows of a million grants are of runs of their own
(`python -m bench.bench_growth --long`, `bench.bench_million`) beside other work, so that their times are too long."""
MEASURED = """\
## On PostgreSQL

Measured by `bench_postgres`, `bench_workers --quick` and short scripts, both versions by turns, on two cores with much
other work. CPU times hold. Rates are too low."""
LIMITED_BY = {
    "warm call": """\
the ratio depends on the processor. The same commit had 2.54 on one machine and 3.15 on the next one, where the system
calls of the limit cost less and Python's frames cost more.""",
    "the same beside MSAL's memory cache": """\
a warm call looks at the grant's file and writes an audit line with its MAC. These two alone, the second limit of
`token_call`, are more than half of our call, and so more than 0.4 of MSAL's, which does neither.""",
    "cold call": """\
cachegrind counts 165,000 instructions for its limit and 580,000 for the call: it also makes the records, decides, and
writes the audit entry. Each part alone is fast. Together they need more than the second-level cache of 1 MiB holds (570
misses a call, none for the limit), and take half as long again as one by one.""",
    "audit entry": """\
in writes of such a line, the entry's object takes 0.8, its text 1.8, the MAC of the chain 0.9, the longer line with its
MAC 1.1, and the look at the end of the file 0.2. A repeated call has the first two ready.""",
    "audit entry of a repeated call": """\
the MAC, the longer line and the look at the end of the file remain. The same bench alone, minutes later, had 3.9.""",
    "one over a Unix socket, time": """\
of the 45 us that ours takes longer, the warm token call is 17. On another machine the same commit had 1.28.""",
    "`store.put` alone": """\
it seals the record, takes the entry's lock, compares the generation and checks the lock's name: 14 short system calls
more. On another machine the same commit had 1.29.""",
    "`store.put` together": """\
writes share the sync of their folder, but each one syncs its own file before. On another machine the same commit had
0.74, and 0.7 on this one two minutes later.""",
}
"""What keeps a call from its target, as measured. Shown while the target is not met."""

ON_POSTGRES = {
    "`store.get`, of one select (target 1.6)": """\
2.0 to 2.3 of the select's CPU before, 1.7 to 1.8 now (174 and 140 us at best). A connection prepares a statement
that it runs again, which saves 18 us here and two thirds of the CPU in the database. One watch of all statements in
place of three timers for each, and fewer generators around it, save 16 us. Of the rest the driver takes 60 us, as for
the select alone, the pool and the limits of time 30, opening and checking the record 50.""",
    "`store.put`, of one update (target 1.8)": """\
2.4 of the update's CPU before, 2.0 now (245 and 205 us at best), by the same changes. The bare update seals nothing,
compares no epoch of the keyring, and starts no task that ends the write although its caller was cancelled.""",
    "warm calls in one process, of pgbench (target 0.6)": """\
Four callers needed 90 us of CPU for a call and 40 in the database, now 66 and 12: 2,300 to 2,800 calls a second became
6,500 in the same minutes, about 0.5 of the 13,000 of pgbench. Callers that wait share a statement, as before: sixteen
need 35 us and 4 in the database for each call, and make 14,000 calls a second. The call without its statement takes
about 30 us, which is what four callers lack.""",
    "`POST /v1/tokens`, of pgbench (target 0.4)": """\
With 1, 2 and 4 workers quick runs gave 0.42, 0.26 and 0.18 before and 0.26, 0.38 and 0.19 now: the other work decided.
A request's CPU in the database fell from 16, 29 to 51 and 72 to 81 us to 11, 24 to 29 and 34 to 52. In the workers it
is 90, 150 and 230 us, because fewer callers meet in each statement, so that more workers than free cores stay slower.
To wait for more callers was not tried: each call would wait.""",
    "a database that comes back (target 3 s)": """\
Plain attempts to connect, two each second, tell when it is back, and a new pool takes over. After 2 and 15 s without
it the first good answer came 0.5 and 0.7 s after its start. The first call without it failed after 2.2 s, later ones
within 1.2 ms, with the cause.""",
    "2,000 grants expire at once (targets 150 a second, 1.1 calls a grant)": """\
The places for an app's calls grow by one with a round of good answers, and 429 or late answers halve them. These places
alone, before a provider that was played and took 200 ms, gave 154 calls a second, where 32 places allow 160. With
50 a second at the provider there were 1.05 calls a grant. Whole refreshes were not measured in this way.""",
    "`keys reseal` (target 5,000 records a second)": """\
One statement replaces 128 records whose header is still the one that was read, in place of one. With 2,000 to 6,000
records, 580 to 1,400 a second became 2,600 to 5,000, and the command's CPU a quarter (12,000 a second). The rest is
the database's wait for its log. On files 250 to 360 became 570 to 900: records share the syncs of their folder, and
each still has a sync of its own.""",
}
"""The tries to bring calls on PostgreSQL to their targets, their gains, and the reasons where they fall short. Measured
by CPU or by turns beside other work, so that no figure of a run of `make bench` stands beside them."""

PEERS = """\
The question is the same: the valid token for this app and this account, please. The answers are not. Ours checks
with a `stat` that no other process changed the grant and writes an audit entry. MSAL's memory cache, Authlib's
session and the MCP SDK's provider are the memory of one process: no audit, no revocation from another process.
MSAL's file cache looks at the file's time and writes the whole cache for each token. FastMCP's storage returns a
stored token and does not assess it. The yardstick runs in both environments; its ratio says how far figures across
them may be compared."""
SLOW = """\
The user has consented, the provider takes a second to refresh, and the API that the tool calls takes 0.2 s. The
least is 1.2 s with a refresh and 0.2 s without. The MCP SDK's client provider holds its lock over the request to the
API, so parallel calls wait for one another. It does not restore the end of a stored token: after a restart the API
refuses the token, and the provider asks the user to log in although a refresh token is stored."""
OPERATOR = """\
# Performance: an operator and many grants

Written by `make performance` from the run of [performance](performance.md), or from one of its own
(`python -m bench.bench_million`) beside other work, so that times are too long.

A list shows 50 grants, or 500 as the page for operators does. A cell has the CPU, the longest turn in which the event
loop ran nothing else, and by how much the memory grew. A command is a process of its own that may read the whole
store: a cell has its CPU and its memory."""
PARALLEL = """\
The provider takes 50 ms to refresh, and all processes ask at the same moment. Perfect is one request to the
provider, with the last process ready when the first one is. Warm calls share one audit log, so their processes take
turns in it."""
LIMITS = """\
One machine is no longer enough when callers need more requests a second than its workers answer, when more grants
end at once than its disk takes writes for, or when tools must get tokens while this machine is down. A second machine
cannot share a folder on a local disk: [several machines](scaling.md) share a PostgreSQL database. Until then, add
workers up to the number of cores, embed the broker where the runtime is Python, and use a Unix socket where it is
not."""
REPEAT = """\
## How to repeat it

```sh
make bench          # about ten minutes on two quiet cores, with peers; the figures stay in bench/results
make performance    # this page from the newest full run
make bench ARGS=--long             # a million grants, too
make bench ARGS="--quick peers"    # one bench with small counts
```

Run it on a machine without other work (load below 1). [The benchmarks](../bench/README.md) say what each row does."""
ALL = """\
# Performance: all other figures

Written by `make performance` from the run of [performance](performance.md)."""

"""The sentences of docs/performance.md that hold for every run."""

from __future__ import annotations

INTRO = """\
# Performance

Written by `make performance` from [the figures of one run](performance/results.json); a test refuses a page that
differs.

Absolute times differ from machine to machine. Ratios of one run hold: both sides took turns in the same minutes.
Each figure is the median of its rounds. [Targets](performance-targets.md), [an operator with
many grants](performance-operators.md), [servers](performance-served.md) and [all other figures](performance-figures.md)
have pages of their own.
"""
QUICK = """\
**This was a quick run.** Its small counts show that each bench runs. They say nothing about speed. Repeat it as
described [below](#how-to-repeat-it)."""
TARGETS = """\
# Performance: targets

Written by `make performance` from the run of [performance](performance.md).

A target is a ratio to the least that any safe broker must do, to a bare server, or to a peer. `before` is a run of an
earlier version on a machine of the same kind; in bold it is commit {before}, run on {day} on the same machine in the
same hour ([its figures](performance/before.json)). `api` and `events` were run again in the evening, `workers` and
`storm` the next day. The row of a million grants is of a run of its own (`bench.bench_growth --long`) beside other
work, so that its time is too long. [The targets of an operator](performance-operators.md#targets) stand beside their
figures."""
LIMITED_BY = {
    "warm call": """\
the ratio depends on the processor. The same commit had 2.54 on one machine and 3.15 on the next one, where the system
calls of the limit cost less and Python's frames cost more.""",
    "the same beside MSAL's memory cache": """\
a warm call looks at the grant's file and writes an audit line with its MAC. These two alone, the second limit of
`token_call`, are more than half of our call, and so more than 0.4 of MSAL's, which does neither.""",
    "CPU of one behind uvicorn: the general way": """\
raw ASGI behind the same uvicorn takes 40 us of it, and uvicorn's check of ten more headers 3.5. Without a server the
app takes about 57, over 197 calls: the line in the log 7.5, the audit entry 7.4, two looks at files 6.9. To note that a
body was waited for without a callback gained nothing that could be measured.""",
    "one over a Unix socket, time": """\
of the 45 us that ours takes longer, the warm token call is 17. On another machine the same commit had 1.28.""",
}
"""What keeps a call from its target, as measured. Shown while the target is not met."""

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
(`python -m bench.bench_million --long`) beside other work, so that times are too long.

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
make bench          # about forty minutes on two quiet cores, with peers; the figures stay in bench/results
make performance    # this page from the newest full run
make bench ARGS=--long             # a million grants, too
make bench ARGS="--quick peers"    # one bench with small counts
```

Run it on a machine without other work (load below 1). [The benchmarks](../bench/README.md) say what each row does."""
ALL = """\
# Performance: all other figures

Written by `make performance` from the run of [performance](performance.md)."""
ALL_SERVED = """\
# Performance: servers

Written by `make performance` from the run of [performance](performance.md)."""

"""The sentences of docs/performance.md that hold for every run."""

from __future__ import annotations

INTRO = """\
# Performance

Written by `make performance` from [the figures of one run](performance/results.json); a test refuses a page that
differs.

Absolute times differ from machine to machine. Ratios of one run hold: both sides took turns in the same minutes.
Each figure is the median of its rounds.
"""
QUICK = """\
**This was a quick run.** Its small counts show that each bench runs. They say nothing about speed. Repeat it as
described [below](#how-to-repeat-it)."""
TARGETS = """\
A target is a ratio to the least that any safe broker must do, to a bare server, or to a peer. `before` is a run of
an earlier version on a machine of the same kind. The last row is measured by the long form only."""
PEERS = """\
The question is the same: the valid token for this app and this account, please. The answers are not. Ours checks
with a `stat` that no other process changed the grant and writes an audit entry. MSAL's memory cache, Authlib's
session and the MCP SDK's provider are the memory of one process: no audit, no revocation from another process.
MSAL's file cache looks at the file's time and writes the whole cache for each token. FastMCP's storage returns a
stored token and does not judge it. The yardstick runs in both environments; its ratio says how far figures across
them may be compared."""
SLOW = """\
The user has consented, the provider takes a second to refresh, and the API that the tool calls takes 0.2 s. The
least is 1.2 s with a refresh and 0.2 s without. The MCP SDK's client provider holds its lock over the request to the
API, so parallel calls wait for one another. It does not restore the end of a stored token: after a restart the API
refuses the token, and the provider asks the user to log in although a refresh token is stored."""
PARALLEL = """\
The provider takes 50 ms to refresh, and all processes ask at the same moment. Perfect is one request to the
provider, with the last process ready when the first one is. Warm calls share one audit log, so their processes take
turns in it."""
LIMITS = """\
One machine is no longer enough when callers need more requests a second than its workers answer, when more grants
end at once than its disk takes writes for, or when tools must get tokens while this machine is down. The store is a
folder on a local disk: a second machine cannot share it. Until then, add workers up to the number of cores, embed
the broker where the runtime is Python, and use a Unix socket where it is not."""
REPEAT = """\
## How to repeat it

```sh
make bench          # about ten minutes on two quiet cores, with peers; the figures stay in bench/results
make performance    # this page from the newest full run
make bench ARGS=--long             # a million grants, too
make bench ARGS="--quick peers"    # one bench with small counts
```

Run it on a machine without other work (load below 1). [The benchmarks](../bench/README.md) say what each row does."""
ALL = "## All other figures"

"""The rules of the base tools (document 002, section 14), each with its status."""

from __future__ import annotations

BASE_TOOL_RULES = {
    "002-14-1": "`file-system__read` and `write` answer the printed members, 100000 bytes unless `maxBytes` says else: as written; decided: bytes and not characters, what fits an output, and for less than 0 nothing; stricter: only below the workdir or an open changeset, without `..` and links",
    "002-14-5": "a missing file is an error with its path: as printed, in English",
    "002-14-2": "`bash__exec` and `bash__script` answer `{stdout, exitCode}`, in the workdir: as written; decided: `sh`, stderr is part of stdout, 128 and the signal, output of 100,000 bytes that fits an output, else ended by `... (truncated)`; no process outlives the call",
    "002-14-3": "`http-fetch__get` and `post` take url, headers and body: as written; decided: they answer `{status, contentType, body, truncated}` and `location`, a missing body is `{}`; stricter: https to public addresses, no redirect, no credentials in headers, values of headers are texts; `app` sends the user's token",
    "002-2.5-2": "tools with files use `ctx.workdir` by default: as written",
    "002-2.6-6": "the agents' calls have an implementation in the base package: as written",
    "002-11.3-9": "the same in the table: as written, `oauthbroker/tools/base/agents.py`",
    "002-14-4": "a base implementation of the agents' calls: as written, `agents__request`, `send`, `spawn`, `list`, `catalog`; decided: 60 seconds for a request, at most 600",
}

"""A tool with `spec.auth` for a process of its own: it uses its token, and returns the printable part."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any


def reported(result: Any) -> Any:
    if result.status == "ready":
        return {"status": "ready", "digest": sha256(result.access_token.reveal().encode()).hexdigest()}
    return result


def sync(ctx: Any, args: Any) -> Any:
    return reported(ctx.oauth.get_access_token(args["app"]))


async def waiting(ctx: Any, args: Any) -> Any:
    return reported(await ctx.oauth.get_access_token(args["app"]))


def careless(ctx: Any, args: Any) -> Any:
    return ctx.oauth.get_access_token(args["app"])


def visible(_ctx: Any, _args: Any) -> Any:
    """Return what another process of the machine can see of this one."""
    found = {}
    for name in ("cmdline", "environ"):
        with open(f"/proc/{os.getpid()}/{name}") as file:  # noqa: PTH123
            found[name] = file.read()
    return found


handlers = {"sync": sync, "waiting": waiting, "careless": careless, "visible": visible}

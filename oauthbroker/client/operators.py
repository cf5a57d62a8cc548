"""The operations of operators: apps, grants, sessions, queues, erasure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from oauthbroker.client.client_call import (
    ClientCall,
    Reply,
    done,
    found,
    list_in,
    listed,
    members_of,
    segment,
    understood,
)
from oauthbroker.client.retries import OnWire, written
from oauthbroker.client.tool_requests import AppInfo, apps
from oauthbroker.core.errors import Code
from oauthbroker.model.token_request import AppRef, call_ref
from oauthbroker.records.grant_summary import GrantSummary

IMPORT_PATIENCE = 3600.0


class OperatorCalls(OnWire):
    """The part of `Runtime` that takes an API key of role `operator`."""

    __slots__ = ()

    async def apps(self) -> list[AppInfo]:
        """Return all apps."""
        return await self._send(apps())

    async def grants(
        self, *, app: AppRef | None = None, subject: str | None = None, state: str | None = None
    ) -> AsyncIterator[GrantSummary]:
        """Yield the grants, page by page. For operators. `app`: any form of a reference; `state`: `live`, `revoked`."""
        async for each in self._pages("/v1/grants", "grants", app, subject=subject, state=state):
            yield _grant(each)

    async def import_grants(self, lines: Iterable[Mapping[str, Any]], *, key: str) -> dict[str, Any]:
        """Take over grants of another system. For operators. Returns the number of lines by outcome, and `problems`:
        the first refused lines, numbered from 1.

        Repeatable: the same `key`, 1 to 128 visible characters, with the same lines imports nothing twice. Raises
        `idempotencyConflict` for a key that came with other lines.
        """
        content = b"".join(written(line) + b"\n" for line in lines)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        call = ClientCall("POST", "/v1/grants", members_of, content=content, headers=headers, patience=IMPORT_PATIENCE)
        return await self._send(call)

    async def revoke(self, grant_id: str) -> str | None:
        """Revoke a grant at once. For operators. Returns the provider's state so far: `done`, `refused`, `none`,
        `shared` or `later`. None if there was no live grant with that id."""
        return await self._send(ClientCall("DELETE", f"/v1/grants/{segment(grant_id)}", _provider_state))

    async def grant_record(self, grant_id: str) -> dict[str, Any] | None:
        """Return the OAuthGrantRecord with its secrets masked; None if no grant has that id. For operators."""
        return await self._record(f"/v1/grants/{segment(grant_id)}/record", Code.GRANT_NOT_FOUND)

    async def sessions(
        self, *, app: AppRef | None = None, subject: str | None = None, status: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield AuthSessionRecords with their secrets masked, page by page. For operators."""
        async for each in self._pages("/v1/auth-sessions", "sessions", app, subject=subject, status=status):
            yield each

    async def session_record(self, auth_session_id: str) -> dict[str, Any] | None:
        """Return the AuthSessionRecord with its secrets masked; None if there is none. For operators."""
        return await self._record(f"/v1/auth-sessions/{segment(auth_session_id)}/record", Code.NOT_FOUND)

    async def queues(self) -> list[dict[str, Any]]:
        """Return the queue of each agent, and its depth. For operators."""
        return await self._send(listed("/v1/queues", "queues"))

    async def dead_letters(self, agent: str) -> list[dict[str, Any]]:
        """Return events that no consumer could settle, the latest first. For operators."""
        return await self._send(listed(_dead_letters(agent), "deadLetters"))

    async def retry_dead_letter(self, agent: str, event_id: str) -> bool:
        """Give a dead letter new attempts. For operators. False if none has that id."""
        return await self._change("POST", f"{_dead_letters(agent)}/{segment(event_id)}/retry")

    async def drop_dead_letter(self, agent: str, event_id: str) -> bool:
        """Remove a dead letter for good. For operators. False if none has that id."""
        return await self._change("DELETE", f"{_dead_letters(agent)}/{segment(event_id)}")

    async def erase(self, subject: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Revoke a subject's grants and remove all its records. For operators. Returns the number of each kind.

        `erased` is false with `dry_run`, and while a provider (`toTell`), a browser (`connecting`) or a run (`ending`)
        must be waited for. Repeatable: the second call continues the first one.
        """
        body = {"subject": subject, **({"dryRun": True} if dry_run else {})}
        return await self._send(ClientCall("POST", "/v1/subjects/erase", members_of, body=body))

    async def _pages(
        self, path: str, name: str, app: AppRef | None, **wanted: str | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of all pages. A page says where the next one starts."""
        asked = {"app": None if app is None else call_ref(app), **wanted}
        after: str | None = ""
        while after is not None:
            query = {name: value for name, value in {**asked, "after": after or None}.items() if value is not None}
            page = await self._send(ClientCall("GET", path, members_of, query=query))
            for each in list_in(page, name):
                yield each
            after = page.get("next")

    async def _record(self, path: str, unknown: Code) -> dict[str, Any] | None:
        return await self._send(ClientCall("GET", path, lambda reply: found(reply, unknown)))

    async def _change(self, method: str, path: str) -> bool:
        """Change a dead letter. Not repeatable: the second call finds no dead letter."""
        call = ClientCall(method, path, lambda reply: done(reply, Code.NOT_FOUND), repeatable=False)
        return await self._send(call)


def _dead_letters(agent: str) -> str:
    return f"/v1/agents/{segment(agent)}/dead-letters"


def _grant(said: dict[str, Any]) -> GrantSummary:
    return understood(lambda: GrantSummary.from_json(said))


def _provider_state(reply: Reply) -> str | None:
    """Return the provider's state; None if there was no live grant with that id."""
    said = found(reply, Code.GRANT_NOT_FOUND)
    return None if said is None else understood(lambda: str(said["provider"]))

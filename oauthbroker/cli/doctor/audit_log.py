"""Make the check of `oauthbroker doctor` on the audit log, and read from it why refreshes fail."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from oauthbroker.audit import RefreshFailed
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.folder import NAME
from oauthbroker.audit.trail import FileTrail
from oauthbroker.cli.doctor.place import data_of, is_there
from oauthbroker.cli.output.tables import counted
from oauthbroker.core.errors import Code
from oauthbroker.core.progress import Progress
from oauthbroker.diagnostics.findings import Finding
from oauthbroker.store.format.port import Store


async def audit_log(root: str, store: Store | None, progress: Progress) -> list[Finding]:
    """Check that the next audit line can be written, and that the existing lines are genuine."""
    if store is None:
        return []
    data = data_of(root)
    path = data / NAME
    with suppress(FileNotFoundError):
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC))
    none = Finding("audit", "ok", "No line was written yet.", about=str(path))
    if not is_there(root):  # a host of a database before its first start
        return [none]
    verification = await FileTrail(data, AuditKeys(store.mac)).verify(progress=progress)
    if not verification.sound:
        what = f"The log was changed: {counted(verification.broken, 'break')}."
        return [Finding("audit", "failure", what, hint="`oauthbroker audit verify` says where.", about=str(path))]
    if not verification.verified + verification.unchained:
        return [none]
    what = f"Can be written; {counted(verification.verified, 'line')} are genuine."
    return [Finding("audit", "ok", what, about=str(path))]


async def refused_clients(root: str, store: Store, apps: Iterable[str]) -> list[Finding]:
    """Report those of `apps` whose client the provider refuses, by the newest failure in this host's log."""
    trail, found = FileTrail(data_of(root), AuditKeys(store.mac)), list[Finding]()
    for app in apps:
        newest = await trail.tail(1, app=app, type=RefreshFailed.__name__)
        if newest and newest[0].fields.get("code") == Code.APP_MISCONFIGURED.value:
            what = f"The provider refuses this client: its newest refresh failed with {Code.APP_MISCONFIGURED.value}."
            found.append(Finding("grants", "warning", what, hint="Correct its id or secret, then reload.", about=app))
    return found

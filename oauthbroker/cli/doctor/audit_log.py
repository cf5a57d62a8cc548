"""Make the check of `oauthbroker doctor` on the audit log."""

from __future__ import annotations

import os
from contextlib import suppress

from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.folder import NAME
from oauthbroker.audit.trail import FileTrail
from oauthbroker.cli.doctor.place import data_of, is_there
from oauthbroker.cli.output.tables import counted
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

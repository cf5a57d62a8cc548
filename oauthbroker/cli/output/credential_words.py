"""The facts of a static credential, as commands print them: its fields, their place in requests, and the check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.static_credential import StaticCredential

UNCHECKED = "nothing: a typed credential counts as unverified"


def facts_of(app: App, credential: StaticCredential, *, configured: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the facts of an app's credential, as `check` shows them. `configured`: the bundle has the team's values."""
    is_typed = app.subject_mode == "user" or not configured
    for each in credential.fields if is_typed else ():
        form = f", {each.pattern}" if each.pattern else ""
        yield "typed", f"{each.name} ({each.title}{form})" + (f", from {each.obtain}" if each.obtain else "")
    yield "carried in", _carried(credential)
    if app.api.hosts:
        hosts = (it.authority if isinstance(it, ApiHost) else "a host of the connection" for it in app.api.hosts)
        yield "sent to", " ".join(hosts)
    if is_typed:
        check = credential.verification
        yield "checked by", f"{check.method} {check.path} at the first host" if check is not None else UNCHECKED
    if credential.life_days is not None:
        yield "ends after", f"{credential.life_days} days"
    if credential.team_fallback:
        yield "fallback", f"{'values' if configured else 'that of the team'}, for a user without one"
    if not is_typed:
        yield "comes from", "values, for each team"
    elif app.subject_mode == "global" and app.owner.binding == "providerIdentity" and app.owner.global_identity is None:
        yield "comes by", "`oauthbroker grants import`, or POST /v1/grants: a link could not be finished"


def credential_json(credential: StaticCredential | None) -> dict[str, Any] | None:
    """Return the same for `--json`. None for an OAuthApp."""
    if credential is None:
        return None
    check = credential.verification
    return {
        "fields": [
            {"name": it.name, "title": it.title, "pattern": it.pattern or None, "obtain": it.obtain or None}
            for it in credential.fields
        ],
        "inject": credential.placement.kind,
        "names": list(credential.placement.texts),
        "verify": {"method": check.method, "path": check.path} if check is not None else None,
        "days": credential.life_days,
        "fallback": "team" if credential.team_fallback else None,
    }


def _carried(credential: StaticCredential) -> str:
    placement = credential.placement
    names = "" if placement.kind in {"awsSigV4", "oauth1", "basic"} else f" {', '.join(placement.texts)}"
    beside = f", and the headers {', '.join(placement.beside)}" if placement.beside else ""
    return (f"{placement.kind}{names}" if placement.kind != "path" else f"the path {placement.texts['path']}") + beside

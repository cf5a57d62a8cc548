"""Check the auth of tools, extensions, connections and connectors: the app of each, and its scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_endpoints import place_of
from oauthbroker.config.values.preset_merge import preset_of
from oauthbroker.config.values.references import referred
from oauthbroker.config.values.value_sources import Source, source_of
from oauthbroker.config.written.resource_specs import (
    ConnectorAuthSpec,
    ConnectorSpec,
    ExportSpec,
    OAuthAppSpec,
    PartSpec,
    ToolAuthSpec,
    ToolSpec,
)
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_request import APP_KINDS

Apps = Mapping[str, Written[Any]]


@dataclass(frozen=True, slots=True)
class ConnectorDraft:
    """A connector's auth before its token is read: an app, or a token of its own."""

    auth: ToolAuth | None
    token: Source | None


def declared_auths(part: Written[PartSpec], apps: Apps) -> Iterator[tuple[str, ToolAuth]]:
    """Yield (`Kind/name`, or `Tool/name:export`; its app and scopes), after reporting problems."""
    spec, name = part.spec, f"{part.kind}/{part.name}"
    declared = _declared(part, spec.auth, apps) if spec.auth is not None else None
    if declared is not None:
        yield name, declared
    names: set[str] = set()
    for index, export in enumerate((isinstance(spec, ToolSpec) and spec.exports) or ()):
        if export.name is not None and export.name in names:
            part.refuse(("exports", index, "name"), "the same export twice", "rename or remove one")
        names.add(export.name or "")
        narrowed = _narrowed(part, index, export, declared)
        if narrowed is not None and export.name:
            yield f"{name}:{export.name}", narrowed


def _narrowed(tool: Written[PartSpec], index: int, export: ExportSpec, declared: ToolAuth | None) -> ToolAuth | None:
    """Return the auth of an export: its tool's, or fewer of its scopes."""
    path = ("exports", index, "auth")
    if export.auth is None or declared is None:
        if export.auth is not None and tool.spec.auth is None and tool.whole("auth"):
            tool.refuse(path, "an export's auth without its tool's", "write spec.auth.oauthAppRef", key=True)
        return declared
    if export.auth.scopes is None:
        return declared
    if export.name is None:
        tool.missing(("exports", index, "name"), "write it: its auth is looked up by this name")
    allowed = declared.scopes
    if allowed is not None:
        _check_scopes(tool, (*path, "scopes"), export.auth.scopes, allowed, "the tool does not declare")
    return replace(declared, scopes=tuple(export.auth.scopes))


def connector_draft(connector: Written[ConnectorSpec], apps: Apps, plain_hint: str) -> ConnectorDraft | None:
    """Return a connector's auth: exactly one of oauthAppRef and staticToken."""
    auth = connector.spec.auth
    if auth is None or not connector.whole("auth"):
        return None
    if (auth.oauth_app_ref is None) == (auth.static_token is None):
        connector.refuse(("auth",), "exactly one of oauthAppRef and staticToken", "keep one of them")
        return None
    if auth.static_token is not None:
        if auth.scopes is not None:
            connector.refuse(("auth", "scopes"), "scopes beside a static token", "remove them", key=True)
        token = source_of(connector, ("auth", "staticToken"), auth.static_token, plain_hint=plain_hint)
        return ConnectorDraft(None, token) if token else None
    declared = _declared(connector, auth, apps)
    return ConnectorDraft(declared, None) if declared else None


def _declared(resource: Written[Any], auth: ToolAuthSpec | ConnectorAuthSpec, apps: Apps) -> ToolAuth | None:
    at, scopes = ("auth", "oauthAppRef"), auth.scopes
    if auth.oauth_app_ref is None:
        resource.missing(at, "write oauthAppRef: OAuthApp/<name>")
        return None
    other = apps.get(auth.oauth_app_ref.name or "")
    if other is not None and auth.oauth_app_ref.kind in APP_KINDS - {other.kind}:
        resource.refuse(at, f"the app of this name is of kind {other.kind}", f"write {other.kind}/{other.name}")
        return None
    kind = "CredentialApp" if auth.oauth_app_ref.kind == "CredentialApp" else "OAuthApp"
    app = referred(resource, at, auth.oauth_app_ref, kind, {it.name: it for it in apps.values() if it.kind == kind})
    if app is None:
        return None
    if kind == "CredentialApp":
        if scopes is not None:
            resource.refuse(("auth", "scopes"), "a CredentialApp has no scopes", "remove them", key=True)
        return ToolAuth(app.name, None, injected=True)
    if scopes is not None and (app.spec.scopes is not None or _is_scopeless(app.spec)):
        known = app.spec.scopes or ()
        if not _check_scopes(resource, ("auth", "scopes"), scopes, known, "the OAuthApp does not have"):
            scopes = None  # those of exports are not compared with a mistake
    injected = isinstance(auth, ToolAuthSpec) and auth.delivery is not None
    if injected and not _may_carry(app):
        what = "injection for an OAuthApp without api.hosts, so no token is usable"
        resource.refuse(("auth", "delivery"), what, "write api.hosts in the OAuthApp, or remove delivery")
    return ToolAuth(app.name, None if scopes is None else tuple(scopes), injected)


def _is_scopeless(spec: OAuthAppSpec) -> bool:
    """Return whether an app needs no list of scopes; where one is missing, the app says so."""
    preset = preset_of(spec)
    habits = preset.habits() if preset else Habits()
    return (spec.quirks.over(habits) if spec.quirks else habits).scopeless


def _may_carry(app: Written[OAuthAppSpec]) -> bool:
    """Return whether requests to a host may carry the app's token. True for an `api` that is refused by itself."""
    if app.spec.api is not None and app.spec.api.hosts is not None:
        return True
    return not app.whole("api") or bool(place_of(app.spec, preset_of(app.spec)).api_hosts)


def _check_scopes(resource: Written[Any], path: Keys, scopes: list[str], allowed: Any, what: str) -> bool:
    """Return whether all scopes are allowed."""
    for index, scope in enumerate(scopes):
        if scope not in allowed:
            resource.refuse((*path, index), f"a scope that {what}", "remove it, or add it there first")
        elif scope in scopes[:index]:
            resource.refuse((*path, index), "the same scope twice", "remove one")
    return all(scope in allowed for scope in scopes)

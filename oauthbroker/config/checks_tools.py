"""Check the auth of tools, extensions, connections and connectors: the app of each, and its scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oauthbroker.config.fields import ObjectRef
from oauthbroker.config.preset_merge import preset_of
from oauthbroker.config.problems import Keys
from oauthbroker.config.references import referred
from oauthbroker.config.resource_specs import ConnectorSpec, ExportSpec, OAuthAppSpec, PartSpec, ToolSpec
from oauthbroker.config.shape import Written
from oauthbroker.config.value_sources import Source, source_of
from oauthbroker.model.apps import ToolAuth

Apps = Mapping[str, Written[OAuthAppSpec]]
SECRET_ADVICE: Final = (
    "write valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}, or allowPlainSecrets: dev in the Broker resource"
)


@dataclass(frozen=True, slots=True)
class ConnectorDraft:
    """A connector's auth before its token is read: an app, or a token of its own."""

    auth: ToolAuth | None
    token: Source | None


def tool_auths(tool: Written[ToolSpec], apps: Apps) -> Iterator[tuple[str, ToolAuth]]:
    """Yield (`Tool/name` or `Tool/name:export`, its app and scopes), after reporting flaws."""
    auth = tool.spec.auth
    declared: ToolAuth | None = None
    if auth is not None:
        declared = _declared(tool, ("auth",), auth.oauth_app_ref, auth.scopes, apps, auth.delivery)
    if declared is not None:
        yield f"Tool/{tool.name}", declared
    names: set[str] = set()
    for index, export in enumerate(tool.spec.exports or ()):
        if export.name is not None and export.name in names:
            tool.refuse(("exports", index, "name"), "the same export twice", "rename or remove one")
        names.add(export.name or "")
        narrowed = _narrowed(tool, index, export, declared)
        if narrowed is not None and export.name:
            yield f"Tool/{tool.name}:{export.name}", narrowed


def part_auth(part: Written[PartSpec], apps: Apps) -> Iterator[tuple[str, ToolAuth]]:
    """Yield (`Extension/name` or `Connection/name`, its app and scopes), after reporting flaws."""
    if part.spec.auth is not None:
        auth = part.spec.auth
        declared = _declared(part, ("auth",), auth.oauth_app_ref, auth.scopes, apps, auth.delivery)
        if declared is not None:
            yield f"{part.kind}/{part.name}", declared


def _narrowed(tool: Written[ToolSpec], index: int, export: ExportSpec, declared: ToolAuth | None) -> ToolAuth | None:
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


def connector_draft(connector: Written[ConnectorSpec], apps: Apps, *, plain_secrets: bool) -> ConnectorDraft | None:
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
        todo = "" if plain_secrets else SECRET_ADVICE
        token = source_of(connector, ("auth", "staticToken"), auth.static_token, plain_todo=todo)
        return ConnectorDraft(None, token) if token else None
    declared = _declared(connector, ("auth",), auth.oauth_app_ref, auth.scopes, apps)
    return ConnectorDraft(declared, None) if declared else None


def _declared(
    resource: Written[Any],
    path: Keys,
    ref: ObjectRef | None,
    scopes: list[str] | None,
    apps: Apps,
    delivery: str | None = None,
) -> ToolAuth | None:
    app = _app(resource, (*path, "oauthAppRef"), ref, apps)
    if app is None:
        return None
    if scopes is not None and app.whole("scopes"):
        _check_scopes(resource, (*path, "scopes"), scopes, app.spec.scopes or (), "the OAuthApp does not have")
    if delivery is not None and not _may_carry(app):
        todo = "write api.hosts in the OAuthApp, or remove delivery"
        resource.refuse((*path, "delivery"), "injection for an OAuthApp without api.hosts, so no token is usable", todo)
    return ToolAuth(app.name, None if scopes is None else tuple(scopes), delivery is not None)


def _may_carry(app: Written[OAuthAppSpec]) -> bool:
    """Return whether requests to a host may carry the app's token. True for an `api` that is refused by itself."""
    if app.spec.api is not None and app.spec.api.hosts is not None:
        return True
    preset = preset_of(app.spec)
    return not app.whole("api") or (preset is not None and bool(preset.api_hosts))


def _app(resource: Written[Any], path: Keys, ref: ObjectRef | None, apps: Apps) -> Written[OAuthAppSpec] | None:
    if ref is None:
        resource.missing(path, "write oauthAppRef: OAuthApp/<name>")
        return None
    return referred(resource, path, ref, "OAuthApp", apps)


def _check_scopes(resource: Written[Any], path: Keys, scopes: list[str], allowed: Any, what: str) -> None:
    for index, scope in enumerate(scopes):
        if scope not in allowed:
            resource.refuse((*path, index), f"a scope that {what}", "remove it, or add it there first")
        elif scope in scopes[:index]:
            resource.refuse((*path, index), "the same scope twice", "remove one")

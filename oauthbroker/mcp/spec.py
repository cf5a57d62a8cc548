"""The resource kind `McpServer`: an MCP server whose tools the gateway shows."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from oauthbroker.plugins import Ref, ResourceKind, Strict, WrittenResource, WrittenResources, climbs

ALL: Final = "*"
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,32}")  # the name of a tool begins with it: models take letters, digits, _, -
_URI_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")  # a URI begins with it: clients take a lower-case scheme
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
Tool = Annotated[str, Field(min_length=1, max_length=128)]
Uri = Annotated[str, Field(min_length=1, max_length=2048)]


class McpServerSpec(Strict):
    """A server that hosts see. `account` is one of the app's that the caller's turn lists. `tools` and `prompts` are
    the shown ones, or `*`; `resources` are URIs, or beginnings of URIs and `*`. No `scopes`: it begins with its own."""

    url: str | None = None
    oauth_app_ref: Ref
    account: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    tools: Annotated[list[Tool], Field(min_length=1, max_length=500)]
    prompts: Annotated[list[Tool], Field(default_factory=list, max_length=500)]
    resources: Annotated[list[Uri], Field(default_factory=list, max_length=500)]
    scopes: list[str] | None = None

    @property
    def app(self) -> str:
        """Return the app as a call names it, with the account."""
        return f"{self.oauth_app_ref.kind}/{self.oauth_app_ref.name}" + (f"@{self.account}" if self.account else "")

    def shows(self, kind: str, name: str) -> bool:
        """Tell whether the host is shown one of the `tools`, `prompts`, `resources` or `resource_templates`."""
        if kind.startswith("resource"):
            return any(_covers(entry, name) for entry in self.resources)
        allowed = self.tools if kind == "tools" else self.prompts
        return allowed == [ALL] or name in allowed


def _check(server: WrittenResource, resources: WrittenResources) -> None:
    is_key = getattr(getattr(server.spec, "oauth_app_ref", None), "kind", "") == "CredentialApp"
    app = resources.refer(server, ("oauthAppRef",), "CredentialApp" if is_key else "OAuthApp")
    if not _NAME.fullmatch(server.name):
        server.refuse((), "a name that cannot begin a tool's name", "use at most 32 letters, digits and -")
    if server.spec.url is None:
        if app is not None and (is_key or (app.whole("mcp") and app.spec.mcp is None)):
            server.missing(("url",), "write the server's URL, since the app is not of provider: mcp")
    elif server.whole("url") and not _fits(server.spec.url):
        server.refuse(("url",), "not the URL of an MCP server", "write https://..., or http:// for this machine")
    if not (account := server.spec.account or "").isprintable() or account != account.strip():
        server.refuse(("account",), "not the name of an account", "write printable characters, no blank at either end")
    if account and app is not None and app.spec.accounts != "several" and not app.spec.connect_params:
        server.refuse(("account",), "the app has one account for each subject", "write accounts: several in the app")
    if is_key and server.spec.scopes is not None:
        server.refuse(("scopes",), "a CredentialApp has no scopes", "remove them")
    for member in ("tools", "prompts"):
        names = getattr(server.spec, member) if server.whole(member) else ()
        if ALL in names and len(names) > 1:
            server.refuse((member,), "* beside names", "write * alone, or names")
    if server.whole("resources") and server.spec.resources and not _URI_NAME.fullmatch(server.name):
        server.refuse((), "a name that cannot begin a URI", "begin with a lower-case letter; then letters, digits, -")


def _covers(entry: str, uri: str) -> bool:
    """Tell whether an entry covers a URI. One with `..` as a step may lead out of a beginning."""
    if not entry.endswith(ALL):
        return uri == entry
    return uri.startswith(entry[:-1]) and (entry == ALL or not climbs(uri.replace("?", "/")))


def _fits(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    return (parts.scheme == "https" or local) and bool(parts.hostname) and not parts.fragment and not parts.username


KINDS = (ResourceKind(kind="McpServer", model=McpServerSpec, check=_check),)

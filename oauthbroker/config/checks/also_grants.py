"""Check `alsoGrants`: the app whose grant comes from the second token of this app's consent."""

from __future__ import annotations

from oauthbroker.config.checks.app import RESERVED_OPTIONS
from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.config.values.references import referred

MOST_OF_NAME = 80  # the app's name is a part of its event's id, which has 128 characters at most


def check_also_grants(apps: list[Merged]) -> None:
    named = {app.written.name: app for app in apps}
    for app in apps:
        ref = app.spec.also_grants
        if ref is None:
            continue
        found = referred(
            app.written, ("alsoGrants",), ref, "OAuthApp", {name: it.written for name, it in named.items()}
        )
        problem = _problem(app, named[found.name]) if found is not None else None
        if problem is not None:
            app.written.refuse(("alsoGrants",), *problem)


def _problem(app: Merged, second: Merged) -> tuple[str, str] | None:
    """Return (problem, remedy) for two apps that cannot share a consent, else None."""
    if not app.spec.flow == second.spec.flow == "authorizationCode":
        return "a consent in a flow without one code", "write flow: authorizationCode in both apps"
    if app.spec.provider == MCP:
        return "an MCP server has one token for a consent", "remove it"
    for name, ours, theirs in (
        ("provider", app.spec.provider, second.spec.provider),
        ("params", app.spec.params, second.spec.params),
        ("client", app.spec.client, second.spec.client),
        ("endpoints", app.endpoints, second.endpoints),
        ("resource", app.spec.resource, second.spec.resource),
    ):
        if ours != theirs:
            return f"its {name} and this app's differ: both share one request", f"write the same {name} in both apps"
    return _problem_of_tokens(app, second) or _problem_of_owner(app, second)


def _problem_of_tokens(app: Merged, second: Merged) -> tuple[str, str] | None:
    if app.habits.scope_param == second.habits.scope_param or app.habits.token_path == second.habits.token_path:
        return "both apps ask for the same token", "name an app with other quirks.scopeParam and quirks.tokenPath"
    if second.habits.scope_param in RESERVED_OPTIONS:
        return "its scopes are those of the first token", "write alsoGrants in that app, and name this one"
    if not second.scopes:
        return "an app without scopes, so nothing asks for its token", "write its scopes"
    if second.habits.second_exchange is not None:
        return "an app whose token is exchanged once more", "remove its quirks.secondExchange"
    if second.facts.names or second.facts.asked:
        return "an app with facts of its own", "remove its facts"
    return None


def _problem_of_owner(app: Merged, second: Merged) -> tuple[str, str] | None:
    identity = second.identities["user"]
    if second.mode != "user" or second.binding != "providerIdentity" or identity.source != "tokenResponse":
        hint = "write subjectMode: user and owner.identity.user.from: tokenResponse there, and no other binding"
        return "an app whose account the token response alone does not tell", hint
    if second.spec.accounts == "several":
        return "an app with several accounts of a user", "remove its accounts"
    if app.spec.connect_params or second.spec.connect_params:
        return "an app with connectParams", "remove them, or connect each app by itself"
    if second.spec.also_grants is not None:
        return "an app that names a third one", "remove its alsoGrants"
    if len(second.written.name) > MOST_OF_NAME:
        return f"an app whose name has more than {MOST_OF_NAME} characters", "shorten its name"
    return None

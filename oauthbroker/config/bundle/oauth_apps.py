"""Make apps of the bundle's OAuthApps, after checking them."""

from __future__ import annotations

from collections.abc import Iterator

from oauthbroker.config.bundle.broker_facts import BrokerFacts
from oauthbroker.config.bundle.unresolved_bundle import AppDraft
from oauthbroker.config.checks.also_grants import check_also_grants
from oauthbroker.config.checks.api import api_of, check_api
from oauthbroker.config.checks.app import (
    check_client,
    check_options,
    check_provider,
    check_quirks,
    check_redirect,
    check_scopes,
)
from oauthbroker.config.checks.connect import check_connect_params, connect_params_of
from oauthbroker.config.checks.endpoints import check_endpoints
from oauthbroker.config.checks.exchange import check_exchange
from oauthbroker.config.checks.facts import check_facts
from oauthbroker.config.checks.flow import check_flow, check_pushing
from oauthbroker.config.checks.mcp import check_mcp, resource_of, server_of
from oauthbroker.config.checks.outgoing_proxy import check_way_out
from oauthbroker.config.checks.owner import check_binding, check_identity
from oauthbroker.config.checks.pkce import check_pkce, pkce_to_be_refused
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.checks.unverified_facts import is_unusual, unverified
from oauthbroker.config.problems.problems import ConfigProblem, Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_endpoints import unused_parts
from oauthbroker.config.values.preset_merge import MCP, Merged, merge, with_known_provider
from oauthbroker.config.values.value_sources import source_of
from oauthbroker.config.written.client_spec import ClientSpec, ValueSource
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.model.apps import App, Client, Owner


def oauth_drafts(apps: list[Written[OAuthAppSpec]], facts: BrokerFacts) -> dict[str, AppDraft]:
    """Return the apps of the bundle's OAuthApps, after reporting problems."""
    merged = [merge(with_known_provider(app), facts.settings.public_base_url) for app in apps]
    for app in merged:
        check_flow(app)
        check_provider(app)
        check_client(app)
        check_mcp(app, facts.reach)
        check_endpoints(app, facts.reach)
        check_scopes(app)
        check_quirks(app)
        check_pkce(app)
        check_api(app, facts.reach)
        check_connect_params(app)
        check_facts(app, facts.reach)
        check_exchange(app, facts.reach)
        check_redirect(app, public_base_url=facts.settings.public_base_url)
        check_pushing(app)
        check_options(app)
        check_way_out(app, facts.broker, facts.settings.outgoing_proxy)
        check_binding(app, facts.settings, login=facts.broker.spec.login is not None)
        check_identity(app)
    _check_callbacks(merged)
    check_also_grants(merged)
    drafts = [(app, draft_of(app, facts.ca, facts.plain_hint)) for app in merged]
    return {app.written.name: draft for app, draft in drafts if draft is not None}


def _check_callbacks(apps: list[Merged]) -> None:
    """Refuse two apps on one path, also in another letter case: they could be confused."""
    first: dict[str, Merged] = {}
    for app in apps:
        if app.spec.flow == "clientCredentials":  # it has no callback
            continue
        path = app.redirect.callback_path.lower()
        if path in first and first[path].written.name != app.written.name:
            what = f"another app has this callback path: OAuthApp/{first[path].written.name}"
            app.written.refuse(("redirect", "callbackPath"), what, "give every app a path of its own")
        first.setdefault(path, app)


def draft_of(app: Merged, ca: str, plain_hint: str) -> AppDraft | None:
    """Return an app with the places of its client's values. None for one without a client id that needs one."""
    client, client_id = app.spec.client or ClientSpec.empty(), None
    if client.client_id:
        client_id = source_of(app.written, ("client", "clientId"), client.client_id)
    signs = app.auth_method == "private_key_jwt"
    secrets = [
        source_of(app.written, path, source, plain_hint=plain_hint, lines=signs)
        for path, source in _secret_sources(client)
    ]
    ca += trusted_ca(app.written, app.spec.provider_ca)
    if client_id is None and app.spec.provider != MCP:
        return None
    return AppDraft(
        app=_app(app, ca),
        client_id=client_id,
        client_secrets=tuple(it for it in secrets if it),
        unverified=unverified(app),
        unusual_flow=is_unusual(app),
        dropped=app.place.dropped,
        notices=tuple(_notices(app)),
        also=(app.spec.also_grants and app.spec.also_grants.name) or "",
    )


def _notices(app: Merged) -> Iterator[ConfigProblem]:
    """Yield what to say of an app whose own endpoints replace more of its preset than they name, of one without PKCE,
    and of one whose PKCE will be refused."""

    def at(keys: Keys, what: str, hint: str) -> ConfigProblem:
        place = app.written.document.key_at((*app.written.base, *keys))
        return ConfigProblem.at(place, app.written.path(*keys), what, hint)

    if app.preset is not None and app.place.dropped:
        yield at(("endpoints",), *unused_parts(app.place.dropped, app.preset))
    if app.habits.pkce == "refused":
        what = "a check is off: authorizations of this app have no PKCE"
        yield at(("quirks", "pkce"), what, "remove it as soon as the provider takes code_challenge and code_verifier")
    if refused := pkce_to_be_refused(app):
        yield at(*refused)


def _secret_sources(client: ClientSpec) -> Iterator[tuple[Keys, ValueSource]]:
    """Yield the place of each client secret, in the order in which they are tried."""
    if client.client_secret:
        yield ("client", "clientSecret"), client.client_secret
    for index, source in enumerate(client.client_secrets or ()):
        yield ("client", "clientSecrets", index), source


def _app(app: Merged, ca: str) -> App:
    used = app.identities_used
    anyone = app.authorizers == ("anyone",)
    return App(
        name=app.written.name,
        provider=app.spec.provider or "",
        flow=app.spec.flow or "authorizationCode",
        subject_mode=app.mode,
        client=Client(
            "",
            None,
            app.auth_method,
            assertion_type=(app.spec.client and app.spec.client.assertion_type) or "JWT",
            assertion_audience=app.assertion_audience,
        ),
        endpoints=app.endpoints,
        provider_ca=ca,
        direct=app.spec.outgoing_proxy == "direct",
        scopes=app.scopes,
        redirect=app.redirect,
        owner=Owner(
            binding=app.binding,
            global_identity=app.identities["global"].rule if "global" in used else None,
            user_identity=app.identities["user"].rule if "user" in used else None,
            authorizers="anyone" if anyone else app.authorizers,
            confirm_url=(app.spec.owner and app.spec.owner.confirm_url) or "",
        ),
        several_accounts=app.spec.accounts == "several",
        connect_params=connect_params_of(app),
        title=app.spec.title or _title_of(app),
        revocation=app.revocation,
        habits=app.habits,
        facts=app.facts,
        api=api_of(app),
        resource=resource_of(app),
        mcp=server_of(app),
        refresh_ahead_seconds=(app.spec.refresh and app.spec.refresh.ahead_seconds) or 0,
        pushed_authorization=app.spec.pushed_authorization or "auto",
        environment=_environment(app),
    )


def _environment(app: Merged) -> tuple[str, ...]:
    """Return the variables of the preset. None for an app at another host than the usual one: programs that look there
    send the token to the usual one."""
    if app.preset is None or app.spec.endpoints is not None or app.spec.connect_params:
        return ()
    usual = app.preset.usual_values()
    return tuple(app.preset.environment) if usual.items() >= (app.spec.params or {}).items() else ()


def _title_of(app: Merged) -> str:
    """Return the title of an app without one: its provider's, or its own name where the preset names no provider."""
    if app.preset is None:
        return app.written.name if app.spec.provider == MCP else ""
    return app.preset.title if app.preset.names_endpoints else app.written.name

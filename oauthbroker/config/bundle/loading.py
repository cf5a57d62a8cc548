"""Load a bundle: read, shape and check every document, and report all problems at once. No value is resolved yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.config.bundle.credential_apps import credential_drafts
from oauthbroker.config.bundle.unresolved_bundle import AppDraft, Loaded, LoginDraft
from oauthbroker.config.checks.also_grants import check_also_grants
from oauthbroker.config.checks.api import api_of, check_api
from oauthbroker.config.checks.app import (
    check_client,
    check_endpoints,
    check_options,
    check_provider,
    check_quirks,
    check_redirect,
    check_scopes,
)
from oauthbroker.config.checks.branding import branding_of
from oauthbroker.config.checks.broker import check_broker, settings_of
from oauthbroker.config.checks.connect import check_connect_params, connect_params_of
from oauthbroker.config.checks.exchange import check_exchange
from oauthbroker.config.checks.facts import check_facts
from oauthbroker.config.checks.flow import check_flow, check_pushing
from oauthbroker.config.checks.forwarder import forwarder_drafts
from oauthbroker.config.checks.login import as_app, check_login, operators_of
from oauthbroker.config.checks.mcp import check_mcp, resource_of, server_of
from oauthbroker.config.checks.outgoing_proxy import check_way_out, proxy_credentials
from oauthbroker.config.checks.owner import check_binding, check_identity
from oauthbroker.config.checks.pkce import check_pkce
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.checks.tools import connector_draft, declared_auths
from oauthbroker.config.checks.unverified_facts import is_unusual, unverified
from oauthbroker.config.plugins.named_plugins import read_bundle
from oauthbroker.config.plugins.plugin_resources import plugin_drafts
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import ConfigProblem, Keys, Problems, SourcePlace
from oauthbroker.config.reading.files import documents_of, read_files
from oauthbroker.config.reading.ignored import idle_refs, ignored
from oauthbroker.config.reading.shape import Written, written
from oauthbroker.config.reading.variables import unknown_variables, with_variables
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.values.preset_endpoints import unused_parts
from oauthbroker.config.values.preset_merge import MCP, Merged, merge, with_known_provider
from oauthbroker.config.values.value_sources import SECRET_ADVICE, source_of
from oauthbroker.config.written.app_resources import AppResource
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.client_spec import ClientSpec, ValueSource
from oauthbroker.config.written.resource_specs import PARTS, OAuthAppSpec
from oauthbroker.model.apps import App, Client, Owner
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings
from oauthbroker.providers import PresetEndpoints


def load(
    path: Path | str, env: Mapping[str, str] | None = None, in_code: Sequence[AppResource] | None = None
) -> Loaded:
    """Read a YAML file, or a folder and all below it. Pure: no network, nothing written. `env` may set fields of the
    Broker resource (OAUTHBROKER_*); without it no variable does. Apps `in_code` come on top and need no folder.

    Raises ConfigInvalidError with every problem there is.
    """
    bundle, problems, env = Path(path), Problems(), {} if env is None else env
    documents, named = read_bundle(bundle, problems, env, in_code)
    resources = [it for document in documents for it in written(document, problems, named.kinds)]
    check_names(documents, problems)
    broker = _broker(resources, bundle, problems)
    for another in _of(resources, "Broker")[1:]:
        another.problems.add(another.document.value_at(("kind",)), "kind", "a second Broker", "keep one")
    named.report(broker)
    settings = _settings(broker, bundle)
    ca, plain_hint = trusted_ca(broker, broker.spec.provider_ca), _plain_hint(broker)
    login, credentials = _login(broker, settings, ca), proxy_credentials(broker)
    oauth_apps = _of(resources, "OAuthApp")
    drafts = _apps(oauth_apps, broker, settings, ca)
    keys = _of(resources, "CredentialApp")
    drafts |= credential_drafts(keys, oauth_apps, broker, settings, _reach(settings), ca, _plain_hint(broker))
    apps = {it.name: it for it in reversed([*oauth_apps, *keys])}
    parts = [part for kind in ("Tool", *PARTS) for part in _of(resources, kind)]
    tools = {name: (auth,) for part in parts for name, auth in declared_auths(part, apps)}
    connectors = {
        it.name: draft
        for it in _of(resources, "Connector")
        if (draft := connector_draft(it, apps, plain_hint)) is not None
    }
    folder = (bundle if bundle.is_dir() else bundle.parent).absolute()
    forwarders = forwarder_drafts(resources, settings, ca, plain_hint)
    plugins = plugin_drafts(resources, folder, plain_hint)
    problems.raise_if_any()
    tools |= {f"Connector/{name}": (draft.auth,) for name, draft in connectors.items() if draft.auth}
    loaded = Loaded(
        settings=settings,
        keys_place=broker.place("keys", "file"),
        apps=drafts,
        tools=tools,
        connectors=connectors,
        login=login,
        ignored=tuple(ignored(documents)),
        idle_refs=tuple(idle_refs(documents, named.kinds)),
        plugins=plugins,
        forwarders=forwarders,
        proxy_credentials=credentials,
        folder=folder,
        env=env,
    )
    return replace(loaded, unknown_variables=unknown_variables(env, loaded.variables))


def load_settings(path: Path | str, env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the Broker resource, even if other resources are refused.

    Raises ConfigInvalidError for problems of that resource, or if no document can be read.
    """
    bundle, rest, problems = Path(path), Problems(), Problems()
    documents = with_variables(documents_of(read_files(bundle, rest), rest), env or {}, bundle, problems)
    if not documents:
        rest.raise_if_any()
    ours = [it for it in documents if isinstance(it.data, dict) and not it.foreign]
    brokers = [it for it in ours if it.data.get("kind") == "Broker"]
    resources = [it for document in brokers for it in written(document, problems)]
    settings = _settings(_broker(resources, bundle, problems), bundle)
    problems.raise_if_any()
    return settings


def _broker(resources: Iterable[Written[Any]], bundle: Path, problems: Problems) -> Written[BrokerSpec]:
    """Return the first Broker resource. A bundle without one has an empty one: each setting has its default."""
    for broker in _of(resources, "Broker"):
        return broker
    document = YamlDocument(file=str(bundle), folder=bundle.parent, data={}, values={(): (0, 0)}, keys={})
    return Written(kind="Broker", name="", spec=BrokerSpec(), document=document, problems=problems)


def _settings(broker: Written[BrokerSpec], bundle: Path) -> Settings:
    """Return the settings. Each mistake in them is a problem."""
    settings = replace(settings_of(broker, bundle), branding=branding_of(broker))
    check_broker(broker, settings)
    return settings


def _plain_hint(broker: Written[BrokerSpec]) -> str:
    """Return what to write in place of a plain secret; empty where they are allowed."""
    return "" if broker.spec.allow_plain_secrets is not None else SECRET_ADVICE


def _of(resources: Iterable[Written[Any]], kind: str) -> list[Written[Any]]:
    """Return the broker's own reading of the resources of a kind."""
    return [it for it in resources if it.kind == kind and not it.plugin]


def check_names(documents: list[YamlDocument], problems: Problems) -> None:
    """Refuse a second resource of the same kind and name; those of other programs may have namespaces."""
    first: dict[tuple[str, str], SourcePlace] = {}
    for document in documents:
        if document.foreign:
            continue
        data = document.data if isinstance(document.data, dict) else {}
        metadata = data.get("metadata")
        kind, name = data.get("kind"), metadata.get("name") if isinstance(metadata, dict) else None
        if not (isinstance(kind, str) and isinstance(name, str)):
            continue
        place = document.value_at(("metadata", "name"))
        if (kind, name) in first:
            what = f"this name is taken: the first one is at {first[kind, name]}"
            problems.add(place, "metadata.name", what, "rename or remove one")
        first.setdefault((kind, name), place)


def _apps(
    apps: list[Written[OAuthAppSpec]], broker: Written[BrokerSpec], settings: Settings, ca: str
) -> dict[str, AppDraft]:
    reach = _reach(settings)
    merged = [merge(with_known_provider(app), settings.public_base_url) for app in apps]
    for app in merged:
        check_flow(app)
        check_provider(app)
        check_client(app)
        check_mcp(app, reach)
        check_endpoints(app, reach)
        check_scopes(app)
        check_quirks(app)
        check_pkce(app)
        check_api(app, reach)
        check_connect_params(app)
        check_facts(app, reach)
        check_exchange(app, reach)
        check_redirect(app, public_base_url=settings.public_base_url)
        check_pushing(app)
        check_options(app)
        check_way_out(app, broker, settings.outgoing_proxy)
        check_binding(app, settings, login=broker.spec.login is not None)
        check_identity(app)
    _check_callbacks(merged)
    check_also_grants(merged)
    drafts = [(app, _draft(app, ca, _plain_hint(broker))) for app in merged]
    return {app.written.name: draft for app, draft in drafts if draft is not None}


def _reach(settings: Settings) -> ProviderNetworks:
    """Return the networks of providers: with loopback, plain http to a provider on this machine is allowed."""
    networks = tuple(filter(url_checks.is_network, settings.provider_networks))
    return ProviderNetworks(networks, loopback="plainHttpProvider" in settings.weaken)


def _login(broker: Written[BrokerSpec], settings: Settings, ca: str) -> LoginDraft | None:
    login, operators = broker.spec.login, operators_of(broker)
    if login is None:
        return None
    app = as_app(broker, login, settings.public_base_url)
    check_login(app, _reach(settings))
    check_way_out(app, broker, settings.outgoing_proxy)
    draft = _draft(app, ca, _plain_hint(broker))
    return LoginDraft(draft, login.prompt, login.max_age_seconds, operators=operators) if draft is not None else None


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


def _draft(app: Merged, ca: str, plain_hint: str) -> AppDraft | None:
    client, client_id = app.spec.client or ClientSpec(), None
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
    """Yield what to say of an app whose own endpoints replace more of its preset than they name, and of one without
    PKCE."""

    def at(keys: Keys, what: str, hint: str) -> ConfigProblem:
        place = app.written.document.key_at((*app.written.base, *keys))
        return ConfigProblem.at(place, app.written.path(*keys), what, hint)

    if app.preset is not None and app.place.dropped:
        yield at(("endpoints",), *unused_parts(app.place.dropped, app.preset))
    if app.habits.pkce == "refused":
        what = "a check is off: authorizations of this app have no PKCE"
        yield at(("quirks", "pkce"), what, "remove it as soon as the provider takes code_challenge and code_verifier")


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
    return app.preset.title if app.preset.endpoints != PresetEndpoints() else app.written.name

"""Load a bundle: read, shape and check every document, and report all problems at once. No value is resolved yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.config.bundle.broker_facts import BrokerFacts
from oauthbroker.config.bundle.oauth_apps import draft_of, oauth_drafts
from oauthbroker.config.bundle.unresolved_bundle import AppDraft, Loaded, LoginDraft
from oauthbroker.config.checks.branding import branding_of
from oauthbroker.config.checks.broker import check_broker, settings_of
from oauthbroker.config.checks.forwarder import forwarder_drafts
from oauthbroker.config.checks.login import as_app, check_login, operators_of
from oauthbroker.config.checks.outgoing_proxy import check_way_out, proxy_credentials
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.checks.tools import connector_draft, declared_auths
from oauthbroker.config.plugins.named_plugins import read_bundle
from oauthbroker.config.plugins.plugin_resources import plugin_drafts
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Problems, SourcePlace
from oauthbroker.config.reading.files import documents_of, read_files
from oauthbroker.config.reading.ignored import idle_refs, ignored
from oauthbroker.config.reading.shape import Written, written
from oauthbroker.config.reading.variables import unknown_variables, with_variables
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.values.value_sources import SECRET_ADVICE
from oauthbroker.config.written.app_resources import AppResource
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.resource_specs import PARTS
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings


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
    facts = BrokerFacts(broker, settings, _reach(settings), ca, plain_hint)
    keys = _of(resources, "CredentialApp")
    drafts = oauth_drafts(oauth_apps, facts) | _credential_drafts(keys, oauth_apps, facts)
    apps = {it.name: it for it in reversed([*oauth_apps, *keys])}
    parts = [part for kind in ("Tool", *PARTS) for part in _of(resources, kind)]
    tools = {name: (auth,) for part in parts for name, auth in declared_auths(part, apps)}
    drawn = ((it.name, connector_draft(it, apps, plain_hint)) for it in _of(resources, "Connector"))
    connectors = {name: draft for name, draft in drawn if draft is not None}
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
    resources = [it for document in documents if document.kind == "Broker" for it in written(document, problems)]
    settings = _settings(_broker(resources, bundle, problems), bundle)
    problems.raise_if_any()
    return settings


def _broker(resources: Iterable[Written[Any]], bundle: Path, problems: Problems) -> Written[BrokerSpec]:
    """Return the first Broker resource. A bundle without one has an empty one: each setting has its default."""
    for broker in _of(resources, "Broker"):
        return broker
    document = YamlDocument(file=str(bundle), folder=bundle.parent, data={}, values={(): (0, 0)}, keys={})
    return Written(kind="Broker", name="", spec=BrokerSpec.empty(), document=document, problems=problems)


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
        metadata = document.data.get("metadata") if document.kind is not None else None
        kind, name = document.kind, metadata.get("name") if isinstance(metadata, dict) else None
        if not (isinstance(kind, str) and isinstance(name, str)):
            continue
        place = document.value_at(("metadata", "name"))
        if (kind, name) in first:
            what = f"this name is taken: the first one is at {first[kind, name]}"
            problems.add(place, "metadata.name", what, "rename or remove one")
        first.setdefault((kind, name), place)


def _credential_drafts(
    keys: list[Written[Any]], oauth_apps: list[Written[Any]], facts: BrokerFacts
) -> dict[str, AppDraft]:
    if not keys:
        return {}
    from oauthbroker.config.bundle.credential_apps import credential_drafts

    return credential_drafts(keys, oauth_apps, facts)


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
    draft = draft_of(app, ca, _plain_hint(broker))
    return LoginDraft(draft, login.prompt, login.max_age_seconds, operators=operators) if draft is not None else None

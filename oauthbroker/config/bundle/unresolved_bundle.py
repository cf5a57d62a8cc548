"""A checked bundle whose values from outside are still to be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oauthbroker.config.checks.forwarder import ForwarderDraft
from oauthbroker.config.checks.tools import ConnectorDraft
from oauthbroker.config.plugins.plugin_resources import PluginDraft
from oauthbroker.config.problems.problems import ConfigProblem, SourcePlace
from oauthbroker.config.reading.ignored import IgnoredResource
from oauthbroker.config.values.value_sources import SecretKey, Source
from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import Operators, Prompt
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AppDraft:
    """An app that is complete but for its client's values.

    `unverified` are the unverified facts of its preset that it relies on; `unusual_flow`: not known to its preset.
    `dropped` are the parts of its preset that its own endpoints replace. `notices` are warnings about it. `also` names
    the app of the second token that a consent brings. `values` are those of its static credential, by field.
    """

    app: App
    client_id: Source | None
    client_secrets: tuple[Source, ...]
    unverified: tuple[str, ...] = ()
    unusual_flow: bool = False
    dropped: tuple[str, ...] = ()
    notices: tuple[ConfigProblem, ...] = ()
    also: str = ""
    values: Mapping[str, Source] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (*((self.client_id,) if self.client_id else ()), *self.client_secrets, *self.values.values())


@dataclass(frozen=True, slots=True)
class LoginDraft:
    """The broker's own login, complete but for its client's values."""

    draft: AppDraft
    prompt: Prompt | None = None
    max_age_seconds: int | None = None
    _: KW_ONLY
    operators: Operators | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A bundle without a problem of its own. `resolve` reads its values from outside.

    `ignored` are the resources of other programs, `idle_refs` the references to apps that have no effect, `plugins`
    the resources of each named plug-in that has any, `folder` the folder of the bundle, `env` the environment that it
    was loaded with.
    """

    settings: Settings
    keys_place: SourcePlace
    apps: Mapping[str, AppDraft]
    tools: Mapping[str, tuple[ToolAuth, ...]]
    connectors: Mapping[str, ConnectorDraft]
    login: LoginDraft | None = None
    ignored: tuple[IgnoredResource, ...] = ()
    idle_refs: tuple[ConfigProblem, ...] = ()
    plugins: Mapping[str, tuple[PluginDraft, ...]] = field(default_factory=dict)
    forwarders: tuple[ForwarderDraft, ...] = ()
    proxy_credentials: Source | None = None
    folder: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown_variables: tuple[ConfigProblem, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return all values to read: clients' ids and secrets, connectors' tokens, secrets of forwarders and
        plug-ins."""
        apps = [it for draft in self.apps.values() for it in draft.sources]
        return (*apps, *(it for _, several in self.sources_beside_apps for it in several))

    @property
    def sources_beside_apps(self) -> list[tuple[str, tuple[Source, ...]]]:
        """Return the values that belong to no app, each with the resource that names it."""
        found = [("login", self.login.draft.sources)] if self.login is not None else []
        found += [("outgoingProxy", (self.proxy_credentials,))] if self.proxy_credentials is not None else []
        found += [(f"Connector/{name}", (it.token,)) for name, it in self.connectors.items() if it.token]
        found += [(f"Forwarder/{it.forwarder.name}", it.secrets) for it in self.forwarders]
        drafts = [each for several in self.plugins.values() for each in several]
        return [*found, *((f"{each.kind}/{each.name}", tuple(each.sources.values())) for each in drafts)]

    @property
    def env_names(self) -> frozenset[str]:
        return frozenset(source.env for source in self.sources if source.env)

    @property
    def variables(self) -> frozenset[str]:
        """Return every environment variable that the bundle names."""
        settings = self.settings
        keys = (settings.key_service, *settings.other_keys)
        tokens = (str(key.options.get("tokenEnv", "")) for key in keys if key is not None)
        return self.env_names.union((settings.store_url_env, settings.store_direct_url_env, *tokens))

    @property
    def secret_keys(self) -> frozenset[SecretKey]:
        return frozenset(source.secret for source in self.sources if source.secret)

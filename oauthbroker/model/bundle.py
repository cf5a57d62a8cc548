"""A configuration as the broker uses it: complete, checked, with every value resolved."""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.forwarders import Forwarder
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.settings import Settings


@dataclass(frozen=True, slots=True)
class ToolAuth:
    """What a Tool declared: one app and, if it narrowed them, its scopes. `injected`: the tool gets no token, only
    requests that carry one."""

    app: str
    scopes: tuple[str, ...] | None = None
    injected: bool = False


@dataclass(frozen=True, slots=True)
class ConnectorAuth:
    """What a Connector declared: an app to ask, or a token of its own. Exactly one is set."""

    auth: ToolAuth | None = None
    static_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a configuration says. Keys are resource names.

    `tools` keys are `Tool/name`, `Tool/name:export`, `Extension/name`, `Connection/name` or, for a connector with an
    app, `Connector/name`. `plugins` are the resources of each named plug-in, `plugin_places` the files and folders that
    the plug-ins keep secret. `configuration` are the bundle's own files beside the code of tools, `environment_file` is
    the `.env` beside the bundle.
    """

    settings: Settings
    apps: Mapping[str, App]
    tools: Mapping[str, tuple[ToolAuth, ...]] = field(default_factory=dict)
    _: KW_ONLY
    connectors: Mapping[str, ConnectorAuth] = field(default_factory=dict)
    login: BrokerLogin | None = None
    plugins: Mapping[str, PluginResources] = field(default_factory=dict)
    forwarders: tuple[Forwarder, ...] = ()
    plugin_places: tuple[str, ...] = ()
    configuration: tuple[str, ...] = field(default=(), compare=False)
    environment_file: str = field(default="", compare=False)

    @property
    def state_places(self) -> tuple[str, ...]:
        """Return the files and folders of the broker and of its plug-ins, which no copy of the bundle may hold."""
        return tuple(dict.fromkeys((*self.settings.secret_places, *self.plugin_places)))

    @property
    def secret_places(self) -> tuple[str, ...]:
        """Return all files and folders that no tool is to read: the state, and the bundle's own files. Every wall
        around tools asks this list."""
        environment = (self.environment_file,) if self.environment_file else ()
        return tuple(dict.fromkeys((*self.state_places, *environment, *self.configuration)))

    def forwards(self, agent: str) -> bool:
        """Return whether the events of an agent are forwarded, so that they cannot be polled."""
        return any(agent in each.agents for each in self.forwarders)

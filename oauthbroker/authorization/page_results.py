"""What `PagesService` answers: the request that a page shows, the next step of its browser, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, OwnerConfirmation
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.local_turn import Asker, asker_of
from oauthbroker.model.static_credential import CredentialField
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.records.open_facts import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What the connect page shows before consent. `login_endpoint` is the broker's own login, if that comes first.
    Titles are the runtime's names of agent and subject, if it gives any. `locale` is the turn's, here and below.
    `params` are the values of the connection's parameters that are known; the person says those `to_type`, and types
    the `fields` of a static credential. `scopes_for_user` are those of the second token, the user's own."""

    app: App
    agent_name: str
    subject: str
    scopes: tuple[str, ...]
    expires_at: datetime
    authorization_endpoint: str
    device: DevicePrompt | None = None
    login_endpoint: str = ""
    locale: Locale | None = None
    agent_title: str | None = None
    subject_title: str | None = None
    account: str = ""
    label: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    to_type: tuple[ConnectParam, ...] = ()
    fields: tuple[CredentialField, ...] = ()
    scopes_for_user: tuple[str, ...] = ()

    @property
    def asker(self) -> Asker:
        return asker_of(self.app, self.agent_name, self.subject)

    def typed(self, said: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return the values of the parameters that a person typed. None if one of them is none."""
        values = {param.name: param.typed(said.get(param.name, "")) for param in self.to_type}
        found = {name: value for name, value in values.items() if value is not None}
        return found if len(found) == len(values) else None


class AlreadyConnected(BrokerError):
    """`stateUsed` for the browser whose request succeeded: its page says that the app is connected. `app_name` and
    `asker` are for that page."""

    def __init__(self, app_name: str, asker: Asker) -> None:
        super().__init__(Code.STATE_USED, note="already connected")
        self.app_name, self.asker = app_name, asker


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationEnd:
    """How an authorization ended: connected, or the error code. `scopes` and `account` are the grant's, as far as this
    browser may see them. `is_partly`: the grant lacks scopes that were asked for. Its user has to choose one of the
    `candidates`, or has `chosen` the one with this label. `user` is the subject that this browser has proven to be.
    `asker` as an invitation has it."""

    app: App
    code: Code | None = None
    locale: Locale | None = None
    scopes: tuple[str, ...] | None = None
    is_partly: bool = False
    account: str = ""
    account_name: str = ""
    chosen: str = ""
    candidates: tuple[Candidate, ...] = ()
    locator: str = ""
    user: str = ""
    asker: Asker = "agent"


@dataclass(frozen=True, slots=True)
class CallbackArrival:
    """A browser came back with a code. `code_is_pending`: the code is redeemed only after the browser's user is
    confirmed."""

    locator: str
    code_is_pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next step of a browser whose code is pending, or that has logged in: go to `url`, or show `code`. Neither:
    the code is being redeemed."""

    app: App
    until: datetime
    kind: OwnerConfirmation | None = None
    url: Secret | None = None
    code: Secret | None = None
    locale: Locale | None = None

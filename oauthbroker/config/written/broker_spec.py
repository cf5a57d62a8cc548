"""The written form of `kind: Broker`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from oauthbroker.config.written.client_spec import ClientSpec, LoginEndpointsSpec, SecretSource, ValueSource
from oauthbroker.config.written.fields import Rare, Strict, Text, Texts
from oauthbroker.core.words import Locale
from oauthbroker.model.broker_login import Prompt
from oauthbroker.model.settings import LONGEST_SECONDS, Consistency


class ListenSpec(Strict):
    host: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None


class StoreSpec(Strict):
    root: Text | None = None
    url: ValueSource | None = None
    direct_url: ValueSource | None = None
    consistency: Consistency | None = None


class VaultSpec(Strict):
    address: Text | None = None
    key: Text | None = None
    mount: Text | None = None
    namespace: Text | None = None
    token: ValueSource | None = None
    token_file: Text | None = None
    ca: Text | None = None


class VaultLoginSpec(Strict):
    """Where values outside lie. The token comes from a file, which an agent may replace."""

    address: Text | None = None
    namespace: Text | None = None
    token_file: Text | None = None
    ca: Text | None = None


class AwsKmsSpec(Strict):
    key_arn: Text | None = None
    endpoint: Text | None = None
    ca: Text | None = None


class KeyPluginSpec(Strict):
    name: Text | None = None
    settings: dict[str, Any] | None = None


class KeySourceSpec(Strict):
    """At most one of the four: where the key is that opens the keyring."""

    file: Text | None = None
    vault: Rare[VaultSpec] | None = None
    aws_kms: Rare[AwsKmsSpec] | None = None
    plugin: Rare[KeyPluginSpec] | None = None


class KeysSpec(KeySourceSpec):
    """`also` are further keys that open the keyring, and for which `keys rewrap` wraps it."""

    also: Annotated[list[KeySourceSpec], Field(max_length=5)] | None = None


class EventsSpec(Strict):
    expired: bool | None = None


_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Seconds = Annotated[int, Field(ge=1, le=LONGEST_SECONDS)]


class LimitsSpec(Strict):
    """The names and units of `settings.Limits`, with bounds."""

    sessions_per_subject: _Count | None = None
    sessions_per_app: _Count | None = None
    sessions_total: _Count | None = None
    session_seconds: Annotated[int, Field(ge=60, le=3_600)] | None = None
    default_min_ttl_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    provider_seconds: Annotated[float, Field(ge=1, le=120)] | None = None
    rejections_per_hour: Annotated[int, Field(ge=1, le=1_000)] | None = None
    turn_seconds: _Seconds | None = None
    requests_per_minute: _Count | None = None
    connections: _Count | None = None


class AdvancedSpec(Strict):
    """Further members of `settings.Limits`. Few bundles need them."""

    queue_lease_seconds: Annotated[float, Field(ge=1, le=3_600)] | None = None
    queue_attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    keep_finished_seconds: Annotated[int, Field(ge=0, le=2_592_000)] | None = None


class SocketCallerSpec(Strict):
    uid: Annotated[int, Field(ge=0, le=4_294_967_294)] | None = None
    roles: Annotated[list[Literal["runtime", "operator"]], Field(min_length=1, max_length=2)] | None = None


class SocketSpec(Strict):
    path: Text | None = None
    mode: Literal["0600", "0660", "0666"] | None = None
    callers: Annotated[list[SocketCallerSpec], Field(max_length=100)] | None = None


class ApiSpec(Strict):
    """Listeners of the API's own; without any it is served beside the pages."""

    listen: ListenSpec | None = None
    socket: SocketSpec | None = None


class OperatorsSpec(Strict):
    """The operators who sign in to `/admin` by the broker's login."""

    subjects: Texts | None = None
    claims: dict[Text, Text] | None = None
    acr: Texts | None = None
    amr: Texts | None = None
    confirm_seconds: Annotated[int, Field(ge=60, le=86_400)] | None = None


class AdminSpec(Strict):
    loopback: bool | None = None
    operators: OperatorsSpec | None = None


class AuditSpec(Strict):
    on_failure: Literal["refuse", "continue"] | None = None
    max_bytes: Annotated[int, Field(ge=65_536, le=1_099_511_627_776)] | None = None


class LoginSpec(Strict):
    """Our client at a team's OpenID provider, for apps with `binding: brokerLogin` and for operators."""

    client: ClientSpec | None = None
    endpoints: LoginEndpointsSpec | None = None
    scopes: Texts | None = None
    subject: Text | None = None
    prompt: Prompt | None = None
    max_age_seconds: Annotated[int, Field(ge=60, le=2_592_000)] | None = None


class PagesSpec(Strict):
    """The team's name and logo on the pages that users see."""

    name: Text | None = None
    logo: Text | None = None
    support_url: Text | None = None


class OutgoingProxySpec(Strict):
    """The proxy by which requests leave the network."""

    url: Text | None = None
    credentials: SecretSource | None = None
    ca: Text | None = None
    except_: Texts | None = Field(default=None, alias="except")
    resolve: Literal["here", "proxy"] | None = None


class BrokerSpec(Strict):
    """The process itself: addresses, store, keys, limits, pages and logins."""

    public_base_url: Text | None = None
    listen: ListenSpec | None = None
    store: StoreSpec | None = None
    keys: KeysSpec | None = None
    vault: Rare[VaultLoginSpec] | None = None
    limits: LimitsSpec | None = None
    advanced: Rare[AdvancedSpec] | None = None
    locale: Locale | None = None
    weaken: list[Literal["plainHttpProvider", "toolIsolation"]] | None = None
    allow_plain_secrets: Literal["dev"] | None = None
    events: Rare[EventsSpec] | None = None
    api: Rare[ApiSpec] | None = None
    allowed_hosts: Texts | None = None
    trusted_proxies: Texts | None = None
    provider_networks: Texts | None = None
    provider_ca: Text | None = None
    outgoing_proxy: Rare[OutgoingProxySpec] | None = None
    login: Rare[LoginSpec] | None = None
    admin: Rare[AdminSpec] | None = None
    audit: Rare[AuditSpec] | None = None
    pages: Rare[PagesSpec] | None = None
    plugins: Texts | None = None

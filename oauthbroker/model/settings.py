"""What `kind: Broker` says: addresses, folders, bounds, and which checks are off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field, replace
from oauthbroker.core.words import Locale
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.outside_values import VaultLogin

LONGEST_SECONDS = 86_400  # of a limit that is a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what callers can make us keep. Counts of open sessions, seconds, bytes."""

    sessions_per_conversation: int = 20
    sessions_per_subject: int = 200
    sessions_per_app: int = 2_000
    sessions_total: int = 10_000
    session_seconds: int = 600
    default_min_ttl_seconds: int = 300
    provider_seconds: float = 10.0
    provider_concurrency: int = 32  # half of what one provider may have open, so that no app fills another's row
    queue_lease_seconds: float = 60.0
    queue_attempts: int = 5
    sweep_seconds: float = 30.0
    keep_finished_seconds: int = 3600
    rejections_per_hour: int = 6
    turn_seconds: int = 3600
    requests_per_minute: int = 6_000
    connections: int = 1_000
    request_seconds: float = 60.0

    def shared_by(self, workers: int) -> Limits:
        """Return the limits of one process of so many, where each counts for itself; never zero."""

        def part(whole: int) -> int:
            return -(-whole // workers)

        return replace(
            self,
            sessions_per_app=part(self.sessions_per_app),
            sessions_total=part(self.sessions_total),
            provider_concurrency=part(self.provider_concurrency),
            requests_per_minute=part(self.requests_per_minute),
            connections=part(self.connections),
        )


Consistency = Literal["strict", "fast", "available"]
"""How a token call learns that a version is current: the database says so now, or the feed of changes does; `available`
is `fast`, and an earlier check counts while the database is away."""
Role = Literal["runtime", "operator"]
Who = Literal["runtime", "operator", "turn", "wholeTurn", "local"]
"""`wholeTurn` is a turn token that nothing has narrowed, neither a tool nor apps nor a time: the runtime's own. `local`
is a command of the person whose own connections are served (`oauthbroker login`)."""


@dataclass(frozen=True, slots=True)
class SocketCaller:
    """A user of this machine who may call over the Unix socket without a key, with every process of theirs."""

    uid: int
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class ApiSocket:
    """The API on a Unix socket: where, its file mode, and which users of the machine it knows."""

    path: str
    mode: int = 0o660
    callers: tuple[SocketCaller, ...] = ()


@dataclass(frozen=True, slots=True)
class Logo:
    """An image that was checked when the configuration was read."""

    media_type: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Branding:
    """Whose pages these are: a name, a support address (`https:` or `mailto:`) and a logo, as far as they are set."""

    name: str = ""
    support_url: str = ""
    logo: Logo | None = None


@dataclass(frozen=True, slots=True)
class KeySource:
    """A key that opens the keyring: a key file by its path, a transit key or a plug-in by its name, a KMS key by its
    ARN. `options` are those of the service; none is a secret."""

    kind: Literal["file", "vault", "awsKms", "plugin"]
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def secret_files(self) -> dict[tuple[str | int, ...], str]:
        """Return the files that hold a key, or the token of its service, by their places within the written source."""
        token = self.options.get("tokenFile") if self.kind == "vault" else None
        if self.kind == "file":
            return {("file",): self.name}
        return {("vault", "tokenFile"): token} if token else {}


@dataclass(frozen=True, slots=True)
class Settings:
    """What `kind: Broker` says, resolved. `api_port` 0: the API has no TCP listener of its own. `bundle_root`: the
    folder that the configuration was read from, empty for a single file; it may change while a broker runs.
    `store_url_env`: the environment variable with the URL of the PostgreSQL database that keeps the records; empty for
    files below `store_root`. `store_direct_url_env`: the variable with its URL past a pooler, empty for the same.
    `key_service` is the key in place of `key_file`, if there is one; `other_keys` open the keyring too. `vault`
    is where values of the configuration may lie. `credentials`: the folder in which systemd shows a credential, empty
    without one.
    """

    public_base_url: str = "http://127.0.0.1:8420"
    _: KW_ONLY
    listen_host: str = "127.0.0.1"
    listen_port: int = 8420
    store_root: str = "store"
    store_url_env: str = ""
    store_direct_url_env: str = ""
    store_consistency: Consistency = "strict"
    key_file: str = ""
    key_service: KeySource | None = None
    other_keys: tuple[KeySource, ...] = ()
    vault: VaultLogin | None = None
    bundle_root: str = field(default="", compare=False)
    credentials: str = field(default="", compare=False)
    locale: Locale = "en"
    limits: Limits = Limits()
    weaken: frozenset[str] = frozenset()
    expired_events: bool = False
    api_host: str = ""
    api_port: int = 0
    api_socket: ApiSocket | None = None
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    provider_networks: tuple[str, ...] = ()
    outgoing_proxy: OutgoingProxy | None = None
    admin_loopback: bool = False
    audit_on_failure: Literal["refuse", "continue"] = "refuse"
    audit_max_bytes: int = 64 * 1024 * 1024
    branding: Branding = Branding()
    plugins: tuple[str, ...] = ()

    @property
    def api_apart(self) -> bool:
        """Whether the API has listeners of its own, so that the people's listener does not serve it."""
        return bool(self.api_port) or self.api_socket is not None

    @property
    def secret_files(self) -> dict[tuple[str | int, ...], str]:
        """Return every file that helps to open the store, and the token for values outside, by its place in `spec`.
        Each check of these places asks this list."""
        found: dict[tuple[str | int, ...], str] = {("keys", "file"): self.key_file} if self.key_file else {}
        sources = [((), self.key_service), *((("also", index), each) for index, each in enumerate(self.other_keys))]
        for at, source in sources:
            files = source.secret_files() if source is not None else {}
            found |= {("keys", *at, *place): file for place, file in files.items()}
        if self.vault is not None:
            found["vault", "tokenFile"] = self.vault.token_file
        return found

    @property
    def secret_places(self) -> tuple[str, ...]:
        """Return the broker's own files and folders that no tool is to read and no copy may hold: the store's, its
        keys', and the API's socket."""
        socket = self.api_socket.path if self.api_socket is not None else ""
        found = (self.store_root, *self.secret_files.values(), self.credentials, socket)
        return tuple(dict.fromkeys(each for each in found if each))

"""`kind: Broker` -> Settings: addresses, folders, limits, and which checks are off."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs

from oauthbroker.config import urls
from oauthbroker.config.broker_spec import ApiSpec, BrokerSpec
from oauthbroker.config.checks_app import base_url_flaw
from oauthbroker.config.problems import Problems, SourcePlace
from oauthbroker.config.shape import Written
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.model.settings import ApiSocket, Limits, Settings, SocketCaller

KEY_FILE_ENV: Final = "OAUTHBROKER_KEY_FILE"
PLAIN_SECRETS: Final = "allowPlainSecrets"
DEFAULT_API_PORT: Final = 8421
_DEFAULT: Final = Settings()


def settings_of(broker: Written[BrokerSpec] | None, bundle: Path) -> Settings:
    """Return the Broker resource's settings, with defaults. Paths are absolute; `key_file` stays empty if none is
    named."""
    spec = broker.spec if broker else BrokerSpec()
    folder = broker.document.folder if broker else bundle.parent
    host = (spec.listen and spec.listen.host) or _DEFAULT.listen_host
    port = (spec.listen and spec.listen.port) or _DEFAULT.listen_port
    said = {name: value for name, value in (spec.limits or ()) if value is not None}
    root = spec.store.root if spec.store else None
    key_file = spec.keys.file if spec.keys else None
    weaken = {*(spec.weaken or ()), *([PLAIN_SECRETS] if spec.allow_plain_secrets else [])}
    return Settings(
        public_base_url=(spec.public_base_url or f"http://{_bracketed(host)}:{port}").rstrip("/"),
        listen_host=host,
        listen_port=port,
        store_root=_absolute(folder, root)
        if root
        else _absolute(Path(_absolute(Path.cwd(), str(bundle))).parent, "store"),
        key_file=_absolute(folder, key_file) if key_file else "",
        bundle_root=str(bundle.absolute()) if bundle.is_dir() else "",
        locale=spec.locale or _DEFAULT.locale,
        limits=Limits(**said),
        weaken=frozenset(weaken),
        expired_events=bool(spec.events and spec.events.expired),
        allowed_hosts=tuple(spec.allowed_hosts or ()),
        trusted_proxies=tuple(spec.trusted_proxies or ()),
        provider_networks=tuple(spec.provider_networks or ()),
        confirm_url=spec.confirm_url or "",
        audit_on_failure=(spec.audit and spec.audit.on_failure) or _DEFAULT.audit_on_failure,
        audit_max_bytes=(spec.audit and spec.audit.max_bytes) or _DEFAULT.audit_max_bytes,
        admin_loopback=bool(spec.admin and spec.admin.loopback),  # tools run on the same machine: never by itself
        rooms=tuple(spec.rooms or ()),
        **_doors(spec.api, folder),
    )


def _doors(api: ApiSpec | None, folder: Path) -> dict[str, Any]:
    """Return the API's own listeners."""
    listen, socket = (api.listen, api.socket) if api else (None, None)
    doors: dict[str, Any] = {}
    if listen is not None:
        doors |= {"api_host": listen.host or _DEFAULT.listen_host, "api_port": listen.port or DEFAULT_API_PORT}
    if socket is not None and socket.path:
        callers = tuple(
            SocketCaller(caller.uid, frozenset(caller.roles or ("runtime",)))
            for caller in socket.callers or ()
            if caller.uid is not None
        )
        doors["api_socket"] = ApiSocket(_absolute(folder, socket.path), int(socket.mode or "0660", 8), callers)
    return doors


def with_key_file(settings: Settings, env: Mapping[str, str]) -> str:
    """Return where the KEK is: as written, else OAUTHBROKER_KEY_FILE, else in the user's data folder, one per store."""
    if settings.key_file:
        return settings.key_file
    if env.get(KEY_FILE_ENV):
        return str(Path(env[KEY_FILE_ENV]).absolute())
    mark = hashlib.sha256(settings.store_root.encode()).hexdigest()[:12]
    return str(Path(platformdirs.user_data_dir("oauthbroker"), "keys", f"{mark}.kek"))


def is_local(settings: Settings) -> bool:
    """Return whether we listen on loopback, and browsers reach us there."""
    return is_loopback(settings.listen_host) and _public_is_loopback(settings)


def key_flaw(key_file: str, settings: Settings) -> tuple[str, str] | None:
    """Return (flaw, remedy) for the place of the key, links followed, else None."""
    if _is_below(key_file, settings.store_root):
        return "the key would lie in the store that it opens", "a file outside store.root"
    if _is_below(key_file, settings.bundle_root):
        return "the key would lie in the bundle, which is copied for every changeset", "a file outside the bundle"
    return None


def check_store_place(broker: Written[BrokerSpec] | None, settings: Settings, problems: Problems) -> None:
    """Refuse a store inside the bundle: every changeset would carry a copy of it."""
    root = broker.spec.store.root if broker is not None and broker.spec.store is not None else None
    if root is not None and not root.strip():
        return  # refused as no path
    if _is_below(settings.store_root, settings.bundle_root):
        place = broker.place("store", "root") if broker is not None else SourcePlace(settings.bundle_root)
        what = "the store would lie in the bundle, which is copied for every changeset"
        problems.add(
            place, "spec.store.root" if root is not None else "", what, "name a folder outside the bundle as store.root"
        )


def _is_below(path: str, folder: str) -> bool:
    """Return whether it lies in the folder, or is the folder, links followed."""
    if not path or not folder or "\x00" in path + folder:
        return False
    real = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), real]) == real


def check_broker(broker: Written[BrokerSpec], settings: Settings) -> None:
    spec = broker.spec
    if spec.public_base_url is not None:
        trouble = base_url_flaw(spec.public_base_url)
        if trouble:
            broker.refuse(("publicBaseUrl",), *trouble)
    elif not is_loopback(settings.listen_host):
        broker.missing(("publicBaseUrl",), "write the https address at which browsers reach the broker")
    if spec.listen and spec.listen.host is not None and not urls.is_host(spec.listen.host):
        broker.refuse(("listen", "host"), "not a host or address", "write 127.0.0.1, or 0.0.0.0 in a container")
    for path, empty in ((("store", "root"), spec.store), (("keys", "file"), spec.keys)):
        value: Any = getattr(empty, path[1], None)
        if value is not None and (not value.strip() or "\x00" in value):
            broker.refuse(path, "not a path", "write a path, or leave it out")
    _check_doors(broker, settings)
    if flaw := key_flaw(settings.key_file, settings):
        broker.refuse(("keys", "file"), flaw[0], f"name {flaw[1]}, or leave it out")
    _check_weakenings(broker, settings)


def _check_doors(broker: Written[BrokerSpec], settings: Settings) -> None:
    """Check the listeners, their callers and their names."""
    spec = broker.spec
    if spec.api and spec.api.listen and spec.api.listen.host is not None and not urls.is_host(spec.api.listen.host):
        broker.refuse(
            ("api", "listen", "host"), "not a host or address", "write 127.0.0.1, or the address to listen on"
        )
    if settings.api_port and (settings.api_host, settings.api_port) == (settings.listen_host, settings.listen_port):
        broker.refuse(
            ("api", "listen"), "the pages listen there", "write another port, or leave api.listen out", key=True
        )
    socket = spec.api.socket if spec.api else None
    if socket is not None and (not socket.path or not socket.path.strip() or "\x00" in socket.path):
        broker.refuse(("api", "socket", "path"), "not a path", "write where the Unix socket shall be")
    for at, caller in enumerate((socket.callers if socket else None) or ()):
        if caller.uid is None:
            broker.missing(("api", "socket", "callers", at, "uid"), "write the number of the user who may call")
    for at, host in enumerate(settings.allowed_hosts):
        if not urls.is_host(host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host):
            broker.refuse(
                ("allowedHosts", at), "not a value of Host", "write a name or address, with :port if it has one"
            )
    for name, networks in (
        ("trustedProxies", settings.trusted_proxies),
        ("providerNetworks", settings.provider_networks),
    ):
        for at in (at for at, network in enumerate(networks) if not urls.is_network(network)):
            broker.refuse((name, at), "not an address or network", "write 10.0.0.7 or 10.0.0.0/24")
    if spec.confirm_url is not None and (trouble := page_flaw(spec.confirm_url)):
        broker.refuse(("confirmUrl",), *trouble)
    if settings.admin_loopback and not is_local(settings):
        what = "the operator's pages without a key, away from loopback"
        broker.refuse(("admin", "loopback"), what, "remove it: operators log in with a key", key=True)


def page_flaw(url: str) -> tuple[str, str] | None:
    """Return (flaw, remedy) for the address of a runtime's own page, to which browsers are sent, else None."""
    trouble = urls.flaw(url)
    if trouble is None and urls.is_http(url) and not is_loopback(urls.host_of(url)):
        return "http away from this machine", "write an https address"
    return trouble


def _check_weakenings(broker: Written[BrokerSpec], settings: Settings) -> None:
    """Refuse weakenings away from loopback."""
    if _public_is_loopback(settings):
        return
    todo = "remove it, or use a loopback publicBaseUrl"
    if broker.spec.weaken:
        broker.refuse(("weaken",), "a check is off away from loopback", todo, key=True)
    if broker.spec.allow_plain_secrets:
        broker.refuse((PLAIN_SECRETS,), "plain secrets are allowed away from loopback", todo, key=True)


def _public_is_loopback(settings: Settings) -> bool:
    url = settings.public_base_url
    return urls.flaw(url) is None and is_loopback(urls.host_of(url))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _absolute(folder: Path, path: str) -> str:
    """Return the path, absolute and without `..`, links not followed: a mount may appear later."""
    return os.path.abspath(folder / Path(path).expanduser())  # noqa: PTH100 - resolve() follows links

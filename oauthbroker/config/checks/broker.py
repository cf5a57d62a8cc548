"""`kind: Broker` -> Settings: addresses, folders, limits, and which checks are off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from oauthbroker.config.checks.app import base_url_problem
from oauthbroker.config.checks.keys import check_keys, key_sources, vault_login
from oauthbroker.config.checks.outgoing_proxy import check_outgoing_proxy, outgoing_proxy_of
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.files import absolute
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.value_sources import source_of
from oauthbroker.config.written.broker_spec import ApiSpec, AuditSpec, BrokerSpec, ListenSpec, StoreSpec
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.model.settings import ApiSocket, Limits, Settings, SocketCaller

PLAIN_SECRETS: Final = "allowPlainSecrets"
DEFAULT_API_PORT: Final = 8421
_DEFAULT: Final = Settings()


def settings_of(broker: Written[BrokerSpec], bundle: Path) -> Settings:
    """Return the Broker resource's settings, with defaults. Paths are absolute; `key_file` stays empty if none is
    named."""
    spec, folder = broker.spec, broker.document.folder
    store, listen = spec.store or StoreSpec.empty(), spec.listen or ListenSpec.empty()
    audit = spec.audit or AuditSpec.empty()
    host, port = listen.host or _DEFAULT.listen_host, listen.port or _DEFAULT.listen_port
    limits = {name: value for name, value in (*(spec.limits or ()), *(spec.advanced or ())) if value is not None}
    beside_bundle = absolute(Path(absolute(Path.cwd(), str(bundle))).parent, "store")
    key_file = spec.keys.file if spec.keys else None
    key_service, other_keys = key_sources(broker)
    weaken = {*(spec.weaken or ()), *([PLAIN_SECRETS] if spec.allow_plain_secrets else [])}
    return Settings(
        public_base_url=(spec.public_base_url or f"http://{_bracketed(host)}:{port}").rstrip("/"),
        listen_host=host,
        listen_port=port,
        store_root=absolute(folder, store.root) if store.root else beside_bundle,
        store_url_env=_env_of(store.url),
        store_direct_url_env=_env_of(store.direct_url),
        store_consistency=store.consistency or _DEFAULT.store_consistency,
        key_file=absolute(folder, key_file) if key_file else "",
        key_service=key_service,
        other_keys=other_keys,
        vault=vault_login(broker),
        bundle_root=str(bundle.absolute()) if bundle.is_dir() else "",
        locale=spec.locale or _DEFAULT.locale,
        limits=Limits(**limits),
        weaken=frozenset(weaken),
        expired_events=bool(spec.events and spec.events.expired),
        allowed_hosts=tuple(spec.allowed_hosts or ()),
        trusted_proxies=tuple(spec.trusted_proxies or ()),
        provider_networks=tuple(spec.provider_networks or ()),
        outgoing_proxy=outgoing_proxy_of(broker),
        audit_on_failure=audit.on_failure or _DEFAULT.audit_on_failure,
        audit_max_bytes=audit.max_bytes or _DEFAULT.audit_max_bytes,
        admin_loopback=bool(spec.admin and spec.admin.loopback),  # tools run on the same machine: never by itself
        plugins=tuple(spec.plugins or ()),
        **_listeners(spec.api or ApiSpec.empty(), folder),
    )


def _env_of(url: ValueSource | None) -> str:
    """Return the variable with a database's URL."""
    source = url.value_from if url is not None else None
    return (source and source.env) or ""


def _listeners(api: ApiSpec, folder: Path) -> dict[str, Any]:
    """Return the API's own listeners."""
    listen, socket = api.listen, api.socket
    listeners: dict[str, Any] = {}
    if listen is not None:
        listeners |= {"api_host": listen.host or _DEFAULT.listen_host, "api_port": listen.port or DEFAULT_API_PORT}
    if socket is not None and socket.path:
        callers = tuple(
            SocketCaller(caller.uid, frozenset(caller.roles or ("runtime",)))
            for caller in socket.callers or ()
            if caller.uid is not None
        )
        listeners["api_socket"] = ApiSocket(absolute(folder, socket.path), int(socket.mode or "0660", 8), callers)
    return listeners


def is_local(settings: Settings) -> bool:
    """Return whether we listen on loopback, and browsers reach us there."""
    return is_loopback(settings.listen_host) and _public_is_loopback(settings)


def key_problems(settings: Settings) -> dict[Keys, tuple[str, str]]:
    """Return (problem, remedy) for each key, and each token of a key service, that lies where it is copied; by its
    place in `spec`. Links are followed."""
    found: dict[Keys, tuple[str, str]] = {}
    for place, file in settings.secret_files.items():
        if _is_below(file, settings.store_root):
            found[place] = "the key would lie in the store that it opens", "a file outside store.root"
        elif _is_below(file, settings.bundle_root):
            copied = "the key would lie in the bundle, which is copied for every changeset"
            found[place] = copied, "a file outside the bundle"
    return found


def _check_store_root(broker: Written[BrokerSpec], settings: Settings) -> None:
    """Refuse a store inside the bundle: every changeset would carry a copy of it."""
    root = broker.spec.store.root if broker.spec.store is not None else None
    if root is not None and (not root.strip() or "\x00" in root):
        broker.refuse(("store", "root"), "not a path", "write a path, or leave it out")
    elif _is_below(settings.store_root, settings.bundle_root):
        place, path = broker.place("store", "root"), "spec.store.root" if root is not None else ""
        what = "the store would lie in the bundle, which is copied for every changeset"
        broker.problems.add(place, path, what, "name a folder outside the bundle as store.root")


def _is_below(path: str, folder: str) -> bool:
    """Return whether it lies in the folder, or is the folder, links followed."""
    if not path or not folder or "\x00" in path + folder:
        return False
    real = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), real]) == real


def check_broker(broker: Written[BrokerSpec], settings: Settings) -> None:
    spec = broker.spec
    if spec.public_base_url is not None:
        problem = base_url_problem(spec.public_base_url)
        if problem:
            broker.refuse(("publicBaseUrl",), *problem)
    elif not is_loopback(settings.listen_host):
        broker.missing(("publicBaseUrl",), "write the https address at which browsers reach the broker")
    if spec.listen and spec.listen.host is not None and not url_checks.is_host(spec.listen.host):
        broker.refuse(("listen", "host"), "not a host or address", "write 127.0.0.1, or 0.0.0.0 in a container")
    _check_store_root(broker, settings)
    check_keys(broker, settings.outgoing_proxy)
    _check_store_urls(broker)
    check_outgoing_proxy(broker)
    _check_listeners(broker, settings)
    for place, (what, remedy) in key_problems(settings).items():
        broker.refuse(place, what, f"name {remedy}, or leave it out")
    _check_weakenings(broker, settings)


def _check_store_urls(broker: Written[BrokerSpec]) -> None:
    """Check that the database's URLs come from the environment: each may hold a password, and opens the store in which
    other secrets lie."""
    store = broker.spec.store or StoreSpec.empty()
    for name, url in (("url", store.url), ("directUrl", store.direct_url)):
        hint = f"write {name}: {{valueFrom: {{env: NAME}}}}"
        source = source_of(broker, ("store", name), url, plain_hint=hint) if url is not None else None
        if source is not None and source.secret is not None:
            what = "the secret lies in the store that it opens"
            broker.refuse(("store", name, "valueFrom", "secretRef"), what, hint)


def _check_listeners(broker: Written[BrokerSpec], settings: Settings) -> None:
    """Check the listeners, their callers and their names."""
    api = broker.spec.api or ApiSpec.empty()
    listen, socket = api.listen, api.socket
    if listen is not None and listen.host is not None and not url_checks.is_host(listen.host):
        hint = "write 127.0.0.1, or the address to listen on"
        broker.refuse(("api", "listen", "host"), "not a host or address", hint)
    if settings.api_port and (settings.api_host, settings.api_port) == (settings.listen_host, settings.listen_port):
        broker.refuse(
            ("api", "listen"), "the pages listen there", "write another port, or leave api.listen out", key=True
        )
    if socket is not None and (not socket.path or not socket.path.strip() or "\x00" in socket.path):
        broker.refuse(("api", "socket", "path"), "not a path", "write where the Unix socket shall be")
    for at, caller in enumerate((socket.callers if socket else None) or ()):
        if caller.uid is None:
            broker.missing(("api", "socket", "callers", at, "uid"), "write the number of the user who may call")
    for at, host in enumerate(settings.allowed_hosts):
        if not url_checks.is_host(host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host):
            broker.refuse(
                ("allowedHosts", at), "not a value of Host", "write a name or address, with :port if it has one"
            )
    for name, networks in (
        ("trustedProxies", settings.trusted_proxies),
        ("providerNetworks", settings.provider_networks),
    ):
        for at in (at for at, network in enumerate(networks) if not url_checks.is_network(network)):
            broker.refuse((name, at), "not an address or network", "write 10.0.0.7 or 10.0.0.0/24")
    if settings.admin_loopback and not is_local(settings):
        what = "the operator's pages without a key, away from loopback"
        broker.refuse(("admin", "loopback"), what, "remove it: operators log in with a key", key=True)


def page_problem(url: str) -> tuple[str, str] | None:
    """Return (problem, remedy) for the address of a runtime's own page, to which browsers are sent, else None."""
    problem = url_checks.problem(url)
    if problem is None and url_checks.is_http(url) and not is_loopback(url_checks.host_of(url)):
        return "http away from this machine", "write an https address"
    return problem


def _check_weakenings(broker: Written[BrokerSpec], settings: Settings) -> None:
    """Refuse weakenings away from loopback."""
    if _public_is_loopback(settings):
        return
    hint = "remove it, or use a loopback publicBaseUrl"
    if broker.spec.weaken:
        broker.refuse(("weaken",), "a check is off away from loopback", hint, key=True)
    if broker.spec.allow_plain_secrets:
        broker.refuse((PLAIN_SECRETS,), "plain secrets are allowed away from loopback", hint, key=True)


def _public_is_loopback(settings: Settings) -> bool:
    url = settings.public_base_url
    return url_checks.problem(url) is None and is_loopback(url_checks.host_of(url))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host

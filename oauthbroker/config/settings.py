"""`kind: Broker` -> Settings: addresses, folders, limits, and which checks are off."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs

from oauthbroker.apps import Limits, Settings
from oauthbroker.config import urls
from oauthbroker.config.checks_client import base_url_flaw
from oauthbroker.config.resources import BrokerSpec
from oauthbroker.config.shape import Written

KEY_FILE_ENV: Final = "OAUTHBROKER_KEY_FILE"
PLAIN_SECRETS: Final = "allowPlainSecrets"
_DEFAULT: Final = Settings()


def settings_of(broker: Written[BrokerSpec] | None, bundle: Path) -> Settings:
    """What the Broker resource says, with defaults. Paths are absolute; `key_file` stays empty if nobody named one."""
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
        locale=spec.locale or _DEFAULT.locale,
        limits=Limits(**said),
        weaken=frozenset(weaken),
        expired_events=bool(spec.events and spec.events.expired),
    )


def with_key_file(settings: Settings, env: Mapping[str, str]) -> str:
    """Where the KEK is: as written, else OAUTHBROKER_KEY_FILE, else in the user's data folder, one per store."""
    if settings.key_file:
        return settings.key_file
    if env.get(KEY_FILE_ENV):
        return str(Path(env[KEY_FILE_ENV]).absolute())
    mark = hashlib.sha256(settings.store_root.encode()).hexdigest()[:12]
    return str(Path(platformdirs.user_data_dir("oauthbroker"), "keys", f"{mark}.kek"))


def is_local(settings: Settings) -> bool:
    """We listen on loopback, and people reach us on loopback."""
    return urls.is_loopback(settings.listen_host) and _public_is_loopback(settings)


def key_under_store(key_file: str, store_root: str) -> bool:
    """The key that opens the store would lie in it, links followed."""
    if "\x00" in key_file + store_root:
        return False
    store = os.path.realpath(store_root)
    return os.path.commonpath([os.path.realpath(key_file), store]) == store


def check_broker(broker: Written[BrokerSpec], settings: Settings) -> None:
    spec = broker.spec
    if spec.public_base_url is not None:
        trouble = base_url_flaw(spec.public_base_url)
        if trouble:
            broker.refuse(("publicBaseUrl",), *trouble)
    elif not urls.is_loopback(settings.listen_host):
        broker.missing(("publicBaseUrl",), "write the https address at which browsers reach the broker")
    if spec.listen and spec.listen.host is not None and not urls.is_host(spec.listen.host):
        broker.refuse(("listen", "host"), "not a host or address", "write 127.0.0.1, or 0.0.0.0 in a container")
    for path, empty in ((("store", "root"), spec.store), (("keys", "file"), spec.keys)):
        value: Any = getattr(empty, path[1], None)
        if value is not None and (not value.strip() or "\x00" in value):
            broker.refuse(path, "not a path", "write a path, or leave it out")
    if settings.key_file and key_under_store(settings.key_file, settings.store_root):
        what = "the key would lie in the store that it opens"
        broker.refuse(("keys", "file"), what, "name a file outside store.root, or leave it out")
    _check_weakenings(broker, settings)


def _check_weakenings(broker: Written[BrokerSpec], settings: Settings) -> None:
    """A check may be off on one machine only."""
    if _public_is_loopback(settings):
        return
    todo = "remove it, or use a loopback publicBaseUrl"
    if broker.spec.weaken:
        broker.refuse(("weaken",), "a check is off away from loopback", todo, key=True)
    if broker.spec.allow_plain_secrets:
        broker.refuse((PLAIN_SECRETS,), "plain secrets are allowed away from loopback", todo, key=True)


def _public_is_loopback(settings: Settings) -> bool:
    url = settings.public_base_url
    return urls.flaw(url) is None and urls.is_loopback(urls.host_of(url))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _absolute(folder: Path, path: str) -> str:
    """Absolute and without `..`, links not followed: a mount may appear later."""
    return os.path.abspath(folder / Path(path).expanduser())  # noqa: PTH100 - resolve() follows links

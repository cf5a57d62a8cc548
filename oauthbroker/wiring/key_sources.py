"""The key that opens the store: a key service, the environment, a systemd credential, or the key file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from oauthbroker.config.key_file import CREDENTIALS_ENV
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.settings import KeySource, Settings
from oauthbroker.observability.logging import Log
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek, KeyProvider, check_outside

KEY_ENV = "OAUTHBROKER_KEY"
CREDENTIAL = "oauthbroker.kek"
_SPELLED = {"tokenFile": "token_file"}


def key_providers(settings: Settings, env: Mapping[str, str], log: Log) -> tuple[KeyProvider, ...]:
    """Return the key of the configuration and the further ones. The key is a key service, or comes from the environment
    (with a warning), a systemd credential, or the key file. No key service is asked yet."""
    outside = key_free(settings)
    proxy = settings.outgoing_proxy
    others = (_further_of(each, env, outside, proxy) for each in settings.other_keys)
    if settings.key_service is not None:
        return (provider_of(settings.key_service, env, outside, proxy), *others)
    if env.get(KEY_ENV):
        log.warning("the key comes from the environment, which keeps it readable; use a key file")
        return (EnvKek(env[KEY_ENV]), *others)
    return (FileKek.open(Path(key_origin(settings, env)), outside=outside), *others)


class FurtherKeyError(BrokerError):
    """The refusal of a key of `keys.also`. Its note names the key."""


def _further_of(
    source: KeySource, env: Mapping[str, str], outside: tuple[Path, ...], proxy: OutgoingProxy | None
) -> KeyProvider:
    """Return a key of `keys.also`. Raises what `provider_of` does."""
    try:
        return provider_of(source, env, outside, proxy)
    except BrokerError as error:
        refused = error
    note = "; ".join(filter(None, (refused.note, f"keys.also: {source.kind} {source.name}")))
    named = FurtherKeyError(refused.code, note=note, lasting=refused.lasting, key=source.name)
    named.hint = "furtherKeyAway" if refused.code is Code.KEY_UNKNOWN and source.kind == "file" else refused.hint
    raise named


def provider_of(
    source: KeySource, env: Mapping[str, str], outside: tuple[Path, ...], proxy: OutgoingProxy | None
) -> KeyProvider:
    """Return the key that a source names; a service is asked through `proxy`. Raises `keyUnknown` and as
    `FileKek.open` does; `storePermissions` also for a token's file in the store or the bundle."""
    name, options = source.name, source.options
    match source.kind:
        case "file":
            return FileKek.open(Path(name), outside=outside)
        case "vault":
            from oauthbroker.key_services.vault import VaultTransit

            for file in source.secret_files().values():
                check_outside(Path(file), outside)
            given = {_SPELLED.get(option, option): value for option, value in options.items() if option != "tokenEnv"}
            token = env.get(options.get("tokenEnv", ""), "")
            return VaultTransit(key=name, token=Secret(token) if token else None, proxy=proxy, **given)
        case "awsKms":
            from oauthbroker.key_services.aws_kms import AwsKms

            return AwsKms(key_arn=name, proxy=proxy, **options)
    from oauthbroker.key_services.installed import installed_provider

    return installed_provider(name, options)


def key_origin(settings: Settings, env: Mapping[str, str]) -> str:
    """Return the key service, the variable, or the path of the file that the key is read from."""
    if settings.key_service is not None:
        return f"{settings.key_service.kind} {settings.key_service.name}"
    if env.get(KEY_ENV):
        return KEY_ENV
    credential = Path(env[CREDENTIALS_ENV], CREDENTIAL) if env.get(CREDENTIALS_ENV) else None
    return str(credential) if credential is not None and credential.exists() else settings.key_file


def environment_without_keys() -> dict[str, str]:
    """Return the environment of this process without the keys and settings of servers (OAUTHBROKER_*), for a store that
    is none of theirs."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OAUTHBROKER_") and name != CREDENTIALS_ENV
    }


def key_free(settings: Settings) -> tuple[Path, ...]:
    """Return the folders that are copied together with what the key protects: no key may lie there."""
    return tuple(Path(each) for each in (settings.store_root, settings.bundle_root) if each)

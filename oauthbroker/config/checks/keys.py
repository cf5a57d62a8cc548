"""`keys` of the Broker resource: the key file or key service that opens the keyring, and further ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from oauthbroker.config.checks.outgoing_proxy import lookup_problem
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.files import absolute
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.value_sources import source_of
from oauthbroker.config.written.broker_spec import BrokerSpec, KeySourceSpec, VaultSpec
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.outside_values import VaultLogin
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.model.settings import KeySource

_ARN: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEYS: Final = ("keys",)
_TOKEN_ADVICE: Final = "write tokenFile: <path>, or token: {valueFrom: {env: NAME}}"


def key_sources(broker: Written[BrokerSpec]) -> tuple[KeySource | None, tuple[KeySource, ...]]:
    """Return the key service in place of a key file, and the further keys. A member that lacks is reported by
    `check_keys`."""
    found = [(path, _source(broker, path, spec)) for path, spec in _written(broker)]
    first = next((each for path, each in found if path == _KEYS), None)
    others = tuple(each for path, each in found if path != _KEYS and each is not None)
    return (first if first is not None and first.kind != "file" else None), others


def _written(broker: Written[BrokerSpec]) -> Iterator[tuple[Keys, KeySourceSpec]]:
    """Yield `keys` and the entries of `keys.also`, each with its path."""
    keys = broker.spec.keys
    if keys is not None:
        yield _KEYS, keys
        yield from (((*_KEYS, "also", index), each) for index, each in enumerate(keys.also or ()))


def _source(broker: Written[BrokerSpec], path: Keys, spec: KeySourceSpec) -> KeySource | None:
    if spec.vault is not None:
        return KeySource("vault", spec.vault.key or "", _vault_options(broker, path, spec.vault))
    if spec.aws_kms is not None:
        kms = spec.aws_kms
        ca = trusted_ca(broker, kms.ca, (*path, "awsKms", "ca"))
        return KeySource("awsKms", kms.key_arn or "", _given(endpoint=kms.endpoint, ca=ca))
    if spec.plugin is not None:
        return KeySource("plugin", spec.plugin.name or "", dict(spec.plugin.settings or {}))
    return KeySource("file", absolute(broker.document.folder, spec.file)) if spec.file else None


def vault_login(broker: Written[BrokerSpec]) -> VaultLogin | None:
    """Return where values outside may lie. A member that lacks is reported by `check_keys`."""
    spec = broker.spec.vault
    if spec is None:
        return None
    return VaultLogin(
        address=(spec.address or "").rstrip("/"),
        token_file=absolute(broker.document.folder, spec.token_file) if spec.token_file else "",
        namespace=spec.namespace or "",
        ca=trusted_ca(broker, spec.ca, ("vault", "ca")),
    )


def check_keys(broker: Written[BrokerSpec], proxy: OutgoingProxy | None) -> None:
    """Report keys that cannot be used as they are written, or through `proxy`. No key is read, and no service is
    asked."""
    for path, spec in _written(broker):
        named = [each for each in ("file", "vault", "aws_kms", "plugin") if getattr(spec, each) is not None]
        if len(named) > 1 or (path != _KEYS and not named):
            broker.refuse(path, "a key is exactly one of file, vault, awsKms and plugin", "leave one of them")
        if spec.file is not None and (not spec.file.strip() or "\x00" in spec.file):
            broker.refuse((*path, "file"), "not a path", "write a path, or leave it out")
        if spec.vault is not None:
            _check_vault(broker, (*path, "vault"), spec.vault, proxy)
        if spec.aws_kms is not None and not _ARN.fullmatch(spec.aws_kms.key_arn or ""):
            advice = "write the key's whole ARN, arn:aws:kms:<region>:<account>:key/<id>, no alias"
            broker.refuse((*path, "awsKms", "keyArn"), "not the ARN of a KMS key", advice)
        if spec.aws_kms is not None and spec.aws_kms.endpoint is not None:
            _check_address(broker, (*path, "awsKms", "endpoint"), spec.aws_kms.endpoint, proxy, "AWS KMS")
        if spec.plugin is not None and not _WORD.fullmatch(spec.plugin.name or ""):
            broker.refuse((*path, "plugin", "name"), "not the name of a key provider", "write its entry point's name")

    if (login := broker.spec.vault) is not None:
        _check_address(broker, ("vault", "address"), login.address or "", proxy, "Vault or OpenBao")
        if not login.token_file:
            broker.missing(("vault", "tokenFile"), "write the path of the file that has the token")


def _check_vault(broker: Written[BrokerSpec], path: Keys, spec: VaultSpec, proxy: OutgoingProxy | None) -> None:
    _check_address(broker, (*path, "address"), spec.address or "", proxy, "Vault or OpenBao")
    if not _WORD.fullmatch(spec.key or ""):
        broker.refuse((*path, "key"), "not the name of a transit key", "write the key's name")
    if (spec.token is None) == (spec.token_file is None):
        broker.refuse(path, "a token comes from exactly one of tokenFile and token", _TOKEN_ADVICE)
    if spec.token is not None:
        source = source_of(broker, (*path, "token"), spec.token, plain_hint=_TOKEN_ADVICE)
        if source is not None and source.secret is not None:
            broker.refuse((*path, "token"), "the secret lies in the store that it opens", _TOKEN_ADVICE)


def _check_address(
    broker: Written[BrokerSpec], path: Keys, address: str, proxy: OutgoingProxy | None, service: str
) -> None:
    plain = url_checks.is_http(address) and not is_loopback(url_checks.host_of(address))
    if url_checks.problem(address, query=False) or plain:
        advice = "write https://<host>, with its port, or http:// with a literal loopback address"
        broker.refuse(path, f"not the address of {service}", advice)
    elif problem := lookup_problem(url_checks.host_of(address), proxy):
        broker.refuse(path, *problem)


def _vault_options(broker: Written[BrokerSpec], path: Keys, spec: VaultSpec) -> dict[str, Any]:
    source = spec.token.value_from if spec.token is not None else None
    return _given(
        address=spec.address,
        mount=spec.mount,
        namespace=spec.namespace,
        tokenEnv=source.env if source is not None else None,
        tokenFile=spec.token_file and absolute(broker.document.folder, spec.token_file),
        ca=trusted_ca(broker, spec.ca, (*path, "vault", "ca")),
    )


def _given(**options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value}

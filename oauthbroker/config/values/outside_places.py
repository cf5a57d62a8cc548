"""Read where a value lies in a service outside: `valueFrom.vault` and `valueFrom.awsSecret`."""

from __future__ import annotations

import re
from typing import Any, Final

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.written.client_spec import AwsSecretValue, OutsideFrom, VaultValue
from oauthbroker.core.path_steps import climbs
from oauthbroker.model.outside_values import OutsideValue

_PLACE: Final = re.compile(r"[A-Za-z0-9._+=@ -]+(/[A-Za-z0-9._+=@ -]+)*")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]+")


def outside_place(resource: Written[Any], path: Keys, value: OutsideFrom) -> OutsideValue | None:
    """Return the place, or None and a problem."""
    if [value.env, value.secret_ref, value.vault, value.aws_secret].count(None) != 3:
        what = "valueFrom is exactly one of env, secretRef, vault and awsSecret"
        resource.refuse(path, what, "leave one of them")
        return None
    if value.vault is not None:
        return _in_vault(resource, (*path, "vault"), value.vault)
    assert value.aws_secret is not None  # noqa: S101  (the caller has looked)
    return _in_aws(resource, (*path, "awsSecret"), value.aws_secret)


def _in_vault(resource: Written[Any], path: Keys, value: VaultValue) -> OutsideValue | None:
    mount = "secret" if value.mount is None else value.mount.strip("/")
    for name, text in (("mount", mount), ("path", value.path or "")):
        if not _PLACE.fullmatch(text) or climbs(f"/{text}"):
            advice = "write it as `vault kv get -mount=<mount> <path>` takes it"
            resource.refuse((*path, name), f"not the {name} of a secret in Vault", advice)
            return None
    if value.key is None or not _KEY.fullmatch(value.key):
        resource.refuse((*path, "key"), "not the key of a secret", "write key: <key>, letters, digits, '-', '_', '.'")
        return None
    return OutsideValue(value.path or "", value.key, mount)


def _in_aws(resource: Written[Any], path: Keys, value: AwsSecretValue) -> OutsideValue | None:
    if not _ARN.fullmatch(value.arn or ""):
        advice = "write the secret's whole ARN, arn:aws:secretsmanager:<region>:<account>:secret:<name>"
        resource.refuse((*path, "arn"), "not the ARN of a secret", advice)
        return None
    if value.key is not None and not _KEY.fullmatch(value.key):
        resource.refuse(
            (*path, "key"), "not the key of a secret", "write key: <key>, or leave it out for the whole text"
        )
        return None
    return OutsideValue(value.arn or "", value.key or "")

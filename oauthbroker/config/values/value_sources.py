"""Read a ValueSource: the origin of a value, and the value itself when the runtime starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oauthbroker.config.problems.problems import ConfigProblem, Keys, Problems, SourcePlace
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.written.client_spec import SecretRef, ValueFrom, ValueSource
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.outside_values import OutsideValue

SecretKey = tuple[str, str]
"""(name, key) of an entry of the sealed secret store: `Secret/<name>`, `key`."""

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SHOWN: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")  # the secret itself, written in place of a name, is not quoted
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_KEPT: Final = " is not in the secret store"
SECRET_ADVICE: Final = (
    "write valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}, or allowPlainSecrets: dev in the Broker resource"
)
_FROM_ADVICE: Final = "write valueFrom: {env: NAME} or {secretRef: {ref: Secret/<name>, key: <key>}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One value's origin: exactly one of `plain`, `env`, `secret` and `outside` is set. One `outside` is read by the
    running broker, and not by `read`. `place` and `path` are for problems."""

    place: SourcePlace
    path: str
    plain: Secret | None = None
    env: str = ""
    secret: SecretKey | None = None
    outside: OutsideValue | None = None
    lines: bool = False
    is_login: bool = False

    @property
    def described(self) -> str:
        """Return the source in words: `environment NAME`, `Secret/name key`, `Vault mount/path key`, or an empty
        text."""
        if self.outside is not None:
            return str(self.outside)
        if self.env:
            return f"environment {self.env}" if _SHOWN.fullmatch(self.env) else "an environment variable"
        return f"Secret/{self.secret[0]} {self.secret[1]}" if self.secret else ""

    def read(self, env: Mapping[str, str], secrets: Mapping[SecretKey, Secret], problems: Problems) -> Secret | None:
        """Return the value, or None and a problem: it is not there, is empty, or has control characters.

        Only a private key (`lines`) may have line breaks. A login is `user:password`.
        """
        value, named = self.plain, f"the value of {self.described}" if self.described else "the value"
        if self.env:
            try:
                text: object = env.get(self.env)
            except Exception as error:  # noqa: BLE001  (a mapping of the program's own, such as a client of a vault)
                what = f"{self.described} cannot be read: {type(error).__name__}"
                problems.add(self.place, self.path, what, "repair the mapping passed as `env`")
                return None
            if text is not None and not isinstance(text, str):
                problems.add(self.place, self.path, f"{named} is no text", "let `env` return a text for it")
                return None
            value = None if text is None else Secret(text)
        elif self.secret is not None:
            value = secrets.get(self.secret)
        if value is None:
            self.report_missing(problems)
        elif not value.reveal().strip():
            problems.add(self.place, self.path, f"{named} is empty", "give it one")
        elif not self.lines and any(ord(it) < 32 or ord(it) == 127 for it in value.reveal()):
            problems.add(self.place, self.path, f"{named} has a line break or control character", "remove it")
        elif self.is_login and ":" not in value.reveal():
            problems.add(self.place, self.path, f"{named} has no colon", "set the variable to user:password")
        else:
            return value
        return None

    def report_missing(self, problems: Problems) -> None:
        if self.env:
            what = f"{self.described} is not set".replace("an environment variable", "the environment variable")
            problems.add(self.place, self.path, what, "set it where the broker starts")
        elif self.secret is not None:
            hint = f"run `oauthbroker secrets set {self.secret[0]} {self.secret[1]}`"
            problems.add(self.place, self.path, f"{self.described}{_NOT_KEPT}", hint)


def is_unread_secret(problem: ConfigProblem) -> bool:
    """Return whether the problem is that the secret store does not have a value."""
    return problem.what.endswith(_NOT_KEPT)


def is_secret_key(name: str, key: str) -> bool:
    """Return whether a bundle could name this entry of the secret store."""
    return bool(_KEY.fullmatch(name) and _KEY.fullmatch(key))


def source_of(
    resource: Written[Any], path: Keys, value: ValueSource, *, plain_hint: str = "", lines: bool = False
) -> Source | None:
    """Return the origin that a ValueSource names, or None and a problem.

    `plain_todo` refuses a plain value and says what to write instead; empty, a plain value is fine.
    """
    if not resource.whole(*path):
        return None
    source = Source(place=resource.place(*path), path=resource.path(*path), plain=value.value, lines=lines)
    if (value.value is None) == (value.value_from is None):
        resource.refuse(path, "a value source is exactly one of value and valueFrom", _FROM_ADVICE)
        return None
    if value.value_from is not None:
        return _from(resource, (*path, "valueFrom"), value.value_from, source)
    if plain_hint:
        resource.refuse((*path, "value"), "a secret in plain YAML", plain_hint)
        return None
    return source


def _from(resource: Written[Any], path: Keys, value: ValueFrom, source: Source) -> Source | None:
    if (value.env is None) == (value.secret_ref is None):
        resource.refuse(path, "valueFrom is exactly one of env and secretRef", _FROM_ADVICE)
        return None
    if value.secret_ref is not None:
        key = _secret_key(resource, (*path, "secretRef"), value.secret_ref)
        return key and replace(source, secret=key)
    if value.env is None or not _ENV_NAME.fullmatch(value.env):
        resource.refuse((*path, "env"), "not the name of an environment variable", "write letters, digits and _")
        return None
    return replace(source, env=value.env)


def _secret_key(resource: Written[Any], path: Keys, value: SecretRef) -> SecretKey | None:
    ref = value.ref
    if ref is None or ref.kind != "Secret" or not ref.name or not _KEY.fullmatch(ref.name):
        resource.refuse((*path, "ref"), "not a reference to a secret", "write ref: Secret/<name>")
        return None
    if value.key is None or not _KEY.fullmatch(value.key):
        resource.refuse((*path, "key"), "not the key of a secret", "write key: <key>, letters, digits, '-', '_', '.'")
        return None
    return ref.name, value.key

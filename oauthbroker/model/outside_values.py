"""Values that lie in a service outside: a secret of Vault or OpenBao (KV version 2), or of AWS Secrets Manager."""

from __future__ import annotations

from oauthbroker.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutsideValue:
    """One value: of Vault by `mount`, `path` and `key`, or of AWS by the secret's ARN as `path`, without a `mount`. An
    empty `key` is the whole text of the AWS secret."""

    path: str
    key: str = ""
    mount: str = ""

    def __str__(self) -> str:
        place = f"Vault {self.mount}/{self.path}" if self.mount else f"AWS {self.path}"
        return f"{place} {self.key}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultLogin:
    """Where Vault or OpenBao is, and how it is asked. `token_file` is read at each request, because agents replace it;
    `ca` (PEM) is trusted beside the system's."""

    address: str
    token_file: str
    namespace: str = ""
    ca: str = ""

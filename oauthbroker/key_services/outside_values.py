"""Read values that the configuration names in a service outside. Each read blocks its thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import json_object
from oauthbroker.key_services.aws_service import AwsService, ServiceRefused
from oauthbroker.key_services.vault import VaultClient
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.outside_values import OutsideValue, VaultLogin

_GONE: Final = frozenset({"ResourceNotFoundException", "InvalidRequestException"})  # the second: it is being deleted


@dataclass(frozen=True, slots=True)
class OutsideValues:
    """A secret with several values is read once for all of them."""

    vault: VaultLogin | None
    proxy: OutgoingProxy | None

    def read(self, wanted: Iterable[OutsideValue]) -> dict[OutsideValue, Secret]:
        """Return the values of now. Raises `appMisconfigured` for one that is not there, and `providerUnreachable` or
        `outgoingProxyRefused` for a service that cannot be used; the notes name the place."""
        secrets: dict[tuple[str, str], Mapping[str, Any]] = {}
        found = dict[OutsideValue, Secret]()
        try:
            for each in wanted:
                place = each.mount, each.path
                if place not in secrets:
                    secrets[place] = self._secret(each)
                value = secrets[place].get(each.key)
                if not isinstance(value, str):
                    raise _gone(each)
                found[each] = Secret(value)
        except BrokerError as error:
            code = Code.PROVIDER_UNREACHABLE if error.code is Code.KEY_UNKNOWN else error.code
            failed = BrokerError(code, note=error.note)
        else:
            return found
        raise failed

    def _secret(self, value: OutsideValue) -> Mapping[str, Any]:
        """Return a secret's members. The whole text of one in AWS is the member without a name."""
        if value.mount:
            assert self.vault is not None  # noqa: S101  (the configuration was checked)
            members = VaultClient(
                address=self.vault.address,
                namespace=self.vault.namespace,
                token_file=self.vault.token_file,
                ca=self.vault.ca,
                proxy=self.proxy,
                about=str(value),
            ).secret(value.mount, value.path)
            if members is None:
                raise _gone(value)
            return members
        service = AwsService(
            name="secretsmanager",
            target="secretsmanager",
            region=value.path.split(":")[3],
            about=value.path,
            proxy=self.proxy,
        )
        try:
            text = service.call("GetSecretValue", {"SecretId": value.path}).get("SecretString")
        except ServiceRefused as refused:
            failed = _gone(value) if refused.code in _GONE else service.unusable(refused.code)
        else:
            members = json_object(text) if isinstance(text, str) else None
            return {"": text, **(members or {})}
        raise failed


def _gone(value: OutsideValue) -> BrokerError:
    return BrokerError(Code.APP_MISCONFIGURED, note=f"{value}: there is no such secret or key")

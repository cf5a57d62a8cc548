"""Apps that a program writes in Python in place of YAML: the same resources, with the same checks and messages.

An argument is a field of `spec` in snake case. Its value is what stands in the YAML, with the YAML's names inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from pydantic.alias_generators import to_camel

from oauthbroker.config.written.fields import API_VERSIONS
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.apps import Flow, Pushing
from oauthbroker.model.turn import SubjectMode

_Mapping = Mapping[str, Any]


class _AppFields(TypedDict, total=False):
    """The fields that both kinds have."""

    title: str
    provider: str
    params: Mapping[str, str]
    connect_params: Mapping[str, _Mapping]
    subject_mode: SubjectMode
    accounts: Literal["one", "several"]
    owner: _Mapping
    api: _Mapping
    provider_ca: str
    outgoing_proxy: Literal["direct"]


class OAuthAppFields(_AppFields, total=False):
    """The fields of `kind: OAuthApp`."""

    mcp: _Mapping
    flow: Flow
    client: _Mapping
    endpoints: Mapping[str, str]
    scopes: Sequence[str]
    resource: str | Sequence[str]
    pushed_authorization: Pushing
    redirect: Mapping[str, str]
    refresh: Mapping[str, int]
    also_grants: str
    quirks: _Mapping
    facts: _Mapping
    options: Mapping[str, Mapping[str, str]]


class CredentialAppFields(_AppFields, total=False):
    """The fields of `kind: CredentialApp`."""

    fields: Mapping[str, _Mapping]
    values: Mapping[str, _Mapping]
    inject: _Mapping
    verify: _Mapping
    life: _Mapping
    fallback: Literal["team"]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AppResource:
    """One resource, as a document of YAML has it. `open_broker(apps=[...])` takes it."""

    kind: str
    name: str
    spec: Mapping[str, Any] = field(repr=False)

    def document(self) -> dict[str, Any]:
        """Return the resource as plain data of its own."""
        spec = {to_camel(name): _plain(value) for name, value in self.spec.items()}
        return {"apiVersion": API_VERSIONS[0], "kind": self.kind, "metadata": {"name": self.name}, "spec": spec}


def oauth_app(name: str, **spec: Unpack[OAuthAppFields]) -> AppResource:
    """Write an OAuthApp."""
    return AppResource("OAuthApp", name, spec)


def credential_app(name: str, **spec: Unpack[CredentialAppFields]) -> AppResource:
    """Write a CredentialApp."""
    return AppResource("CredentialApp", name, spec)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value

"""The written form of `kind: CredentialApp`, which is imported when a file has one."""

from typing import Annotated, Literal

from pydantic import Field

from oauthbroker.config.written.client_spec import OutsideValueSource
from oauthbroker.config.written.fields import Rare, Strict, Text
from oauthbroker.config.written.resource_specs import ConnectParamSpec, ProviderApiSpec
from oauthbroker.model.turn import SubjectMode
from oauthbroker.providers.credential_form import Fields, InjectForm, LifeForm, VerifyForm


class CredentialOwnerSpec(Strict):
    """Who may type a credential: the person that its check names, or the one that the broker knows."""

    binding: Literal["providerIdentity", "brokerLogin", "localOperator"] | None = None


class CredentialAppSpec(Strict):
    """An app whose credential is a key, a password or another secret that a person types."""

    title: Text | None = None
    provider: Text | None = None
    params: Annotated[dict[str, Text], Field(max_length=50)] | None = None
    connect_params: Annotated[dict[str, Rare[ConnectParamSpec]], Field(max_length=5)] | None = None
    subject_mode: SubjectMode | None = None
    accounts: Literal["one", "several"] | None = None
    fields: Fields | None = None
    values: Annotated[dict[str, OutsideValueSource], Field(max_length=5)] | None = None
    inject: InjectForm | None = None
    verify: VerifyForm | None = None
    life: LifeForm | None = None
    environment: Annotated[dict[str, Text], Field(max_length=5)] | None = None
    fallback: Literal["team"] | None = None
    owner: CredentialOwnerSpec | None = None
    api: ProviderApiSpec | None = None
    provider_ca: Text | None = None
    outgoing_proxy: Literal["direct"] | None = None

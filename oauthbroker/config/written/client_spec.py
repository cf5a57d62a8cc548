"""The written form of a client: where its values come from, how it proves itself, and where its provider answers."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from oauthbroker.config.written.fields import Ref, Strict, Text
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import AssertionAudience, AssertionType, AuthMethod


def _secret(value: Any) -> Secret:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "not text")
    return Secret(value)


def _source(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise PydanticCustomError("string_type", "not text")
    return {"value": value} if isinstance(value, str) else value


def no_bare_secret(value: Any) -> Any:
    if isinstance(value, str):
        raise PydanticCustomError("bare_secret", "a secret as plain text")
    return value


class SecretRef(Strict):
    ref: Ref | None = None
    key: Text | None = None


class ValueFrom(Strict):
    env: Text | None = None
    secret_ref: SecretRef | None = None


class ValueSource(Strict):
    """Either `value`, or one source in `valueFrom`. A plain value is wrapped at once, so that no model can print it."""

    value: Annotated[Secret | None, BeforeValidator(_secret, json_schema_input_type=Text)] = None
    value_from: ValueFrom | None = None


class VaultValue(Strict):
    mount: Text | None = None
    path: Text | None = None
    key: Text | None = None


class AwsSecretValue(Strict):
    arn: Text | None = None
    key: Text | None = None


class OutsideFrom(ValueFrom):
    """`valueFrom` of a value that may also lie in a service outside."""

    vault: VaultValue | None = None
    aws_secret: AwsSecretValue | None = None


class OutsideSource(ValueSource):
    """A value that is never bare text."""

    value_from: OutsideFrom | None = None


SecretSource = Annotated[ValueSource, BeforeValidator(no_bare_secret)]
"""A value that is never bare text: `{valueFrom: ...}`."""
OutsideValueSource = Annotated[OutsideSource, BeforeValidator(no_bare_secret)]


class ClientSpec(Strict):
    """`clientSecret`, or several in the order in which they are tried."""

    client_id: Annotated[ValueSource | None, BeforeValidator(_source, json_schema_input_type=Text | ValueSource)] = None
    client_secret: SecretSource | None = None
    client_secrets: Annotated[list[SecretSource], Field(max_length=5)] | None = None
    auth_method: AuthMethod | None = None
    assertion_type: AssertionType | None = None
    assertion_audience: AssertionAudience | None = None


class LoginEndpointsSpec(Strict):
    """The endpoints of an app that a login needs."""

    authorization_url: Text | None = None
    token_url: Text | None = None
    issuer: Text | None = None
    jwks_url: Text | None = None


class EndpointsSpec(LoginEndpointsSpec):
    revoke_url: Text | None = None
    user_info_url: Text | None = None
    device_authorization_url: Text | None = None
    refresh_url: Text | None = None
    pushed_authorization_url: Text | None = None


ENDPOINT_NAMES = {name: info.alias or name for name, info in EndpointsSpec.model_fields.items()}

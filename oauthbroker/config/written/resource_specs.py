"""The written form: what may stand in each kind of resource. Shapes only; `checks_*` check the values.

Nothing is required here and nothing is coerced: an absent field is None, `0123` is not text, an unknown field is
refused. So one pass finds every wrong shape, and the checks go on with the rest.
"""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from oauthbroker.config.written.client_spec import ClientSpec, EndpointsSpec, SecretSource
from oauthbroker.config.written.fields import Rare, Ref, Strict, Text, Texts, Tolerant
from oauthbroker.model.apps import ANYONE, Binding, Flow, IdentitySource, Link, Pushing
from oauthbroker.model.provider_api import ApiMethod
from oauthbroker.model.turn import SubjectMode
from oauthbroker.providers.connection_facts_form import ConnectionFactsForm
from oauthbroker.providers.quirk_values import Member
from oauthbroker.providers.quirks import Quirks


def _authorizers(value: Any) -> Any:
    if isinstance(value, list) and ANYONE in value:
        raise PydanticCustomError("anyone_in_list", "the word stands alone")
    return [ANYONE] if value == ANYONE else value


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RedirectSpec(Strict):
    callback_path: Text | None = None
    base_url: Text | None = None
    link: Link | None = None
    uri_name: Text | None = None


class IdentitySpec(Strict):
    source: IdentitySource | None = Field(default=None, alias="from")
    template: Text | None = None
    requires: Annotated[dict[Member, bool | Text], Field(max_length=5)] | None = None
    name: Member | None = None


class IdentitiesSpec(Strict):
    global_: IdentitySpec | None = Field(default=None, alias="global")
    user: IdentitySpec | None = None


class OwnerSpec(Strict):
    binding: Binding | None = None
    confirm_url: Text | None = None
    identity: IdentitiesSpec | None = None
    authorizers: Annotated[
        Texts | None, BeforeValidator(_authorizers, json_schema_input_type=Literal["anyone"] | Texts)
    ] = None


class QuirksSpec(Quirks, Strict):
    """What the app's provider does its own way, in the words of the presets. Only an app can say that its provider
    refuses PKCE."""

    pkce: Literal["refused"] | None = None


def _host(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ApiHostSpec(Strict):
    """`name`, `name:port`, or `{providerData, within}` for a host that differs by account."""

    name: Text | None = None
    provider_data: Text | None = None
    within: Text | None = None


class FactsSpec(ConnectionFactsForm, Strict):
    """The facts of a connection, in the words of the presets."""


class ProviderApiSpec(Strict):
    hosts: (
        Annotated[
            list[Annotated[ApiHostSpec, BeforeValidator(_host, json_schema_input_type=Text | ApiHostSpec)]],
            Field(max_length=50),
        ]
        | None
    ) = None
    methods: Annotated[list[ApiMethod], Field(max_length=10)] | None = None
    headers: Texts | None = None
    base_path: Text | None = None
    paths: Annotated[Texts | None, Field(max_length=50)] = None
    delivery: Literal["injected"] | None = None


class McpSpec(Strict):
    """The MCP server of an app with `provider: mcp`."""

    url: Text | None = None
    issuer: Text | None = None


class RefreshSpec(Strict):
    ahead_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None


class ConnectParamSpec(Strict):
    """What differs for each connection of an app: a shop, a site, a region."""

    title: Text | None = None
    pattern: Text | None = None
    one_of: Annotated[Texts | None, Field(max_length=100)] = None
    within: Text | None = None


class OAuthAppSpec(Strict):
    """An app at an OAuth provider: its client, flow, scopes and owners. Its `options` depend on the provider."""

    title: Text | None = None
    provider: Text | None = None
    mcp: Rare[McpSpec] | None = None
    params: Annotated[dict[str, Text], Field(max_length=50)] | None = None
    connect_params: Annotated[dict[str, Rare[ConnectParamSpec]], Field(max_length=5)] | None = None
    flow: Flow | None = None
    subject_mode: SubjectMode | None = None
    accounts: Literal["one", "several"] | None = None
    client: ClientSpec | None = None
    endpoints: EndpointsSpec | None = None
    provider_ca: Text | None = None
    outgoing_proxy: Literal["direct"] | None = None
    scopes: Texts | None = None
    resource: Annotated[Texts | None, BeforeValidator(_one_or_many, json_schema_input_type=Text | Texts)] = None
    pushed_authorization: Pushing | None = None
    redirect: RedirectSpec | None = None
    refresh: Rare[RefreshSpec] | None = None
    owner: OwnerSpec | None = None
    also_grants: Ref | None = None
    quirks: Rare[QuirksSpec] | None = None
    facts: Rare[FactsSpec] | None = None
    api: Rare[ProviderApiSpec] | None = None
    options: Annotated[dict[str, Annotated[dict[str, Text], Field(max_length=50)]], Field(max_length=10)] | None = None


class ToolAuthSpec(Strict):
    oauth_app_ref: Ref | None = None
    scopes: Texts | None = None
    delivery: Literal["injected"] | None = None


class ExportAuthSpec(Strict):
    """An export can only narrow what its tool declared."""

    scopes: Texts | None = None


class ExportSpec(Tolerant):
    name: Text | None = None
    auth: ExportAuthSpec | None = None


class PartSpec(Tolerant):
    """A part of the runtime that asks for tokens, within the apps and scopes of its `auth`."""

    auth: ToolAuthSpec | None = None


class ToolSpec(PartSpec):
    """A tool that asks for tokens, within the apps and scopes of its `auth`."""

    exports: Annotated[list[ExportSpec], Field(max_length=1000)] | None = None


class ConnectorAuthSpec(Strict):
    """`oauthAppRef` or `staticToken`, never both."""

    oauth_app_ref: Ref | None = None
    scopes: Texts | None = None
    static_token: SecretSource | None = None


class ConnectorSpec(Tolerant):
    """A channel between users and agents."""

    auth: ConnectorAuthSpec | None = None


class ResourceMetadata(Tolerant):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$")] | None = None


class Header(Strict):
    """What every resource has. `spec` is checked by its kind's own model."""

    api_version: Literal["agents.example.io/v1alpha1", "goondan.ai/v1"] | None = None
    kind: Text | None = None
    metadata: ResourceMetadata | None = None
    spec: dict[str, Any] | None = None


PARTS: Final = ("Extension", "Connection")  # of the runtime, read for their `auth`


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside an annotation: through Optional, Annotated, list and dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in {Annotated, Union, types.UnionType, list, dict}:
        for inner in get_args(annotation):
            yield from models_in(inner)

"""What a preset, or an app, says of a static credential: its fields, where a request carries them, and its check.

One schema for both. docs/credentials.md has every word.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from oauthbroker.core.header_names import carries_tokens, spelled_text
from oauthbroker.core.patterns import is_pattern
from oauthbroker.model.static_credential import (
    CredentialField,
    Placement,
    Verification,
)
from oauthbroker.providers.quirk_values import ADDRESS, AWS_HOST, LINE, Headers
from oauthbroker.providers.quirks import Data

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_FIELD_NAME = r"[a-z][A-Za-z0-9]{0,31}"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # field-name, RFC 9110 section 5.1
_TEMPLATE = re.compile(r"[ -~]{1,512}")
_PATH = re.compile(r"/[A-Za-z0-9._~:@!$&'()*+,;=%{}/-]{0,255}")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~:@!$'()*+,;=%{}/?&-]{0,512})")


def _template(text: str) -> str:
    if not _TEMPLATE.fullmatch(text) or "{" in PLACEHOLDER.sub("", text) or "}" in PLACEHOLDER.sub("", text):
        raise PydanticCustomError("template", "not a text with {fields}")
    return text


def _carrier(name: str) -> str:
    """Return the name of a header that may carry a credential: one that says nothing else, here or at a proxy."""
    if not _HEADER.fullmatch(name):
        raise PydanticCustomError("header_name", "not the name of a header")
    spelled = spelled_text(name)
    if spelled != "authorization" and not carries_tokens(spelled.encode()) and not spelled.endswith("-authorization"):
        raise PydanticCustomError("token_header", "not a header for a credential")
    return name


def _is_path(text: str) -> str:
    path, _, query = text.partition("?")
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query) or ".." in path or "//" in path:
        raise PydanticCustomError("path", "not a path")
    return text


def _prefix(text: str) -> str:
    if not _PATH.fullmatch(text) or text.endswith("/") or ".." in text or "//" in text or "{" not in text:
        raise PydanticCustomError("path_prefix", "not the beginning of a path with a field")
    return text


Template = Annotated[str, AfterValidator(_template)]
Path = Annotated[str, AfterValidator(_is_path)]
_Carrier = Annotated[str, AfterValidator(_carrier)]
_QueryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]-]{1,64}$")]
_Text = Annotated[str, Field(min_length=1, max_length=200, pattern=LINE)]
_Address = Annotated[str, Field(max_length=500, pattern=ADDRESS)]


class FieldForm(Data):
    """One secret that a person types."""

    title: _Text
    pattern: Annotated[str, Field(max_length=500)] = ""
    example: _Text | Literal[""] = ""
    obtain: _Address | Literal[""] = ""

    def field(self, name: str) -> CredentialField:
        return CredentialField(
            name=name, title=self.title, pattern=self.pattern, example=self.example, obtain=self.obtain
        )

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        if not is_pattern(self.pattern):
            raise PydanticCustomError("field_pattern", "its pattern is none")
        return self


class BasicForm(Data):
    """Basic authentication (RFC 7617)."""

    username: Template
    password: Template | Literal[""] = ""


class AwsSigV4Form(Data):
    """AWS Signature Version 4."""

    access_key_id: Template
    secret_access_key: Template
    session_token: Template | None = None
    service: Template
    region: Template


class OAuth1Form(Data):
    """OAuth 1.0a (RFC 5849) with tokens that the provider has issued before."""

    consumer_key: Template
    consumer_secret: Template
    token: Template
    token_secret: Template
    realm: Template | None = None
    signature_method: Literal["HMAC-SHA1", "HMAC-SHA256"] = "HMAC-SHA1"


class InjectForm(Data):
    """Where a request carries the credential: exactly one of these, and `headers` beside it."""

    bearer: Template | None = None
    basic: BasicForm | None = None
    headers: Annotated[dict[_Carrier, Template], Field(max_length=10)] | None = None
    query: Annotated[dict[_QueryName, Template], Field(max_length=5)] | None = None
    path: Annotated[str, AfterValidator(_prefix)] | None = None
    aws_sig_v4: Annotated[AwsSigV4Form | None, Field(alias="awsSigV4")] = None
    oauth1: OAuth1Form | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        said = self.model_fields_set - {"headers"}
        if len(said) > 1:
            raise PydanticCustomError("inject_one", "two forms")
        set_by_form = {"authorization"} if said & {"bearer", "basic", "aws_sig_v4", "oauth1"} else set[str]()
        names = [spelled_text(name) for name in self.headers or {}]
        if len({*names, *set_by_form}) < len(names) + len(set_by_form):
            raise PydanticCustomError("inject_twice", "the same header twice")
        return self

    def placement(self) -> Placement:
        """Return the placement. `bearer` is a header."""
        beside = dict(self.headers or {})
        if self.basic is not None:
            return Placement(kind="basic", texts=_texts(self.basic), beside=beside)
        if self.query is not None:
            return Placement(kind="query", texts=dict(self.query), beside=beside)
        if self.path is not None:
            return Placement(kind="path", texts={"path": self.path}, beside=beside)
        if self.aws_sig_v4 is not None:
            return Placement(kind="awsSigV4", texts=_texts(self.aws_sig_v4), beside=beside)
        if self.oauth1 is not None:
            return Placement(kind="oauth1", texts=_texts(self.oauth1), beside=beside)
        bearer = {"Authorization": f"Bearer {self.bearer}"} if self.bearer is not None else {}
        return Placement(kind="headers", texts={**bearer, **beside})


class VerifyForm(Data):
    """The request that checks a credential. `account` is a template over its JSON answer, as in identity templates,
    `name` the path of what people call that account there. `refused` are statuses that mean a wrong credential beside
    401 and 403. `host` is another service of AWS."""

    path: Path
    host: Annotated[str, Field(max_length=200, pattern=AWS_HOST)] = ""
    method: Literal["GET", "POST"] = "GET"
    headers: Headers = Field(default_factory=dict)
    body: Annotated[str, Field(max_length=2000)] = ""
    account: Annotated[str, Field(max_length=300)] = ""
    name: Annotated[str, Field(max_length=200)] = ""
    refused: Annotated[list[Annotated[int, Field(ge=400, le=499)]], Field(max_length=5)] = Field(default_factory=list)

    def request(self) -> Verification:
        return Verification(
            path=self.path,
            method=self.method,
            headers=self.headers,
            body=self.body,
            refused=tuple(self.refused),
            host=self.host,
            service=self.host.partition(".")[0],
        )


class LifeForm(Data):
    """How long a credential works."""

    days: Annotated[int, Field(ge=1, le=3650)]


Fields = Annotated[
    dict[Annotated[str, Field(pattern=rf"^{_FIELD_NAME}$")], FieldForm], Field(min_length=1, max_length=5)
]


def placeholders(placement: Placement) -> Iterator[str]:
    """Yield the names in a placement's texts."""
    for text in placement.templates:
        yield from PLACEHOLDER.findall(text)


def _texts(form: Data) -> dict[str, str]:
    return {name: text for name, text in form.model_dump(by_alias=True).items() if text is not None}

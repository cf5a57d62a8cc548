"""The base of the API's models: strictness, and the kinds of text that occur in many of them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from oauthbroker.core.secret import Secret
from oauthbroker.grants.grant_pages import PLACE
from oauthbroker.model.apps import AppKind
from oauthbroker.model.identities import AGENT, LONGEST_AGENT, MAX_BYTES, is_subject
from oauthbroker.model.turn_token import LONGEST_TOOL, TOOL

MOST = 32 * 1024  # characters of a token that a caller sends back


class RequestModel(BaseModel):
    """A request: only known fields, each of exactly its type; errors never quote the request. `is_remembered`: its
    bodies hold no secret and are sent again and again, so the last ones are parsed once."""

    is_remembered: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def _subject(text: str) -> str:
    if not is_subject(text):
        raise ValueError("a subject")
    return text


def _short(secret: Secret) -> Secret:
    if len(secret.reveal()) > MOST:
        raise ValueError("too long")
    return secret


Name = Annotated[str, Field(min_length=1, max_length=256)]
AgentName = Annotated[str, Field(pattern=f"^{AGENT.pattern}$", max_length=LONGEST_AGENT, examples=["planner"])]
Line = Annotated[str, Field(min_length=1, max_length=1024)]
Subject = Annotated[
    str,
    AfterValidator(_subject),
    Field(min_length=1, max_length=MAX_BYTES, description=f"At most {MAX_BYTES} bytes, compared byte for byte."),
]
Concealed = Annotated[Secret, AfterValidator(_short), WithJsonSchema({"type": "string", "maxLength": MOST})]
"""A secret that a caller sends."""

SessionId = Annotated[str, Field(pattern=r"^as-[A-Za-z0-9_-]{22}$", examples=["as-AAAAAAAAAAAAAAAAAAAAAA"])]
GrantId = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
GrantPlace = Annotated[str, Field(pattern=PLACE.pattern)]
TurnId = Annotated[str, Field(pattern=r"^turn-[A-Za-z0-9_-]{22}$", examples=["turn-AAAAAAAAAAAAAAAAAAAAAA"])]
Kind = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
Ref = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*/[^/]+$", max_length=256)]
ToolRef = Annotated[str, Field(pattern=f"^{TOOL.pattern}$", max_length=LONGEST_TOOL)]


class NamedApp(RequestModel):
    """An OAuthApp or CredentialApp by kind and name."""

    kind: Annotated[AppKind, Field(description="Default: `OAuthApp`.")] = "OAuthApp"
    name: Name
    apiVersion: str | None = None


def ref_of(ref: str | NamedApp) -> str:
    """Return the reference in the form that the folders take."""
    return ref if isinstance(ref, str) else f"{ref.kind}/{ref.name}"


class NamedSwarm(RequestModel):
    """A swarm by kind and name."""

    kind: Kind
    name: Annotated[str, Field(pattern=r"^[^/]+$", max_length=256)]
    apiVersion: str | None = None


AppText = Annotated[str, Field(pattern=r"^((OAuthApp|CredentialApp)/)?[^/@]+(@.*)?$", max_length=400)]
AppRef = Annotated[
    AppText | NamedApp,
    Field(
        description="`OAuthApp/name`, `CredentialApp/name`, the bare name, or kind and name.",
        examples=["OAuthApp/slack-bot"],
    ),
]
Scopes = Annotated[
    list[str] | None,
    Field(description="Left out: what the tool declared, else all of the app's. `[]`: nothing in particular."),
]

"""The written form of a connection's facts, in presets and apps, and of a preset's hosts that follow from them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from oauthbroker.core.patterns import is_pattern
from oauthbroker.core.secret import is_named_like_a_secret
from oauthbroker.model.connection_facts import (
    LONGEST_FACT,
    CallbackFact,
    ConnectionFacts,
    FactRequest,
    TokenClaim,
)
from oauthbroker.model.provider_api import AccountHost, is_host_name
from oauthbroker.providers.quirk_values import Member
from oauthbroker.providers.quirks import Data

_OF_THE_PROTOCOL = frozenset({"code", "error", "error_description", "error_uri", "hmac", "iss", "state"})


def _fact_name(name: str) -> str:
    """Return a name that tools may read, and that no part of the protocol has."""
    if is_named_like_a_secret(name):
        raise PydanticCustomError("tool_data", "named like a secret, which no tool is told")
    if name.lower() in _OF_THE_PROTOCOL:
        raise PydanticCustomError("fact_name", "a parameter of the protocol, which is no fact")
    return name


def _pattern(text: str) -> str:
    if not is_pattern(text):
        raise PydanticCustomError("fact_pattern", "not a regular expression")
    return text


def _suffix(text: str) -> str:
    if not text.startswith(".") or "." not in text[1:] or not is_host_name(text[1:]):
        raise PydanticCustomError("fact_within", "not a domain of its own, such as .example.com, in small letters")
    return text


FactName = Annotated[Member, AfterValidator(_fact_name)]
_Short = Annotated[str, Field(min_length=1, max_length=LONGEST_FACT)]
_Url = Annotated[str, Field(max_length=2048)]


class CallbackFactForm(Data):
    pattern: Annotated[str, Field(min_length=1, max_length=LONGEST_FACT), AfterValidator(_pattern)] | None = None
    one_of: Annotated[list[_Short], Field(min_length=1, max_length=50)] | None = None
    within: Annotated[str, Field(max_length=253), AfterValidator(_suffix)] | None = None
    default: _Short | None = None

    @property
    def fact(self) -> CallbackFact:
        return CallbackFact(
            pattern=self.pattern or "",
            one_of=tuple(self.one_of or ()),
            within=self.within or "",
            default=self.default or "",
        )


class AccountHostForm(Data):
    """A host of the API that differs by account, as in `api.hosts` of an app."""

    provider_data: Member
    within: Annotated[str, Field(max_length=253), AfterValidator(_suffix)]

    @property
    def host(self) -> AccountHost:
        return AccountHost(self.provider_data, self.within)


class TokenClaimForm(Data):
    claim: Member

    @property
    def wanted(self) -> TokenClaim:
        return TokenClaim(self.claim)


class FactRequestForm(Data):
    url: _Url
    each: Annotated[dict[FactName, Member], Field(min_length=1, max_length=10)]
    path: Member | None = None
    label: Member | None = None
    where: Annotated[dict[Member, bool | _Short | TokenClaimForm], Field(max_length=5)] = Field(default_factory=dict)
    choose: Literal["page"] | None = None

    @property
    def request(self) -> FactRequest:
        where = {path: it.wanted if isinstance(it, TokenClaimForm) else it for path, it in self.where.items()}
        return FactRequest(
            url=self.url,
            each=self.each,
            path=self.path or "",
            label=self.label or "",
            where=where,
            choose=self.choose is not None,
        )


class ConnectionFactsForm(Data):
    """The names are those of `ConnectionFacts`."""

    callback: Annotated[dict[FactName, CallbackFactForm], Field(max_length=10)] = Field(default_factory=dict)
    hmac: bool = False
    user_info: Annotated[dict[FactName, Member], Field(max_length=10)] = Field(default_factory=dict)
    requests: Annotated[list[FactRequestForm], Field(max_length=2)] = Field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return self.over(ConnectionFacts()).names

    def over(self, facts: ConnectionFacts) -> ConnectionFacts:
        """Return `facts` with each part that is written here in its place."""
        said: dict[str, Any] = {
            "callback": {name: form.fact for name, form in self.callback.items()},
            "hmac": self.hmac,
            "user_info": self.user_info,
            "requests": tuple(each.request for each in self.requests),
        }
        kept = {name: getattr(facts, name) for name in said.keys() - self.model_fields_set}
        return ConnectionFacts(**{**said, **kept})

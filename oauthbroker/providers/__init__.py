"""What we know of providers, as data: one YAML file each, with where every fact comes from.

A preset fills what an OAuthApp leaves out. Nothing here is code of one provider.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from oauthbroker.apps import AuthMethod, Habits, IdentitySource, Revocation

HOST_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""One label of a host name: what a parameter may be unless its preset allows more."""

Evidence = Annotated[str, Field(pattern=r"^(documentation|package \S+ \S+|unverified)( \(.+\))?$")]


class _Data(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class Param(_Data):
    """One `{name}` of the endpoints: what it is, and which values fit (a full match)."""

    description: str
    pattern: str = HOST_WORD


class PresetEndpoints(_Data):
    """As in the written form; `{params}` are filled in from the app."""

    authorization_url: str = ""
    token_url: str = ""
    revoke_url: str = ""
    user_info_url: str = ""
    issuer: str = ""
    device_authorization_url: str = ""
    jwks_url: str = ""


class PresetIdentity(_Data):
    """Where an account is read from. Without a template the app has to write one."""

    source: IdentitySource = Field(alias="from")
    template: str = ""


class PresetIdentities(_Data):
    global_: PresetIdentity | None = Field(default=None, alias="global")
    user: PresetIdentity | None = None


class PresetRevocation(_Data):
    kind: Literal["rfc7009", "none"] = "rfc7009"
    reach: Literal["token", "grant", "none"] = "grant"


class Modes(_Data):
    """Variants that `options.<provider>.<option>` picks: each overrides some of the preset's fields."""

    option: str
    default: dict[Literal["global", "user"], str]
    values: dict[str, dict[str, Any]]


class Preset(_Data):
    """Everything known of one provider. `evidence` says for every field that is set where it was learnt."""

    name: str
    title: str
    params: dict[str, Param] = Field(default_factory=dict)
    endpoints: PresetEndpoints = PresetEndpoints()
    auth_method: AuthMethod = "client_secret_basic"
    scope_separator: str = " "
    scope_param: str = "scope"
    always_scopes: list[str] = Field(default_factory=list)
    scope_aliases: dict[str, str] = Field(default_factory=dict)
    scope_prefixes: list[str] = Field(default_factory=list)
    unlisted_scopes: list[str] = Field(default_factory=list)
    extra_scopes: Literal["reject", "ignore"] = "reject"
    scopeless: bool = False
    token_path: list[str] = Field(default_factory=list)
    issuer_template: str = ""
    issuer_promised: bool = False
    token_response_format: Literal["json", "form"] = "json"
    token_type_aliases: list[str] = Field(default_factory=list)
    default_lifetime_seconds: int | None = None
    id_token_algorithms: list[str] = Field(default_factory=lambda: list(Habits().id_token_algorithms))
    keeps: list[str] = Field(default_factory=list)
    authorize_params: dict[str, str] = Field(default_factory=dict)
    token_params: dict[str, str] = Field(default_factory=dict)
    user_info_headers: dict[str, str] = Field(default_factory=dict)
    revoke: PresetRevocation = PresetRevocation()
    identity: PresetIdentities = PresetIdentities()
    modes: Modes | None = None
    evidence: dict[str, Evidence]

    def in_mode(self, mode: str) -> Preset:
        """The preset as one of its modes has it, or as it is if it has no such mode."""
        changes = self.modes.values.get(mode, {}) if self.modes else {}
        return Preset.model_validate({**self.model_dump(by_alias=True, exclude_unset=True), **changes})

    def habits(self) -> Habits:
        return Habits(
            scope_separator=self.scope_separator,
            scope_param=self.scope_param,
            always_scopes=tuple(self.always_scopes),
            scope_aliases=dict(self.scope_aliases),
            unlisted_scopes=tuple(self.unlisted_scopes),
            extra_scopes=self.extra_scopes,
            scopeless=self.scopeless,
            token_path=tuple(self.token_path),
            issuer_template=self.issuer_template,
            issuer_promised=self.issuer_promised,
            token_response_format=self.token_response_format,
            token_type_aliases=tuple(self.token_type_aliases),
            default_lifetime_seconds=self.default_lifetime_seconds,
            id_token_algorithms=tuple(self.id_token_algorithms),
            keeps=tuple(self.keeps),
            authorize_params=dict(self.authorize_params),
            token_params=dict(self.token_params),
            user_info_headers=dict(self.user_info_headers),
        )

    def revocation(self) -> Revocation:
        return Revocation(self.revoke.kind, self.revoke.reach)


@functools.cache
def presets() -> dict[str, Preset]:
    """Every preset by name. Raises pydantic's ValidationError if a shipped file is wrong, which a test rules out."""
    found: dict[str, Preset] = {}
    for file in resources.files(__name__).iterdir():
        if file.name.endswith(".yaml"):
            preset = Preset.model_validate(yaml.safe_load(file.read_text("utf-8")))
            found[preset.name] = preset
    return dict(sorted(found.items()))

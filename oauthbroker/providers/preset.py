"""The form of a preset: everything that may be said of one provider, and where it was learnt."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from oauthbroker.model.apps import AssertionAudience, AuthMethod, Flow, IdentitySource
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.providers.connection_facts_form import AccountHostForm, ConnectionFactsForm
from oauthbroker.providers.quirks import Data, Quirks

HOST_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""One label of a host name: what a parameter may be unless its preset allows more."""

_READ: Final = r"documentation \(.*\b[a-z0-9-]+\.[a-z]{2,}\b.*\bread [0-9]{4}-[0-9]{2}-[0-9]{2}\b.*\)"
Evidence = Annotated[str, Field(pattern=rf"^({_READ}|package \S+ \S+ \(.+\)|unverified \(.+\))$")]
"""The source of a fact. A page that was read is named in full, with the date: no "the same page", no "as above"."""

Parameters = Annotated[dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], str], Field(max_length=20)]
Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,60}_(TOKEN|KEY)$")]
"""An environment variable in which programs of the provider look for a token."""

_NO_FACTS: Final = {"name", "title", "documentation", "sampleScopes", "modes", "noApi", "evidence"}
_NESTED: Final = {
    "params", "derived", "endpoints", "identity", "global", "user", "revoke", "authorizeParams", "tokenParams",
    "refreshParams", "errorWords",
}  # fmt: skip
_MERGED: Final = {"endpoints", "identity"}


class Param(Data):
    """One `{name}` of the endpoints: its meaning, the accepted values (a full match), and the usual one."""

    description: str
    pattern: str = HOST_WORD
    default: str = ""


class Derived(Data):
    """A `{name}` whose text follows from a parameter: the first of `values` whose pattern matches all of it. The text
    may name the parameter."""

    of: str
    values: Annotated[dict[str, str], Field(min_length=1, max_length=5)]

    def text_for(self, value: str) -> str | None:
        """Return the text for a parameter's value. None if no pattern matches."""
        return next((text for pattern, text in self.values.items() if re.fullmatch(pattern, value)), None)


class PresetEndpoints(Data):
    """As in the written form; `{params}` are filled in from the app."""

    authorization_url: str = ""
    token_url: str = ""
    revoke_url: str = ""
    user_info_url: str = ""
    issuer: str = ""
    device_authorization_url: str = ""
    jwks_url: str = ""
    refresh_url: str = ""
    pushed_authorization_url: str = ""


class PresetIdentity(Data):
    """Where an account is read from. Without a template the app has to write one.

    `requires` are facts of the same source that have to be so: they tell kinds of installations apart. `name` is the
    one by which people know the account.
    """

    source: IdentitySource = Field(alias="from")
    template: str = ""
    requires: Annotated[dict[str, bool | str], Field(max_length=5)] = Field(default_factory=dict)
    name: str = ""


class TokenLimit(Data):
    """So many living tokens of one account are kept; one more ends the oldest without a word."""

    count: Annotated[int, Field(gt=0)]
    per: Literal["client", "clientAndScopes"] = "client"


class PresetIdentities(Data):
    global_: PresetIdentity | None = Field(default=None, alias="global")
    user: PresetIdentity | None = None


class Modes(Data):
    """Variants that `options.<provider>.<option>` picks: each overrides some of the preset's fields.

    `teams` are modes for global mode alone, beside its default.
    """

    option: str
    default: dict[Literal["global", "user"], str]
    teams: list[str] = Field(default_factory=list)
    values: dict[str, dict[str, Any]]


class Documented(Data):
    """The known facts of a provider. `evidence` says for every fact where it was learnt."""

    evidence: dict[str, Evidence]

    def fact_paths(self) -> list[str]:
        """Return the path of every fact."""
        raise NotImplementedError

    def source(self, path: str) -> str:
        """Return the evidence of a fact: that of the longest prefix of its path; empty if nothing speaks of it."""
        steps = path.split(".")
        prefixes = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
        return next((self.evidence[prefix] for prefix in prefixes if prefix in self.evidence), "")

    def unverified(self) -> list[str]:
        """Return the paths of the facts without a written source."""
        return [path for path in self.fact_paths() if self.source(path).startswith("unverified")]

    def everything(self) -> dict[str, Any]:
        """Return the preset as in its file, with the source of every fact."""
        written = self.model_dump(by_alias=True, exclude_unset=True, exclude={"evidence"})
        sources = {path: self.source(path) for path in self.fact_paths()}
        return {**written, "evidence": sources, "unverified": self.unverified()}


class Preset(Documented, Quirks):
    """Everything known of one provider.

    A refresh token ends after `refresh_token_idle_days` without use, or `refresh_token_days` after the consent,
    used or not. A used one still works for `refresh_token_leeway_seconds`. An
    access token without an end of its own ends after `access_token_idle_days` without use.
    `register_at` says where a client is registered: an address, the way through its menus, the kind of client.
    `sample_scopes` are for an app to start from; they claim nothing. `public_flows` work for a client without a secret.

    `api_hosts` are where the provider's API takes the token, the most used one first; `api_base_path` is the app's
    `api.basePath`. `no_api` says why a preset has no hosts. `environment`: the variables in which the provider's own
    programs look for a token of its usual host. `pkce_refused_at`: the authorization endpoint, for clients with a
    secret, of a flow that refuses PKCE. Only an app can leave it out; `check` tells how.
    """

    name: str
    title: str
    documentation: Annotated[str, Field(pattern=r"^[a-z0-9.-]+(/\S*)?$")] = ""
    register_at: Annotated[str, Field(max_length=200)] = ""
    sample_scopes: Annotated[list[str], Field(max_length=2)] = Field(default_factory=list)
    params: dict[str, Param] = Field(default_factory=dict)
    derived: dict[str, Derived] = Field(default_factory=dict)
    endpoints: PresetEndpoints = Field(default_factory=PresetEndpoints)
    auth_method: AuthMethod = "client_secret_basic"
    assertion_audience: AssertionAudience = "issuer"
    flows: list[Flow] = Field(default=["authorizationCode"])
    public_flows: list[Flow] = Field(default_factory=list)
    pkce: Literal["supported", "ignored", "unknown"] = "unknown"
    pkce_refused_at: Annotated[str, Field(pattern=r"^(https://[^\s{}]+)?$")] = ""
    refresh_tokens: Literal["none", "keep", "rotate", "unknown"] = "unknown"
    refresh_token_idle_days: Annotated[int, Field(gt=0)] | None = None
    refresh_token_leeway_seconds: Annotated[int, Field(gt=0)] | None = None
    access_token_idle_days: Annotated[int, Field(gt=0)] | None = None
    token_limit: TokenLimit | None = None
    authorize_params: Parameters = Field(default_factory=dict)
    token_params: Parameters = Field(default_factory=dict)
    refresh_params: Parameters = Field(default_factory=dict)
    identity: PresetIdentities = Field(default_factory=PresetIdentities)
    connection_facts: ConnectionFactsForm = Field(default_factory=ConnectionFactsForm, alias="facts")
    api_hosts: Annotated[list[str | AccountHostForm], Field(max_length=30)] = Field(default_factory=list)
    api_base_path: str = ""
    no_api: str = ""
    environment: Annotated[list[Variable], Field(max_length=4)] = Field(default_factory=list)
    notes: list[Annotated[str, Field(min_length=10, max_length=400)]] = Field(default_factory=list)
    modes: Modes | None = None

    def in_mode(self, mode: str) -> "Preset":
        """Return the preset as one of its modes has it, with the mode's evidence, or as it is if it has no such
        mode."""
        changes = self.modes.values.get(mode) if self.modes else None
        if changes is None:
            return self
        data = self.model_dump(by_alias=True, exclude_unset=True)
        for name, value in changes.items():
            data[name] = {**data[name], **value} if name in _MERGED and name in data else value
        inside = f"modes.{mode}"
        sources = {path: self.source(f"{inside}.{path}") for path in _paths(changes)}
        data["evidence"] |= {path: source for path, source in sources.items() if source}
        return _InMode.model_validate(data)

    def variants(self) -> "dict[str, Preset]":
        """Return every mode of it by name; one that has none is its own variant, named ""."""
        return {mode: self.in_mode(mode) for mode in self.modes.values} if self.modes else {"": self}

    def usual_values(self) -> dict[str, str]:
        """Return the parameters of an app that writes none, with what follows from them."""
        usual = {param: it.default for param, it in self.params.items() if it.default}
        return usual | {part: it.text_for(usual[it.of]) or "" for part, it in self.derived.items() if it.of in usual}

    def fact_paths(self) -> list[str]:
        """Return the path of every fact: each field that is set, `endpoints.tokenUrl`, `modes.bot.tokenPath`,
        `notes.0`."""
        said = self.model_dump(by_alias=True, exclude_unset=True, exclude=_NO_FACTS)
        return [*_paths(said), *self._facts_of_modes()]

    def _facts_of_modes(self) -> list[str]:
        modes = self.modes.values.items() if self.modes else ()
        return [f"modes.{mode}.{path}" for mode, changes in modes for path in _paths(changes)]

    @property
    def names_endpoints(self) -> bool:
        """Tell whether the endpoints are those of one provider."""
        return self.endpoints != PresetEndpoints()

    def habits(self) -> Habits:
        return self.over(Habits())

    def revocation(self) -> Revocation:
        return self.revoke.way() if self.revoke else Revocation()


class _InMode(Preset):
    """One mode of a preset: the facts of the others are none of its own."""

    def _facts_of_modes(self) -> list[str]:
        return []


def _paths(fields: Mapping[str, Any]) -> list[str]:
    """Return the paths of the set fields: nested fields and single parameters each have their own."""
    found: list[str] = []
    for name, value in fields.items():
        if name == "notes":
            found += [f"notes.{index}" for index in range(len(value))]
        elif name in _NO_FACTS and name != "name":  # an identity's own `name` is a fact
            continue
        elif name in _NESTED and value:
            found += [f"{name}.{path}" for path in _paths(value)]
        else:
            found.append(name)
    return found

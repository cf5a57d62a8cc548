"""The plays of tests/presets/*.yaml: what a provider demands and answers, as its documentation has it. Their form.

`{access}`, `{refresh}`, `{access2}`, `{refresh2}`, `{device}` and `{id_token}` stand for secrets that are made anew for
each test; `{epoch+3600}`, `{epochMs+3600}`, `{iso+3600}`, `{http+3600}` and `{plain+3600}` for a moment that many seconds ahead.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from oauthbroker.core.shipped_yaml import shipped_yaml
from oauthbroker.model.apps import Flow
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset

FOLDER = Path(__file__).parents[1] / "presets"
ANSWER_JSON = "application/json"
Pairs = dict[str, str | None]


class _Form(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True)


class PlayedApp(_Form):
    """What an OAuthApp says beside the preset, in its own words."""

    subject_mode: Literal["user", "global"] = "user"
    flow: Flow = "authorizationCode"
    scopes: list[str] | None = None
    params: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    quirks: dict[str, Any] = {}
    endpoints: dict[str, str] = {}
    owner: dict[str, Any] = {}
    auth_method: str = ""
    redirect: dict[str, str] = {}


class Demand(_Form):
    """What a request must have. `params` and `headers` exactly so (a header may hold `{access}`), null for absent."""

    method: Literal["GET", "POST", "DELETE"] = "POST"
    auth: Literal["basic", "post", "none", "jwt", "bearer", "nothing"] = "none"
    body: Literal["form", "json", "query", "none"] = "form"
    headers: Pairs = {}
    params: Pairs = {}
    absent: list[str] = []
    token: Literal["access", "refresh", "both"] = "both"


class Asked(_Form):
    method: Literal["GET", "POST"] = "GET"
    headers: Pairs = {}
    body: dict[str, str] | None = None


class Expects(_Form):
    authorize: Pairs = {}
    token: Demand | None = None
    refresh: Demand | None = None
    exchange: Pairs = {}
    user_info: Asked = Asked()
    device: Demand | None = None
    revoke: Demand | None = None


class Said(_Form):
    """An answer: `body` is sent as JSON if it is not a text."""

    status: int = 200
    type: str = ANSWER_JSON
    body: Any = None


class Answers(_Form):
    token: Said
    callback: dict[str, str] = {}
    token_claims: dict[str, Any] = {}
    facts: Said | None = None
    user_info: Said | None = None
    id_token: dict[str, Any] | None = None
    exchange: Said | None = None
    refresh: Said | None = None
    device: Said | None = None
    pending: Said | None = None
    revoke: Said = Said(body={})


class AfterRefresh(_Form):
    scopes: list[str]
    lifetime_seconds: int | None = None
    refresh_token: Literal["kept", "replaced"]


class Result(_Form):
    scopes: list[str]
    lifetime_seconds: int | None = None
    refreshable: bool = False
    facts: dict[str, Any] = {}
    after_refresh: AfterRefresh | None = None


class Refusal(_Form):
    """One of the provider's own ways to say no, and our code for it; `reauth`: a person has to agree again."""

    at: Literal["token", "refresh", "userInfo"]
    answer: Said
    code: str


class Play(_Form):
    name: str
    source: str
    app: PlayedApp
    subject: str
    expects: Expects
    answers: Answers
    result: Result
    refusals: list[Refusal] = []
    provider: str = Field(default="", exclude=True)

    def __str__(self) -> str:
        return f"{self.provider}: {self.name}"

    @property
    def said_quirks(self) -> dict[str, Any]:
        """The quirks of the provider in the words of the written form: the preset's, and the app's."""
        return {**self.preset.model_dump(by_alias=True, exclude_unset=True), **self.app.quirks}

    @property
    def preset(self) -> Preset:
        """The preset in the mode that the play's app picks."""
        preset = presets()[self.provider]
        if preset.modes is None:
            return preset
        said = self.app.options.get(self.provider, {}).get(preset.modes.option)
        return preset.in_mode(said or preset.modes.default[self.app.subject_mode])


class Programme(_Form):
    """One file: the plays of one provider."""

    provider: str
    plays: list[Play]


@cache
def programmes() -> dict[str, Programme]:
    """By provider. Read once: there are scores of files, and every worker of a run asks for them several times."""
    found = (Programme.model_validate(shipped_yaml(file)) for file in sorted(FOLDER.glob("*.yaml")))
    return {it.provider: it for it in found}


def plays() -> list[Play]:
    return [play.model_copy(update={"provider": it.provider}) for it in programmes().values() for play in it.plays]

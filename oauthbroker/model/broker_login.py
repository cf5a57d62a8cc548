"""The broker's own login at a team's OpenID provider, and the operators who may come by it."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from oauthbroker.core.dataclasses import KW_ONLY, astuple, dataclass, replace
from oauthbroker.model.apps import App

Prompt = Literal["login", "select_account"]
LOGIN_NAME = "broker:login"  # in metrics, spans and findings; no app can be called so
CONFIRM_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Who may sign in to `/admin` by the broker's login: `subjects`, or each person whose ID token has one of `claims`
    (the claim is that text, or a list with it).

    `acr`: one of them is demanded; `amr`: all of them are. A change needs a sign-in that is at most `confirm_seconds`
    old.
    """

    subjects: tuple[str, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    acr: tuple[str, ...] = ()
    amr: tuple[str, ...] = ()
    confirm_seconds: int = CONFIRM_SECONDS


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """The broker's own login, for `brokerLogin` and for operators. `app` is our client at a team's OpenID provider. It
    asks for an ID token only; its `owner.user_identity` says how a subject is read out of one.

    `max_age_seconds`: how long ago the user may have signed in there; None leaves it to the provider. Without
    `operators`, those come with an API key.
    """

    app: App
    prompt: Prompt | None = None
    max_age_seconds: int | None = None
    _: KW_ONLY
    operators: Operators | None = None

    def asking(self, *, again: bool) -> App:
        """Return the client with its parameters for the provider's page (OpenID Connect Core 1.0 section 3.1.2.1).
        `again`: the provider knew another account by itself, so it has to ask."""
        params = dict(self.app.habits.authorize_params)
        if self.max_age_seconds is not None:
            params["max_age"] = str(self.max_age_seconds)
        if self.prompt is not None or again:
            params["prompt"] = self.prompt or "login"
        return replace(self.app, habits=replace(self.app.habits, authorize_params=params))

    def digest(self) -> str:
        """Return a digest that changes when anything changes that a login under way relies on."""
        rule = self.app.owner.user_identity
        facts = [self.app.config_digest, rule and rule.template, self.prompt, self.max_age_seconds]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def operators_digest(self) -> str:
        """Return a digest that changes when anything changes that an operator's browser session relies on."""
        named = None if self.operators is None else astuple(self.operators)
        return hashlib.sha256(json.dumps([self.digest(), named]).encode()).hexdigest()[:32]

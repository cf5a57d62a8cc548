"""What people call an account: which fact it is, and how an unusual one becomes a name that can be shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from oauthbroker.model.apps import IdentityRule, IdentitySource, Owner
from oauthbroker.protocol.account_names import LONGEST_NAME, name_of
from tests.kit.preset_plays import plays
from tests.unit.protocol.kit import APP, with_habits

RULE = IdentityRule("userInfo", "acme:user:{id}", name="login")


def name(rule: IdentityRule, facts: Any, source: IdentitySource = "userInfo", **habits: Any) -> str:
    app = replace(with_habits(**habits), owner=Owner(user_identity=rule), subject_mode="user")
    return name_of(app, {source: facts})


@pytest.mark.parametrize(
    "said, shown",
    [
        ("octocat", "octocat"),
        ("  Ada   Lovelace ", "Ada Lovelace"),
        ("a\r\nb\x00c\x1b[31m", "a b c [31m"),
        ("\u0639\u0644\u06cc\u200c\u0631\u0636\u0627", "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"),
        ("pay\u200dpal", "paypal"),
        ("\U0001f469\u200d\U0001f469" * 60, "\U0001f469\u200d\U0001f469" * 40),
        ("admin\u202etac\u200b\ufeff", "admin tac"),
        ("\u05d0\u05d3\u05d4", "\u05d0\u05d3\u05d4"),
        ("<b onclick=x>&", "<b onclick=x>&"),
        ("x" * 5000, "x" * LONGEST_NAME),
        (" \u200b\n", ""),
        ("", ""),
        (None, ""),
        (42, ""),
        (["octocat"], ""),
        ({"a": "b"}, ""),
    ],
)
def test_a_name_is_one_visible_line_of_the_provider_s_text(said: object, shown: str) -> None:
    assert shown == name(RULE, {"id": 1, "login": said})


@pytest.mark.parametrize(
    "rule, facts, shown",
    [
        (replace(RULE, name="data.0.login"), {"data": [{"login": "a"}]}, "a"),
        (replace(RULE, name="0.name"), [{"name": "Acme"}, {"name": "Globex"}], "Acme"),
        (replace(RULE, name="https://acme.example/login"), {"https://acme.example/login": "a"}, "a"),
        (replace(RULE, name="https://acme.example/login"), ["a"], ""),
        (replace(RULE, name=""), {"email": "a@b.example", "name": "Ada"}, "a@b.example"),
        (replace(RULE, name=""), {"preferred_username": "ada", "email": "a@b.example"}, "ada"),
        (replace(RULE, name=""), {"id": 1}, ""),
        (IdentityRule("tokenResponse", "acme:user:{id}"), {"email": "a@b.example"}, ""),
    ],
)
def test_it_is_the_fact_that_the_rule_names_or_a_standard_claim(rule: IdentityRule, facts: Any, shown: str) -> None:
    assert shown == name(rule, facts, rule.source)


def test_an_app_without_a_rule_has_accounts_without_a_name() -> None:
    app = replace(APP, owner=Owner(), subject_mode="user")
    assert not name_of(app, {"userInfo": {"name": "Ada"}})


def test_an_answer_outside_openid_has_no_standard_claims() -> None:
    assert not name(replace(RULE, name=""), {"name": "a repository"}, user_info_kind="own")


def test_a_team_is_called_as_its_own_rule_says_and_never_as_its_user() -> None:
    team = IdentityRule("tokenResponse", "slack:team:{team.id}", name="team.name")
    app = replace(APP, owner=Owner(global_identity=team, user_identity=RULE), subject_mode="global")
    facts: Any = {"tokenResponse": {"team": {"name": "Acme"}}, "userInfo": {"login": "octocat"}}
    assert "Acme" == name_of(app, facts)
    unnamed = replace(app, owner=Owner(global_identity=replace(team, name=""), user_identity=RULE))
    assert not name_of(unnamed, facts)


def test_each_name_of_a_preset_is_in_an_answer_that_its_documentation_shows() -> None:
    """Those without one are listed: their answers show none."""
    told: dict[tuple[str, str], bool] = {}
    for play in plays():
        for mode, rule in (("user", play.preset.identity.user), ("global", play.preset.identity.global_)):
            if rule is None or not rule.name or mode != play.app.subject_mode:
                continue
            said = {"tokenResponse": play.answers.token, "userInfo": play.answers.user_info}.get(rule.source)
            facts: Any = said.body if said is not None else play.answers.id_token or {}
            app = replace(
                APP,
                subject_mode=mode,
                owner=Owner(**{f"{mode}_identity": cast("Any", IdentityRule(rule.source, "x:{y}", name=rule.name))}),
            )
            found = bool(name_of(app, {rule.source: facts}))
            told[play.provider, rule.template] = told.get((play.provider, rule.template), False) or found
    assert [] == [which for which, found in told.items() if not found]
    assert len(told) > 80

"""`owner.binding`: the members that an app may omit where the runtime confirms the browser, and the address of that page."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, load, resolve
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import IdentityRule
from oauthbroker.model.broker_login import Operators
from tests.unit.config.bundles import APP, BROKER, GLOBAL, edited, problems_in, write
from tests.unit.config.refusals import LOGIN

OWNER = '  owner:\n    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n'
PAGE = "https://runtime.example/oauth/confirm"


def with_owner(text: str) -> str:
    return edited(APP, (OWNER, f"  owner: {{{text}}}\n"))


@pytest.mark.case("40")
@pytest.mark.parametrize(
    "owner", [f"binding: runtimeConfirm, confirmUrl: '{PAGE}'", "binding: channelCode", "binding: brokerLogin"]
)
def test_in_user_mode_a_confirmation_stands_in_for_an_identity(owner: str, tmp_path: Path) -> None:
    app = load(write(tmp_path / "b", app=with_owner(owner), broker=BROKER + LOGIN)).apps["acme"].app
    assert app.owner.user_identity is None
    assert app.owner.confirmation is not None
    assert app.owner.confirmation in owner


def test_an_identity_beside_it_is_kept(tmp_path: Path) -> None:
    bundle = edited(APP, ("  owner:\n", "  owner:\n    binding: channelCode\n"))
    app = load(write(tmp_path / "b", app=bundle)).apps["acme"].app
    assert IdentityRule("tokenResponse", "acme:user:{user.id}") == app.owner.user_identity


def test_a_page_on_this_machine_may_have_a_query(tmp_path: Path) -> None:
    own = with_owner("binding: runtimeConfirm, confirmUrl: 'http://127.0.0.1:9000/me?x=1'")
    loaded = load(write(tmp_path / "b", app=own))
    assert "http://127.0.0.1:9000/me?x=1" == loaded.apps["acme"].app.owner.confirm_url


def test_another_page_is_another_app_to_sessions_under_way(tmp_path: Path) -> None:
    digests = {
        load(write(tmp_path / str(at), app=with_owner(f"binding: runtimeConfirm, confirmUrl: '{PAGE}{more}'")))
        .apps["acme"]
        .app.config_digest
        for at, more in enumerate(("", "2", "3"))
    }
    assert 3 == len(digests)


@pytest.mark.parametrize("owner", ["binding: channelCode", f"binding: runtimeConfirm, confirmUrl: '{PAGE}'"])
def test_global_mode_says_who_all_the_same(owner: str, tmp_path: Path) -> None:
    [problem] = problems_in(write(tmp_path / "b", app=edited(GLOBAL, ('authorizers: ["slack:user:T1:U1"]', owner))))
    assert ("spec.owner.authorizers", "missing") == (problem.path, problem.what)


def test_a_login_is_a_client_like_an_apps(tmp_path: Path) -> None:
    more = "    prompt: select_account\n    maxAgeSeconds: 3600\n"
    loaded = load(write(tmp_path / "b", app=with_owner("binding: brokerLogin"), broker=BROKER + LOGIN + more))
    assert {"LOGIN_SECRET", "ACME_SECRET"} == loaded.env_names
    login = resolve(loaded, {"LOGIN_SECRET": "a", "ACME_SECRET": "b"}, {}).login
    assert login is not None
    assert ("an-id", Secret("a")) == (login.app.client.client_id, login.app.client.client_secret)
    assert IdentityRule("idToken", "corp:user:{sub}") == login.app.owner.user_identity
    assert "https://broker.example/login/callback" == login.app.redirect.uri
    assert (("openid",), ()) == (login.app.habits.always_scopes, login.app.scopes)
    assert ("select_account", 3600) == (login.prompt, login.max_age_seconds)


def test_operators_of_a_login_are_named_by_subject_or_claim(tmp_path: Path) -> None:
    more = (
        '  admin: {operators: {subjects: ["corp:user:7"], claims: {groups: ops, "https://a.example/r": x}, acr: [phr],'
        " amr: [mfa], confirmSeconds: 60}}\n"
    )
    loaded = load(write(tmp_path / "b", app=APP, broker=BROKER + LOGIN + more))
    login = resolve(loaded, {"LOGIN_SECRET": "a", "ACME_SECRET": "b"}, {}).login
    assert login is not None
    claims = (("groups", "ops"), ("https://a.example/r", "x"))
    assert login.operators == Operators(
        subjects=("corp:user:7",), claims=claims, acr=("phr",), amr=("mfa",), confirm_seconds=60
    )


def test_a_login_whose_secret_is_not_there_is_a_problem_with_a_place(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "b", app=APP, broker=BROKER + LOGIN))
    with pytest.raises(ConfigInvalidError) as caught:
        resolve(loaded, {"ACME_SECRET": "b"}, {})
    assert ["spec.login.client.clientSecret"] == [problem.path for problem in caught.value.problems]


def test_a_command_for_some_apps_needs_no_login(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "b", app=APP, broker=BROKER + LOGIN))
    assert resolve(loaded, {"ACME_SECRET": "b"}, {}, only={"acme"}).login is None


def test_any_change_of_a_login_is_another_login_to_sessions_under_way(tmp_path: Path) -> None:
    edits = [("", ""), ("{sub}", "{oid}"), ("an-id", "other-id"), ("login.example", "login2.example"),
             ("    subject", "    prompt: login\n    subject"), ("    subject", "    maxAgeSeconds: 60\n    subject")]  # fmt: skip
    env = {"LOGIN_SECRET": "a", "ACME_SECRET": "b"}
    digests = set()
    for at, (before, after) in enumerate(edits):
        text = LOGIN.replace(before, after) if before else LOGIN
        login = resolve(load(write(tmp_path / str(at), app=APP, broker=BROKER + text)), env, {}).login
        assert login is not None
        digests.add(login.digest())
    assert len(edits) == len(digests)

"""Every refusal of a bundle: one problem, at the right place, with what to do, and never the value that was written."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from oauthbroker.config import load
from oauthbroker.config.problems.problems import ConfigInvalidError
from oauthbroker.core.errors import Code
from tests.unit.config.bundles import (
    APP,
    BROKER,
    CANARY,
    CONNECTOR,
    GLOBAL,
    TOOL,
    edited,
    everything_said,
    refused,
    unmarked,
    write,
)
from tests.unit.config.refusals import CALLBACK, CLIENTS, LOGINS, MISTAKES, OWNERS, Refusal

BASES = {"broker": BROKER, "app": APP, "shared": GLOBAL, "tool": TOOL, "connector": CONNECTOR}


def texts(refusal: Refusal) -> dict[str, str]:
    found = {name: edited(text, *refusal.broker) if name == "broker" else text for name, text in BASES.items()}
    return {**found, refusal.file: edited(found[refusal.file], *refusal.changes)}


def named(group: list[Refusal]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("refusal", group, ids=[f"{it.file}: {it.claim}" for it in group])


@pytest.mark.case("95")
@named(MISTAKES)
def test_a_bundle_is_refused_because_of(refusal: Refusal, tmp_path: Any, caplog: Any, capfd: Any):
    is_refused(refusal, tmp_path, caplog, capfd)


@pytest.mark.case("96")
@named(CLIENTS)
def test_a_client_is_refused_because_of(refusal: Refusal, tmp_path: Any, caplog: Any, capfd: Any):
    is_refused(refusal, tmp_path, caplog, capfd)


@pytest.mark.case("40")
@named(OWNERS)
def test_an_owner_is_refused_because_of(refusal: Refusal, tmp_path: Any, caplog: Any, capfd: Any):
    is_refused(refusal, tmp_path, caplog, capfd)


@pytest.mark.case("40", "95")
@named(LOGINS)
def test_a_login_is_refused_because_of(refusal: Refusal, tmp_path: Any, caplog: Any, capfd: Any):
    is_refused(refusal, tmp_path, caplog, capfd)


def is_refused(refusal: Refusal, tmp_path: Any, caplog: Any, capfd: Any) -> None:
    """One problem in the changed file, at the marked place; the value nowhere; nothing left behind."""
    found = texts(refusal)
    found[refusal.file], place = unmarked(found[refusal.file])
    folder = write(tmp_path / "bundle", **found)
    caplog.set_level(logging.NOTSET)
    before = sorted(tmp_path.rglob("*"))

    error = refused(folder)

    # what refers to a resource that is not there may complain too, in its own file
    own = [it for it in error.problems if it.file == str(folder / f"{refusal.file}.yaml")]
    assert [(refusal.path, *place)] == [(it.path, it.line, it.column) for it in own], str(error)
    assert refusal.what in f"{own[0].what}, {own[0].hint}"
    assert str(own[0]).startswith(f"{folder}/{refusal.file}.yaml:{place[0]}:{place[1]} {refusal.path}: ")
    assert Code.CONFIG_INVALID is error.code is own[0].code
    assert CANARY not in everything_said(error) + caplog.text + "".join(capfd.readouterr())
    assert before == sorted(tmp_path.rglob("*"))


def test_the_bundle_of_the_table_is_fine_without_its_changes(tmp_path: Any):
    assert {"acme", "shared"} == set(load(write(tmp_path / "bundle", **BASES)).apps)


@pytest.mark.case("95")
def test_five_hundred_problems_are_enough(tmp_path: Any):
    folder = write(tmp_path / "b", app=APP + "".join(f"  n{number}: 1\n" for number in range(5_000)))
    problems = refused(folder).problems
    assert 501 == len(problems)
    assert "More than 500 problems. Fix these first" in str(problems[0])


@pytest.mark.case("95")
def test_all_problems_come_at_once_in_the_order_of_the_files(tmp_path: Any):
    bad_app = edited(
        APP,
        ("[read, write]", f"[read, 0123, '{CANARY} x']"),
        ("https://acme.example/token", f"http://{CANARY}.example"),
        ("subjectMode: user", f"subjectMode: {CANARY}"),
        ("flow: authorizationCode", "flow: deviceCode\n  colour: red"),
    )
    bad_tool = edited(TOOL, ("OAuthApp/acme", "OAuthApp/acne"), ("{name: hold}", "{name: 7}"))
    folder = write(tmp_path / "b", app=bad_app, broker=edited(BROKER, ("port: 8420", "port: 0")), tool=bad_tool)
    error = refused(folder)
    named = [(it.file.rpartition("/")[2], it.path) for it in error.problems]
    assert [
        ("app.yaml", "spec.flow"),
        ("app.yaml", "spec.?"),
        ("app.yaml", "spec.subjectMode"),
        ("app.yaml", "spec.endpoints.tokenUrl"),
        ("app.yaml", "spec.scopes[1]"),
        ("broker.yaml", "spec.listen.port"),
        ("tool.yaml", "spec.auth.oauthAppRef"),
        ("tool.yaml", "spec.exports[1].name"),
    ] == named
    assert all(str(it) in str(error) for it in error.problems)
    assert CANARY not in everything_said(error)


@pytest.mark.case("95")
@pytest.mark.parametrize(
    "second, path, what",
    [
        (edited(APP, (CALLBACK, "/other")), "metadata.name", "this name is taken: the first one is at "),
        (
            edited(APP, ("{name: acme}", "{name: acme2}")),
            "spec.redirect.callbackPath",
            "has this callback path: OAuthApp/acme",
        ),
        (
            edited(APP, ("{name: acme}", "{name: b}"), (CALLBACK, "/OAuth/Callback/Acme")),
            "spec.redirect.callbackPath",
            "OAuthApp/acme",
        ),
    ],
    ids=["name", "callback path", "callback path in another case"],
)
def test_two_apps_never_share_a(second: str, path: str, what: str, tmp_path: Any):
    [problem] = refused(write(tmp_path / "b", app1=APP, app2=second)).problems
    assert (path, True) == (problem.path, what in problem.what)
    assert problem.file.endswith("app2.yaml")


def test_a_default_callback_path_counts_like_a_written_one(tmp_path: Any):
    default = edited(APP, ("  redirect: {callbackPath: /oauth/callback/acme}\n", ""))
    written = edited(APP, ("{name: acme}", "{name: b}"))
    [problem] = refused(write(tmp_path / "b", app1=default, app2=written)).problems
    assert "spec.redirect.callbackPath" == problem.path


def test_two_brokers_are_one_too_many(tmp_path: Any):
    other = edited(BROKER, ("{name: broker}", "{name: other}"))
    [problem] = refused(write(tmp_path / "b", a=BROKER, b=other)).problems
    assert ("kind", "a second Broker") == (problem.path, problem.what)


def test_the_first_line_of_the_error_says_the_first_problem(tmp_path: Any):
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path / "config")
    first, *others = str(refused.value).split("\n")
    assert first == f"configInvalid: {refused.value.problems[0]}"
    assert [] == others
    several = ConfigInvalidError([*refused.value.problems, *refused.value.problems])
    assert [f"{first} (problems: 2)", str(refused.value.problems[0])] == str(several).split("\n")

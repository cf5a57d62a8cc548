"""`oauthbroker login` after one that came to nothing: the app that it left does not stand in the way."""

from __future__ import annotations

import json

import pytest
import yaml

from oauthbroker.cli.login import commands
from oauthbroker.personal import logins
from tests.story.cli.login_kit import Person

TWO_LINES = "one\ntwo"  # GitHub's key has one field: refused before the key is checked


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)


def kind(person: Person) -> str:
    found: str = yaml.safe_load(person.places.app_file("github").read_text("utf-8"))["kind"]
    return found


def oauth_that_failed(person: Person) -> None:
    done = person.type("login", "github", "--client-id", "x", "--stdin", "--no-browser", stdin="never-worked")
    assert (2, True) == (done.code, "no consent came" in done.err), done
    assert "OAuthApp" == kind(person)


def key_that_failed(person: Person) -> None:
    done = person.type("login", "github", "--key", "--stdin", stdin=TWO_LINES)
    assert (2, True) == (done.code, "stdin has 2 lines" in done.err), done
    assert "CredentialApp" == kind(person)


def test_a_key_takes_the_place_of_an_oauth_app_that_never_worked(person: Person) -> None:
    oauth_that_failed(person)
    key_that_failed(person)
    kept = person.type("secrets", "list", "--config", str(person.places.config))
    assert (0, False) == (kept.code, "client_secret" in kept.out), kept
    again = person.type("login", "github", "--stdin", stdin=TWO_LINES)
    assert (2, True, "CredentialApp") == (again.code, "stdin has 2 lines" in again.err, kind(person)), again


@pytest.mark.parametrize("words", [("--client-id", "x"), ("--scopes", "repo"), ("--no-device",)])
def test_an_oauth_app_takes_the_place_of_a_key_that_never_worked(person: Person, words: tuple[str, ...]) -> None:
    key_that_failed(person)
    done = person.type("login", "github", *words, "--no-browser", answers=["x", "a secret", "repo"])
    assert (2, True) == (done.code, "no consent came" in done.err), done
    assert "OAuthApp" == kind(person)


def test_the_options_of_an_oauth_app_for_a_key_that_a_person_wrote_are_refused(person: Person) -> None:
    key_that_failed(person)
    path = person.places.app_file("github")
    app = yaml.safe_load(path.read_text("utf-8"))
    app["spec"]["environment"] = {"token": "GH_TOKEN"}
    path.write_text(yaml.safe_dump(app), "utf-8")
    done = person.type("login", "github", "--client-id", "x", "--stdin", stdin="secret")
    said = "github has a key here. To use OAuth instead, run: oauthbroker logout github --forget"
    assert (2, said) == (done.code, done.err.strip())


def test_an_oauth_app_that_worked_is_not_written_anew(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    async def worked(*_: object) -> bool:
        return True

    oauth_that_failed(person)
    monkeypatch.setattr(commands, "_is_proven", worked)
    done = person.type("login", "github", "--key", "--stdin", stdin=TWO_LINES)
    assert (2, True, "OAuthApp") == (done.code, "logout github --forget" in done.err, kind(person)), done


def test_an_app_that_a_person_wrote_is_not_written_anew(person: Person) -> None:
    oauth_that_failed(person)
    path = person.places.app_file("github")
    app = yaml.safe_load(path.read_text("utf-8"))
    app["spec"]["api"] = {"hosts": ["ghe.example.com"]}
    path.write_text(yaml.safe_dump(app), "utf-8")
    done = person.type("login", "github", "--key", "--stdin", stdin=TWO_LINES)
    said = "github is an OAuth app here. To use a key instead, run: oauthbroker logout github --forget"
    assert (2, said) == (done.code, done.err.strip())
    assert app == yaml.safe_load(path.read_text("utf-8"))


def test_before_the_first_login_each_command_says_how_to_begin(person: Person) -> None:
    person.places.broker_file.unlink()
    for command in ("status", "doctor", "serve", "config show"):
        done = person.type(*command.split())
        assert "oauthbroker login PROVIDER" in done.out + done.err, (command, done)
        assert "This check broke" not in done.out
    [finding] = json.loads(person.type("doctor", "--json").out)["checks"]
    assert "`oauthbroker login PROVIDER`, such as github" in finding["hint"]


def test_the_commands_that_doctor_names_read_the_configuration_that_it_read(person: Person) -> None:
    folder = person.data / "many"
    folder.mkdir()
    for number in range(30):
        (folder / f"app-{number}.yaml").write_text("kind: OAuthApp\n", "utf-8")
    done = person.type("doctor", "--config", str(folder))
    assert f"`oauthbroker check --config {folder}` has all." in done.out
    assert "No such option" not in person.type("check", "--config", str(folder)).err

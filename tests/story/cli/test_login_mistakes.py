"""What `oauthbroker login` answers to mistakes, and to another user of the machine: the cause, and what to do next."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
from oauthbroker import BrokerError
from oauthbroker.cli.login import consent
from oauthbroker.cli.named_config import naming_config
from oauthbroker.config import ConfigInvalidError, ConfigProblem
from oauthbroker.core.errors import Code
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.personal import app_files, logins
from oauthbroker.personal.local_broker import open_local
from oauthbroker.personal.logins import LocalLogin
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import MAIN, environment
from tests.story.cli.login_kit import Person

OIDC = ("--client-id", "client-oidc", "--param", "issuer=http://127.0.0.1:9")
VALUE = "a-secret-in-the-process-list"


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Person:
    return Person(tmp_path, canaries, monkeypatch, capsys)


MISTAKES: dict[str, tuple[tuple[str, ...], list[str] | None, str, str]] = {
    "a misspelt provider": (("login", "githb"), None, "", "Did you mean github? Run: oauthbroker login github"),
    "a provider of which nothing is known": (("login", "qqqqqq"), None, "", "Presets: oauthbroker providers list"),
    "no terminal": (("login", "github"), None, "", "Missing: --client-id ID, and the secret on stdin: --stdin, or --device."),
    "no terminal for a parameter": (("login", "oidc"), None, "", "Missing: --param issuer=..."),
    "no terminal for a key": (("login", "datadog"), None, "", "a line each: API key, Application key"),
    "an empty client id": (("login", "github"), [""], "", "The client ID is empty. GitHub shows it"),
    "an empty secret where one is needed": (("login", "google"), ["id", ""], "", "Google takes no client without one"),
    "a secret as an argument, which other users would see": (("login", "github", "--client-secret", VALUE), None, "", "The secret is typed when asked for, or sent on stdin: --stdin."),
    "a parameter that does not exist": (("login", "github", "--param", "hos=x"), None, "", "The nearest is host."),
    "a parameter of a provider that has another one": (("login", "oidc", "--param", "tenant=x"), None, "", "has no parameter tenant. It has issuer."),
    "no provider": (("login", ""), None, "", "Name a provider, such as github."),
    "a parameter without a value": (("login", "github", "--param", "host"), None, "", "Write --param name=value."),
    "a value that the preset refuses": (
        ("login", "github", "--param", "host=a b", "--client-id", "x", "--stdin"), None, "s", "spec.params.host",
    ),
    "a device flow that does not exist": (("login", "slack", "--device"), ["id"], "", "Slack has no device flow"),
    "a key of a provider without keys": (("login", "google", "--key"), None, "", "google has no preset for keys"),
    "too few fields of a key": (("login", "datadog", "--stdin"), None, "one", "Send 2, one for each of"),
    "a secret that is no text": (("login", "github", "--stdin"), None, "\udcff", "not text in UTF-8"),
    "an account without a name": (("login", "github", "--account", "\x07"), None, "", "--account is a name"),
    "a token of an account without a name": (("token", "github", "--account", "\x07"), None, "", "--account is a name"),
    "a logout without an app": (("logout", "githb"), None, "", "There is no app githb here. Your apps: oauthbroker status"),
    "a provider by its address": (("login", "github.com"), None, "", "Did you mean github? Run: oauthbroker login github. The address"),
    "an address without https": (("login", "mcp.example.com/mcp"), None, "", "Run: oauthbroker login https://mcp.example.com/mcp"),
    "a token of a misspelt app": (("token", "githb"), None, "", "There is no app for githb. Did you mean github? Run: oauthbroker login github"),
    "a program for a misspelt app": (("run", "githb", "--", "true"), None, "", "Did you mean github?"),
    "a token of an app of which nothing is known": (("token", "qqqqqq"), None, "", "Your apps: oauthbroker status"),
    "an address of no MCP server": (("login", "http://127.0.0.1:9/mcp"), None, "", "http://127.0.0.1:9/mcp is no MCP server that can be used: "),
    "Ctrl-C at a question": (("login", "github"), [], "", "Stopped."),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_what_to_do(person: Person, mistake: str) -> None:
    words, answers, stdin, said = MISTAKES[mistake]
    done = person.type(*words, answers=answers, stdin=stdin)
    assert done.code in {2, 130}, done
    assert said in done.err
    assert not done.out
    assert VALUE not in done.err
    assert "Internal error" not in done.err


def test_a_taken_port_is_named_with_the_next_one(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    with socket.create_server(("127.0.0.1", person.port)):
        done = person.type("login", *words, "--stdin", stdin=person.secret)
    assert 2 == done.code
    assert f"Cannot listen on 127.0.0.1 port {person.port}: another process listens there." in done.err
    assert (
        f"--port {person.port + 1}, and register its callback: http://127.0.0.1:{person.port + 1}/oauth/callback/oidc"
        in done.err
    )


def test_a_port_that_is_refused_is_not_kept(person: Person) -> None:
    before = person.places.broker_file.read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (("login", "oidc", *OIDC, "--stdin"), ("login", "http://127.0.0.1:9/mcp")):
            done = person.type(*words, "--port", port, stdin="s")
            assert (2, True) == (done.code, f"Cannot listen on 127.0.0.1 port {port}: another process" in done.err), (
                done
            )
            assert (before, []) == (person.places.broker_file.read_text(), person.places.names())


IN_VAIN: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "an app for the users of a server": ({"owner": {}}, (), "write `binding: localOperator` in spec.owner of "),
    "an app of a team": ({"subjectMode": "global"}, (), "write `subjectMode: user`"),
    "a second account of an app that has one": (
        {"accounts": None}, ("--account", "no"), "oidc has one account here. For more write `accounts: several`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_VAIN)
def test_a_consent_that_would_be_in_vain_is_refused_before_the_link_with_the_line_to_write(
    person: Person, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)
    change, words, said = IN_VAIN[case]
    assert 2 == person.type("login", "oidc", *OIDC, "--stdin", stdin="s").code
    resource = app_files.read_app(person.places, "oidc")
    spec = {**resource["spec"], **change}
    if "owner" in change:
        spec["owner"] = {"identity": resource["spec"]["owner"]["identity"]}
        del spec["accounts"]
    if spec["subjectMode"] == "global":
        spec["owner"] = {
            "identity": {"global": {"from": "idToken", "template": "oidc:team:{sub}"}},
            "authorizers": "anyone",
        }
        del spec["accounts"]
    spec = {name: value for name, value in spec.items() if value is not None}
    person.places.app_file("oidc").write_text(app_files.text_of({**resource, "spec": spec}))
    done = person.type("login", "oidc", *words)
    assert (2, True) == (done.code, said in done.err), done
    assert str(person.places.app_file("oidc")) in done.err
    assert "/connect/" not in done.err


def test_an_issuer_without_https_names_the_file_with_the_weakening(person: Person) -> None:
    person.places.broker_file.unlink()
    issuer = "issuer=http://127.0.0.1:9"
    done = person.type("login", "oidc", "--client-id", "x", "--param", issuer, "--stdin", stdin="s")
    assert 2 == done.code
    assert f"weaken: [plainHttpProvider] in spec of {person.places.broker_file}" in done.err
    assert person.places.broker_file.exists()


def test_without_a_connection_the_login_is_named_before_any_provider_is_asked(person: Person) -> None:
    words = ("oidc", *OIDC, "--device", "--stdin")
    assert 2 == person.type("login", *words, stdin="s").code, "nothing listens there"
    done = person.type("token", "oidc")
    assert (75, True) == (done.code, "A login is missing for oidc. Run: oauthbroker login oidc" in done.err), done
    with (
        pytest.raises(BrokerError, match=r"A login is missing for oidc\. Run: oauthbroker login oidc"),
        oauthbroker.local("oidc").client(),
    ):
        pass


def test_a_parameter_that_an_app_does_not_have_is_named(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)
    assert 2 == person.type("login", "oidc", *OIDC, "--stdin", stdin="s").code
    done = person.type("login", "oidc", "--param", "tenant=x")
    assert (2, True) == (done.code, "oidc has no parameter tenant. It has issuer." in done.err), done


@pytest.mark.parametrize("words", [("login", "oidc"), ("token", "oidc"), ("status",), ("logout", "oidc")])
async def test_a_key_that_is_gone_is_answered_with_what_to_do(
    person: Person, idp: IdentityProvider, words: tuple[str, ...]
) -> None:
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    [key] = person.keys
    key.rename(key.with_name("away"))
    done = await asyncio.to_thread(person.type, *words)
    key.with_name("away").rename(key)
    lost = f"move {person.places.store} away, then run `oauthbroker login PROVIDER`"
    assert (2, True, True) == (done.code, "Put the key file back" in done.err, lost in done.err), done
    assert str(key) in done.err


ENDS = {
    "declined": (SessionOutcome("failed", Code.PROVIDER_DENIED), "You said no at oidc. Nothing was connected."),
    "expired": (
        SessionOutcome("expired"),
        "The link has ended, because no consent came from oidc in time. Run again: oauthbroker login oidc --account 'my work'",
    ),
    "another account": (SessionOutcome("failed", Code.SUBJECT_MISMATCH), "subjectMismatch"),
    "a provider that refuses the app": (
        SessionOutcome("failed", Code.APP_MISCONFIGURED),
        "Run again: oauthbroker login oidc --account 'my work' with --client-id ID, --scopes, or --stdin for another secret",
    ),
    "a provider that failed": (SessionOutcome("failed", Code.EXCHANGE_FAILED), "oidc: exchangeFailed: "),
}


async def test_each_end_of_a_request_is_said(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    denied, _ = await person.log_in(idp, *words, "--stdin", stdin=person.secret, deny=True)
    assert 2 == denied.code
    async with open_local(person.places, only={"oidc"}) as running:
        login = LocalLogin.of(running, "oidc", "my work")
        for outcome, said in ENDS.values():
            with pytest.raises(Refused) as refused:
                consent._check(login, outcome, None)
            assert said in str(refused.value)


NAMED = {
    "login of an account": (("login", "github@my work"), "github@my work is an account of github. Run: oauthbroker login github --account 'my work'"),
    "logout of an account": (("logout", "github@work"), "Run: oauthbroker logout github --account work"),
    "token of an account": (("token", "github@work"), "Run: oauthbroker token github --account work"),
    "run with an account": (("run", "github@my work", "--", "true"), "github@my work is an account of github. Run: oauthbroker run github --account 'my work'"),
    "a misspelt logout": (("logout", "githb"), "Did you mean github? Run: oauthbroker logout github"),
    "an account of no app": (("logout", "mail@work"), "There is no app mail@work here. Your apps: oauthbroker status"),
}  # fmt: skip


@pytest.mark.parametrize("named", NAMED)
def test_a_connection_that_is_named_as_status_prints_it_is_answered_with_the_command(
    person: Person, named: str
) -> None:
    words, said = NAMED[named]
    person.places.app_file("github").write_text("{}")
    done = person.type(*words)
    assert (2, True) == (done.code, said in done.err), done


def test_a_program_that_names_an_account_as_the_api_does_is_told_how(person: Person) -> None:
    person.places.app_file("github").write_text("{}")
    with pytest.raises(BrokerError, match=r"Write oauthbroker.local\('github', account='work'\)"):
        oauthbroker.local("github@work").token()


def test_a_refusal_names_the_persons_configuration_in_the_command_that_mends_it(person: Person) -> None:
    answers = app_files.Answers(provider="github", client_id="x", secret=Secret("never-kept-in-the-store"))
    app_files.write_broker(person.places, port=person.port)
    app_files.write_app(person.places, "github", answers.resource("github"))
    named = f"secrets set github client_secret --config {person.places.config}`"
    for command in ("login", "token"):
        done = person.type(command, "github")
        assert (2, True) == (done.code, named in done.err), done


@pytest.mark.parametrize("words", [("grants", "list"), ("audit", "tail"), ("secrets", "list")])
def test_a_command_that_finds_no_configuration_names_the_persons_own(person: Person, words: tuple[str, ...]) -> None:
    person.places.app_file("github").write_text("{}")
    done = person.type(*words)
    assert (2, True) == (done.code, f"--config {person.places.config}" in done.err), done


def test_the_configuration_of_another_program_is_not_named(person: Person) -> None:
    assert not person.places.names()
    refused = ConfigInvalidError(
        [ConfigProblem(file="a.yaml", line=1, column=1, path="spec", what="Wrong", hint="run `oauthbroker check`")]
    )
    [found] = naming_config(refused, ["run", "github", "--config", "own", "--", "cmd", "--config", "its"]).problems
    assert found.hint == "run `oauthbroker check --config own`"
    [found] = naming_config(refused, ["run", "github", "--", "cmd", "--config", "its"]).problems
    assert "its" not in found.hint


def writable(path: Path) -> None:
    path.chmod(0o770)


def of_another_user(path: Path) -> None:
    os.chown(path, 65534, 65534)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "writable by others": (writable, "other users may write to it"),
    "of another user": (of_another_user, "it belongs to another user"),
    "a link": (a_link, "but a link or another kind of file"),
}


@pytest.mark.parametrize("place", ["data", "root", "config", "app"])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_place_that_another_user_could_have_written_is_not_used(person: Person, planted: str, place: str) -> None:
    plant, said = PLANTED[planted]
    if os.geteuid() and planted == "of another user":
        pytest.skip("only root can give a file away")
    app = person.places.app_file("github")
    app.write_text("{}")
    plant(
        {"data": person.places.root.parent, "root": person.places.root, "config": person.places.config, "app": app}[
            place
        ]
    )
    for words in (("login", "github"), ("status",), ("logout", "github")):
        done = person.type(*words)
        assert (2, True) == (done.code, said in done.err), done
    assert not person.keys


def test_a_data_folder_that_this_user_cannot_read_is_named(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Person, "keys", [])  # none is made, and none could be read
    person.places.app_file("github").write_text("{}")
    is_root = not os.geteuid()
    person.places.config.chmod(0)
    try:
        if is_root:
            os.seteuid(65534)
        found = [person.type(*words) for words in (("status",), ("token", "github"), ("logout", "github"))]
    finally:
        if is_root:
            os.seteuid(0)
        person.places.config.chmod(0o700)
    for done in found:
        assert (2, True) == (done.code, "is not used: this user may not read it." in done.err), done


def test_a_user_without_a_home_folder_is_told_what_to_set(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    for words in (("status",), ("login", "github"), ("token", "github")):
        done = person.type(*words)
        assert (2, True) == (done.code, "Set HOME or XDG_DATA_HOME to a folder of your own." in done.err), done


FULL = {
    "the file of the app": ("_replace", "oidc.yaml: No space left on device. Free space there"),
    "a temporary file": ("TemporaryDirectory", "A file could not be written: the disk is full. Free space"),
}


@pytest.mark.parametrize("at", FULL)
def test_a_full_disk_is_no_fault_of_ours(person: Person, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    place, said = FULL[at]

    def full(path: Path | None = None, text: str = "") -> None:
        if path is None or path == person.places.app_file("oidc"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(app_files, place, full)
    done = person.type(
        "login", "oidc", "--client-id", "x", "--param", "issuer=http://127.0.0.1:9", "--stdin", stdin="s"
    )
    assert (2, True) == (done.code, said in done.err), done
    assert [] == person.places.names()


@pytest.mark.slow
def test_ctrl_c_while_a_login_waits_ends_clean(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    command = [sys.executable, "-c", MAIN, "login", *words, "--stdin", "--no-browser"]
    env = environment(XDG_DATA_HOME=str(person.data))
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(person.secret)
        process.stdin.close()
        said = ""
        while "/connect/" not in said and (line := process.stderr.readline()):
            said += line
        argv = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert person.secret not in argv
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    person.canaries.excuse(*person.keys)
    assert (130, "Stopped.") == (process.returncode, rest.strip().splitlines()[-1]), said + rest
    assert "Traceback" not in rest

    async def requests() -> list[str]:
        async with open_local(person.places, only={"oidc"}) as running:
            return [session.status for session in await running.broker.sessions.list()]

    assert "pending" not in asyncio.run(requests()), "the link is withdrawn"
    assert "oauthbroker login oidc" in person.type("status").out

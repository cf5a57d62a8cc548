"""docs/how-to/import-grants.md: grants of Nango, of Auth0 and of a table, exported as they document it, become grants here."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from oauthbroker import Ready, open_broker
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import APP, CLIENT_ID, SECRET, Desk
from tests.kit.running_broker import turn
from tests.story.guides.guide import of, put_programs, typed

pytestmark = pytest.mark.slow
PAGE = "how-to/import-grants"
GRANTED = "2025-03-08T09:43:03.725Z"
KEY = "nango-secret-key"


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@dataclass(frozen=True)
class Elsewhere:
    """What the other system has of one person: the account's id, and the provider's answer to its code."""

    account: str
    answer: dict[str, Any]

    @property
    def refresh_token(self) -> str:
        return str(self.answer["refresh_token"])


@pytest.fixture
def people(tmp_path: Path, idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> list[Elsewhere]:  # fmt: skip
    """Alice and Bob agreed to the same client, in another system."""
    (tmp_path / "old").mkdir()
    old = Desk(tmp_path / "old", canaries, monkeypatch, capsys)
    old.ready_to_serve(idp)
    for login in ("alice", "bob"):
        old.connect(login, idp)
    return [
        Elsewhere(idp.account(login).sub, dict(idp.token_responses(CLIENT_ID, login)[0].document))
        for login in ("alice", "bob")
    ]


@pytest.fixture
def desk(tmp_path: Path, people: list[Elsewhere], idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:  # fmt: skip
    """An empty store. The app has the client of the other system, and spells subjects as the page does."""
    (tmp_path / "new").mkdir()
    desk = Desk(tmp_path / "new", canaries, monkeypatch, capsys)
    desk.write("mail", APP.format(issuer=idp.issuer).replace("idp:user:", "google:user:"))
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert 0 == desk.type("secrets", "set", *SECRET, stdin=idp.client(CLIENT_ID).reveal_secret()).code
    canaries.excuse(*(desk.folder / name for name in ("nango.jsonl", "lines.json", "users.json", "tokens.db")))
    return desk


async def serves(desk: Desk, idp: IdentityProvider, people: list[Elsewhere]) -> bool:
    """Whether each person has a living token here, without being asked."""
    async with open_broker(desk.folder / "config", env={}, background=False) as broker:
        of_each = [turn(user=f"google:user:{person.account}") for person in people]
        results = [await broker.oauth(each).get_access_token("mail", ["read"]) for each in of_each]
    return all(isinstance(each, Ready) and idp.is_alive(each.access_token.reveal()) for each in results)


class Nango(BaseHTTPRequestHandler):
    """Its API, as far as its documentation tells of an export."""

    connections: ClassVar[list[dict[str, Any]]] = []

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        said = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._answer(401, {"error": {"code": "unauthorized"}})
        elif url.path == "/connections":
            listed = ("id", "connection_id", "provider", "provider_config_key", "metadata", "errors", "end_user")
            rows = [{name: each.get(name) for name in listed} for each in self.connections]
            self._answer(200, {"connections": rows})
        else:
            self._one(unquote(url.path.removeprefix("/connections/")), said)

    def _one(self, name: str, said: dict[str, str]) -> None:
        [found] = [it for it in self.connections if (it["connection_id"], it["provider_config_key"]) == (name, said["provider_config_key"])]  # fmt: skip
        if found["errors"]:
            self._answer(424, {"error": {"code": "connection_refresh_exhausted"}})
            return
        shown = json.loads(json.dumps(found))
        if said.get("refresh_token") != "true":
            shown["credentials"].pop("refresh_token", None)
            shown["credentials"]["raw"].pop("refresh_token", None)
        self._answer(200, shown)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body, indent=2).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def connection(number: int, name: str, answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A connection of Nango: `credentials` are the tokens, and `raw` is the provider's own answer."""
    credentials = {"type": "OAUTH2", "access_token": answer.get("access_token"), "raw": answer}
    if "refresh_token" in answer:
        credentials |= {"refresh_token": answer["refresh_token"], "expires_at": "2025-03-08T10:43:03.725Z"}
    return {
        "id": number, "connection_id": name, "provider_config_key": "google-mail", "provider": "google-mail",
        "errors": [], "end_user": {"id": f"user-{number}", "email": None}, "metadata": {}, "connection_config": {},
        "created_at": GRANTED, "updated_at": GRANTED, "last_fetched_at": GRANTED, "credentials": credentials,
    } | more  # fmt: skip


@pytest.fixture
def nango(people: list[Elsewhere]) -> Iterator[str]:
    Nango.connections = [
        connection(1, "5f0c-1", people[0].answer),
        connection(2, "5f0c/2 &", people[1].answer | {"scope": "read"}),
        connection(3, "no-refresh-token", {"access_token": "x", "scope": "read"}),
        connection(4, "exhausted", {}, errors=[{"type": "auth", "log_id": "a"}]),
        connection(5, "of-another-app", people[0].answer, provider_config_key="github"),
        connection(6, "of-nobody", people[0].answer),
        connection(7, "a-key", {}, credentials={"type": "API_KEY", "apiKey": "k"}),
    ]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Nango)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_connections_of_nango_are_exported_checked_and_taken(
    desk: Desk, idp: IdentityProvider, people: list[Elsewhere], nango: str
) -> None:
    title = "Coming from Nango"
    export, take = of(PAGE, "sh", title)
    assert "https://api.nango.dev" in export
    said = asyncio.run(typed(desk.folder, export.replace("https://api.nango.dev", nango), NANGO_SECRET_KEY=KEY))
    assert "not exported: exhausted" in said
    exported = desk.folder / "nango.jsonl"
    assert (6, 0o600) == (len(exported.read_text().splitlines()), exported.stat().st_mode & 0o777)
    put_programs(desk.folder, PAGE, title)
    names = {"5f0c-1": people[0].account, "5f0c/2 &": people[1].account, "no-refresh-token": "x", "a-key": "y"}
    subjects = {name: f"google:user:{account}" for name, account in names.items()}
    (desk.folder / "subjects.json").write_text(json.dumps(subjects))
    said = asyncio.run(typed(desk.folder, f"umask 077; {take}"))
    assert ["no-refresh-token", "of-another-app", "of-nobody", "a-key"] == [
        line.partition(": ")[2] for line in said.splitlines() if line.startswith("left out")
    ]
    lines = [json.loads(line) for line in (desk.folder / "lines.json").read_text().splitlines()]
    assert [people[0].answer["scope"].split(), ["read"]] == [line["scopes"] for line in lines]
    grants = json.loads(desk.type("grants", "list", "--json").out)
    assert {f"google:user:{person.account}" for person in people} == {each["subject"] for each in grants}
    assert asyncio.run(serves(desk, idp, people))


def test_identities_of_auth0_are_taken_where_they_have_a_refresh_token(
    desk: Desk, idp: IdentityProvider, people: list[Elsewhere]
) -> None:
    """`GET /api/v2/users`, asked with the scope read:user_idp_tokens."""
    alice, bob = people
    social = {"provider": "google-oauth2", "connection": "google-oauth2", "isSocial": True}
    password = {
        "provider": "auth0",
        "connection": "Username-Password-Authentication",
        "isSocial": False,
        "user_id": "1",
    }
    users = [
        {
            "user_id": f"google-oauth2|{alice.account}",
            "created_at": GRANTED,
            "identities": [social | {"user_id": alice.account, "access_token": "a", "refresh_token": alice.refresh_token, "expires_in": 3599}],
        },
        {  # linked accounts: the password is the first identity
            "user_id": "auth0|1",
            "identities": [password, social | {"user_id": bob.account, "refresh_token": bob.refresh_token, "profileData": {"name": "Bob"}}],
        },
        {"user_id": "google-oauth2|9", "identities": [social | {"user_id": "9", "access_token": "a", "expires_in": 3599}]},
        {"user_id": "auth0|2", "identities": [password]},
    ]  # fmt: skip
    title = "Coming from Auth0"
    (desk.folder / "users.json").write_text(json.dumps(users))
    put_programs(desk.folder, PAGE, title)
    [take] = of(PAGE, "sh", title)
    said = asyncio.run(typed(desk.folder, take))
    assert ["left out, it has no refresh token: google-oauth2|9"] == [
        it for it in said.splitlines() if "left out" in it
    ]
    assert 2 == idp.count("refresh_token"), "each was verified"
    assert asyncio.run(serves(desk, idp, people))


PSQL = """\
#!{python}
# `psql --csv -f FILE`, with a table in SQLite: a header, and timestamps as timestamptz is printed
import csv, sqlite3, sys
assert ["--csv", "-f"] == sys.argv[1:3]
rows = sqlite3.connect("tokens.db").execute(open(sys.argv[3]).read())
out = csv.writer(sys.stdout, lineterminator="\\n")
out.writerow([column[0] for column in rows.description])
out.writerows(rows)
"""


def test_rows_of_a_table_are_taken(desk: Desk, idp: IdentityProvider, people: list[Elsewhere]) -> None:
    title = "Coming from a table of refresh tokens"
    rows: list[tuple[str | None, ...]] = [
        ("google", it.account, it.refresh_token, "read write", "2025-03-08 09:43:03.725+00") for it in people
    ]
    rows += [("github", "1", "r", "repo", GRANTED), ("google", "2", None, "read", GRANTED)]
    with closing(sqlite3.connect(desk.folder / "tokens.db")) as table:
        table.execute("create table oauth_tokens (provider, google_id, refresh_token, scope, created_at)")
        table.executemany("insert into oauth_tokens values (?, ?, ?, ?, ?)", rows)
        table.commit()
    [query], [take] = of(PAGE, "sql", title), of(PAGE, "sh", title)
    (desk.folder / "tokens.sql").write_text(query)
    put_programs(desk.folder, PAGE, title)
    (desk.folder / "bin").mkdir()
    psql = desk.folder / "bin" / "psql"
    psql.write_text(PSQL.format(python=sys.executable))
    psql.chmod(0o700)
    asyncio.run(typed(desk.folder, take))
    assert asyncio.run(serves(desk, idp, people))

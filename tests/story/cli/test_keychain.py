"""The key of a person's own store in the keychain of the system: kept there, moved there, and never made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
import yaml
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.backends.chainer import ChainerBackend
from keyring.errors import KeyringLocked

from oauthbroker.key_services.keychain import keychain_name
from oauthbroker.personal import key_place
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import Done
from tests.story.cli.login_kit import Person

FAIL: KeyringBackend = fail.Keyring()  # type: ignore[no-untyped-call]
NULL: KeyringBackend = null.Keyring()  # type: ignore[no-untyped-call]


class FakeKeychain(KeyringBackend):
    """A keychain of a desktop, in memory. `locked` is as after its user has said no to its window."""

    priority = 5
    name = "the test's keychain"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.items: dict[tuple[str, str], str] = {}
        self.locked = self.forgetful = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked(f"canary-of-the-backend {self.items}")
        return None if self.forgetful else self.items.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.locked:
            raise KeyringLocked("canary-of-the-backend")
        self.items[service, username] = password


class PlaintextKeyring(FakeKeychain):
    priority = 0.5  # type: ignore[assignment]  # that of keyrings.alt


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Person:
    canaries.may_show("access token")  # `oauthbroker token` prints it
    return Person(tmp_path, canaries, monkeypatch, capsys)


@pytest.fixture
def keychain() -> Iterator[FakeKeychain]:
    before = keyring.get_keyring()
    keyring.set_keyring(found := FakeKeychain())
    yield found
    keyring.set_keyring(before)


@pytest.fixture
def words(person: Person, idp: IdentityProvider) -> tuple[str, ...]:
    return (*person.has_oidc(idp), "--scopes", "read", "--stdin")


async def typed(person: Person, *words: str) -> Done:
    return await asyncio.to_thread(person.type, *words)


def named_key(person: Person) -> str | None:
    keys = yaml.safe_load(person.places.broker_file.read_text())["spec"].get("keys")
    return None if keys is None else str(keys["plugin"]["settings"]["item"])


async def test_a_new_store_has_its_key_in_the_keychain_and_no_file_has_it(
    person: Person, idp: IdentityProvider, keychain: FakeKeychain, words: tuple[str, ...]
) -> None:
    done, _ = await person.log_in(idp, *words, stdin=person.secret)
    assert 0 == done.code, done.err
    [((service, item), text)] = keychain.items.items()
    assert ("oauthbroker", named_key(person), []) == (service, item, person.keys)
    assert f"The key that opens {person.places.store} is in the test's keychain." in done.err
    for file in person.data.rglob("*"):
        assert file.is_dir() or text.encode() not in file.read_bytes(), file
    status = await typed(person, "status")
    assert ("works" in status.out, True) == (True, f"keychain of the system, as oauthbroker {item}" in status.err)
    assert 0 == (await typed(person, "token", "oidc")).code


async def test_without_a_keychain_the_key_is_a_file_and_moves_at_the_next_login(
    person: Person, idp: IdentityProvider, words: tuple[str, ...]
) -> None:
    first, _ = await person.log_in(idp, *words, stdin=person.secret)
    [file] = person.keys
    assert (0, None) == (first.code, named_key(person))
    assert f"The key is in {file}." in (await typed(person, "status")).err
    text, before = file.read_text().strip(), keyring.get_keyring()
    keyring.set_keyring(empty := FakeKeychain())
    try:
        assert f"The key is in {file}." in (await typed(person, "status")).err, "reading moves nothing"
        again, _ = await person.log_in(idp, "oidc")
        assert (0, [], [text]) == (again.code, person.keys, list(empty.items.values())), again.err
        assert 0 == (await typed(person, "token", "oidc")).code
    finally:
        keyring.set_keyring(before)


@pytest.mark.parametrize("fault", ["locked", "forgetful"])
async def test_a_keychain_that_does_not_give_the_key_back_leaves_it_in_its_file(
    person: Person, idp: IdentityProvider, keychain: FakeKeychain, words: tuple[str, ...], fault: str
) -> None:
    keychain.locked = True
    first, _ = await person.log_in(idp, *words, stdin=person.secret)
    assert (0, 1) == (first.code, len(person.keys)), first.err
    assert f"The key is kept in {person.keys[0]}, because the keychain of the system is locked: unlock it" in first.err
    keychain.locked, keychain.forgetful = fault == "locked", fault == "forgetful"
    again, _ = await person.log_in(idp, "oidc")
    assert (0, 1, None) == (again.code, len(person.keys), named_key(person))
    assert f"The key is kept in {person.keys[0]}, because the keychain of the system " in again.err
    assert "canary-of-the-backend" not in again.err


@pytest.mark.parametrize(
    "fault, said",
    [
        ("locked", "the keychain of the system is locked: unlock it, and try again"),
        ("forgetful", ": restore it there, or log in as the user who has it"),
        ("away", "the keychain of the system does not answer here: log in to the desktop"),
    ],
)
async def test_a_keychain_that_is_locked_or_gone_says_so_in_two_lines_and_no_second_key_is_made(
    person: Person, idp: IdentityProvider, keychain: FakeKeychain, words: tuple[str, ...], fault: str, said: str
) -> None:
    await person.log_in(idp, *words, stdin=person.secret)
    item, items = named_key(person), dict(keychain.items)
    keychain.locked, keychain.forgetful = fault == "locked", fault == "forgetful"
    if fault == "away":
        keyring.set_keyring(FAIL)
    for command in (("token", "oidc"), ("status",), ("login", "oidc")):
        done = await typed(person, *command)
        lines = done.err.splitlines()
        assert (2, 2, True) == (done.code, len(lines), said in lines[0]), done.err
        assert "canary-of-the-backend" not in done.err
    assert (item, items, []) == (named_key(person), keychain.items, person.keys)
    keychain.locked = keychain.forgetful = False
    keyring.set_keyring(keychain)
    assert 0 == (await typed(person, "token", "oidc")).code


@pytest.mark.parametrize("at", ["keep_in_keychain", "write_keys", "unlink"])
async def test_a_move_that_is_killed_at_any_step_goes_on_at_the_next_login(
    person: Person, idp: IdentityProvider, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    await person.log_in(idp, *words, stdin=person.secret)
    before = keyring.get_keyring()
    keyring.set_keyring(FakeKeychain())

    unlink = Path.unlink

    def killed(*given: Any, **more: Any) -> None:
        if at == "unlink" and given[0] not in person.keys:
            return unlink(*given, **more)
        raise SystemExit(137)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(Path if at == "unlink" else key_place, at, killed)
            assert 137 == (await typed(person, "login", "oidc")).code
        assert 0 == (await typed(person, "token", "oidc")).code, "the key is found, wherever it is"
        assert (1, at == "unlink") == (len(person.keys), named_key(person) is not None)
        again, _ = await person.log_in(idp, "oidc")
        assert (0, []) == (again.code, person.keys), again.err
        assert 0 == (await typed(person, "token", "oidc")).code
    finally:
        keyring.set_keyring(before)


async def test_a_store_whose_key_is_lost_gets_no_new_one(
    person: Person, idp: IdentityProvider, words: tuple[str, ...]
) -> None:
    await person.log_in(idp, *words, stdin=person.secret)
    person.keys[0].unlink()
    before = keyring.get_keyring()
    keyring.set_keyring(empty := FakeKeychain())
    try:
        done = await typed(person, "login", "oidc")
    finally:
        keyring.set_keyring(before)
    assert (2, True, {}, None) == (done.code, "keyUnknown" in done.err, empty.items, named_key(person))


def chainer(*backends: KeyringBackend) -> KeyringBackend:
    found: KeyringBackend = ChainerBackend()  # type: ignore[no-untyped-call]
    found.__class__ = type(
        "Chain", (ChainerBackend,), {"__module__": ChainerBackend.__module__, "backends": list(backends)}
    )
    return found


@pytest.mark.parametrize(
    "backend, name",
    [
        (FakeKeychain(), FakeKeychain.name),
        (chainer(PlaintextKeyring(), FakeKeychain()), FakeKeychain.name),
        (chainer(FAIL, NULL), ""),
        (chainer(PlaintextKeyring()), ""),
        (PlaintextKeyring(), ""),
        (FAIL, ""),
        (NULL, ""),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, KeyringBackend) else "",
)
def test_only_a_keychain_that_keyring_recommends_is_used(backend: KeyringBackend, name: str) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        assert name == keychain_name()
    finally:
        keyring.set_keyring(before)

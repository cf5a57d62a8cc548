"""A law: of what happens to the accounts of several users, nothing reaches another account, user or tenant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import TestClock
from tests.kit.default_store import default_store
from tests.unit.records import kit

APPS, SUBJECTS = ("mail", "files"), ("idp:user:1", "idp:user:1\x1fwork", "idp:user:2")
ACCOUNTS = ("", "work", "private", "1\x1fwork", "work ")
KEYS = [GrantKey(app, subject, account) for app in APPS for subject in SUBJECTS for account in ACCOUNTS]
STEPS = st.lists(
    st.tuples(st.sampled_from(["save", "end", "erase", "read"]), st.sampled_from(KEYS), st.integers(0, 999)),
    max_size=40,
)


@dataclass
class World:
    """The stored grants against a plain dictionary of the saved texts."""

    repository: Repository
    saved: dict[GrantKey, str] = field(default_factory=dict)

    async def step(self, what: str, key: GrantKey, number: int) -> None:
        versioned = await self.repository.grant(key)
        text = f"token-{number}"
        async with self.repository.pair(key):
            if what == "save":
                grant = _grant(key, text)
                await self.repository.save_grant(grant, expect=versioned.generation if versioned is not None else 0)
                self.saved[key] = text
            elif what == "erase" and versioned is not None:
                await self.repository.erase_grant(versioned)
                del self.saved[key]
            elif what == "end" and versioned is not None:
                ended = versioned.record.tombstoned(versioned.record.updated_at)
                await self.repository.save_grant(ended, expect=versioned.generation)

    async def check(self) -> None:
        for key in KEYS:
            assert self.saved.get(key) == await self._text(key), key
        found = {grant.record.key: grant async for grant in self.repository.grants()}
        assert self.saved.keys() == found.keys()
        for subject in SUBJECTS:
            tagged = {
                it.record.key async for it in self.repository.grants_with(subject) if it.record.subject == subject
            }
            assert {key for key in self.saved if key.subject == subject} == tagged
        assert len({grant.record.id for grant in found.values()}) == len(found), "each has an id of its own"

    async def _text(self, key: GrantKey) -> str | None:
        versioned = await self.repository.grant(key)
        token = versioned.record.token if versioned is not None else None
        return token.access_token.reveal() if token is not None else None


def _grant(key: GrantKey, text: str) -> Grant:
    base = kit.grant()
    assert base.token is not None
    token: Token = replace(base.token, access_token=Secret(text))
    return replace(base, app=key.app, subject=key.subject, account=key.account, token=token)


@given(steps=STEPS)
@settings(deadline=None)
async def test_nothing_crosses_from_one_key_to_another(steps: list[tuple[str, GrantKey, int]]) -> None:
    world = World(Repository(default_store(TestClock())))
    for what, key, number in steps:
        await world.step(what, key, number)
    await world.check()

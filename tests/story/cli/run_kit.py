"""A person whose `token` and `run` are typed in this process."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import pytest

import oauthbroker
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Done
from tests.story.cli.login_kit import Person

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can play another user")


class Became(NamedTuple):
    """The command that `run` became."""

    words: list[str]
    env: dict[str, str]


async def typed(person: Person, *words: str) -> Done:
    return await asyncio.to_thread(person.type, *words)


async def logged_in(person: Person, idp: IdentityProvider) -> str:
    """Log in, and return the token."""
    words = person.has_oidc(idp)
    done, _ = await person.log_in(idp, *words, "--scopes", "read write", "--stdin", stdin=person.secret)
    assert 0 == done.code, done.err
    return (await asyncio.to_thread(oauthbroker.local("oidc").token)).reveal()

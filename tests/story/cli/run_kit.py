"""A person whose `token` and `run` are typed in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import oauthbroker
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Done
from tests.story.cli.login_kit import Person

UNPRIVILEGED = 65534  # a user and a group without rights of their own
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


@contextmanager
def reachable(place: Path) -> Iterator[None]:
    """Let every user through the folders above, as in `/home` or `/tmp`. The mode of the place itself stays."""
    before = {folder: folder.stat().st_mode for folder in {*place.parents, *place.resolve().parents}}
    for folder, mode in before.items():
        folder.chmod(mode | 0o001)
    try:
        yield
    finally:
        for folder, mode in before.items():
            folder.chmod(mode)

"""Migration, verify and reopen the store of the settings: what `oauthbroker store` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Progress, unseen
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.repository.described import described
from oauthbroker.repository.repository import KINDS
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.copying import Copied, Migration, reopen
from oauthbroker.store.migration.raw import RawStore, document_of
from oauthbroker.store.migration.raw_files import RawFiles
from oauthbroker.store.migration.verifying import VerifiedStore, verify
from oauthbroker.wiring.key_sources import key_providers
from oauthbroker.wiring.storage import check_driver, url_in
from oauthbroker.wiring.store_place import VARIABLE, naming, place_of

_SCHEMES: Final = ("postgresql://", "postgres://")


def raw_store(word: str, env: Mapping[str, str], *, make: bool = False) -> RawStore:
    """Open the store that a command's word names: a folder, `env:NAME`, or the URL of a database without a password.

    Raises Refused for a URL with a password, and store codes."""
    with naming(lambda: place_of(word, env)):
        return _raw_store(word, env, make=make)


def _raw_store(word: str, env: Mapping[str, str], *, make: bool) -> RawStore:
    if word.startswith(VARIABLE):
        url = url_in(word.removeprefix(VARIABLE), env)
    elif word.startswith(_SCHEMES):
        _check_no_password(word)
        check_driver()
        url = Secret(word)
    else:
        return RawFiles(Path(word), make=make)
    from oauthbroker.store.migration.raw_rows import RawRows

    return RawRows(url, word, make=make)


def _check_no_password(url: str) -> None:
    who, at, _ = url.partition("://")[2].partition("@")
    if (at and ":" in who) or "password=" in url:
        raise Refused(
            "Every user of this machine can read a command line. Put the URL into an environment variable, and write "
            "env:NAME in its place."
        )


@contextmanager
def opened_ring(
    store: RawStore, settings: Settings, env: Mapping[str, str], log: Log
) -> Iterator[tuple[RawStore, Keyring]]:
    """Open the keyring of a store with the key of the settings. Raises `storeUnavailable` where there is no store,
    `keyUnknown` and `keyMismatch`."""
    with closing(store):
        if (document := document_of(store)) is None:
            there = "there is no store yet: run `oauthbroker init` or `oauthbroker store import`"
            raise BrokerError(Code.STORE_UNAVAILABLE, note=there, lasting=True)
        yield store, Keyring.opened(document, *key_providers(settings, env, log))


def copy_store(
    words: tuple[str, str],
    settings: Settings,
    *,
    env: Mapping[str, str],
    clock: Clock,
    log: Log,
    cut_over: bool = False,
    skip_damaged: bool = False,
    progress: Progress = unseen,
) -> Copied:
    """Copy the store of one word to the place of another. Raises Refused and store codes."""
    if words[0] == words[1] or Path(words[0]).resolve() == Path(words[1]).resolve():
        raise Refused(f"{words[0]} and {words[1]} are the same store. Name another place. Nothing was changed.")
    with ExitStack() as stack:
        source, ring = stack.enter_context(opened_ring(raw_store(words[0], env), settings, env, log))
        target = stack.enter_context(closing(raw_store(words[1], env, make=True)))
        move = Migration(source=source, target=target, ring=ring, kinds=KINDS, clock=clock, progress=progress)
        return move.cut_over(skip_damaged=skip_damaged) if cut_over else move.copy()


def verify_store(
    word: str, settings: Settings, *, env: Mapping[str, str], log: Log, progress: Progress = unseen
) -> VerifiedStore:
    with opened_ring(raw_store(word, env), settings, env, log) as (store, ring):
        return verify(store, ring, KINDS, described, progress)


def reopen_store(word: str, env: Mapping[str, str], *, abandon: bool) -> bool:
    """Undo the closing of a store. False if it was not closed. Raises as `reopen` does."""
    with closing(raw_store(word, env)) as store:
        return reopen(store, abandon=abandon)

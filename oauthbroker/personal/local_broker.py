"""Open a broker over a person's own places, for one command or one program. Several processes may do so at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import Refused
from oauthbroker.grants.grants import Vault
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Settings
from oauthbroker.personal.app_files import AppChange
from oauthbroker.personal.command_lines import with_config
from oauthbroker.personal.key_place import locked
from oauthbroker.personal.places import Places
from oauthbroker.wiring import init_store, open_vault, with_keys
from oauthbroker.wiring.key_sources import environment_without_keys
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running


class QuietLog:
    """Drops the lines of a broker in a command: what goes wrong is an error of the call that met it."""

    def bind(self, **_fields: Any) -> QuietLog:
        return self

    def info(self, event: str, **fields: Any) -> None: ...

    warning = error = info


@asynccontextmanager
async def open_local(
    places: Places | None = None,
    *,
    only: Collection[str] | None = None,
    background: bool = False,
    change: AppChange | None = None,
) -> AsyncIterator[Running]:
    """Run a broker over the places for the block, its store made if it is new. `only`, `background` as `open_broker`
    has them; `change` is tried in place of the app that it changes. Raises Refused for a place that another user could
    have written, and store codes."""
    places = places or Places.of_user()
    _made(places)
    env = environment_without_keys()
    with nullcontext((places.config, env)) if change is None else change.tried(places, env) as (config, values):
        opened = open_running(config, env=values, clock=SystemClock(), log=QuietLog(), background=background, only=only)
        with _naming(places):
            async with opened as running:
                yield running


@contextmanager
def _naming(places: Places) -> Iterator[None]:
    """Name the person's configuration in the commands of a refusal: without it they would read another one. A login
    makes their store anew."""
    try:
        yield
    except ConfigInvalidError as error:
        refused = with_config(error, places.config)
    except BrokerError as error:
        error.words = {**error.words, "command": "`oauthbroker login PROVIDER`"}
        raise
    else:
        return
    raise refused


@asynccontextmanager
async def open_local_vault(places: Places) -> AsyncIterator[Vault]:
    """Open the store alone, to keep secrets there."""
    with _naming(places):
        async with open_vault(_made(places), env=environment_without_keys()) as vault:
            yield vault


def app_of(running: Running, places: Places, name: str) -> App:
    """Return an app of the configuration. Raises Refused for a file that holds no app of its name."""
    if name in running.parts.apps:
        return running.parts.apps[name]
    raise Refused(holds_no_app(places, name))


def holds_no_app(places: Places, name: str) -> str:
    return f"{places.app_file(name)} holds no app {name}. Move it away, then run: oauthbroker login {name}"


def _made(places: Places) -> Settings:
    """Make the places and the store that are missing."""
    places.prepare()
    if not places.keyring.exists():
        with locked(places):
            if not places.keyring.exists():  # another process may have made it meanwhile
                init_store(_settings(places), environment_without_keys(), SystemClock())
    return _settings(places)


def _settings(places: Places) -> Settings:
    return with_keys(load(places.config).settings, environment_without_keys())

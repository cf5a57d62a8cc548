"""One `oauthbroker serve` for the tests of a module that leave it as it is: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import pytest

from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.sweep import CanarySweep
from tests.kit.cli import Desk, serving
from tests.kit.warm_python import cold_starts

SILENT = SimpleNamespace(readouterr=lambda: SimpleNamespace(out="", err=""))


@dataclass(frozen=True)
class SharedServer:
    """A running server, its folder and its provider."""

    desk: Desk
    idp: IdentityProvider
    process: Popen[bytes]


@contextmanager
def shared_server(folder: Path, *words: str) -> Iterator[SharedServer]:
    """Run a server with an app until the block ends. Then sweep its folder for the secrets of its provider."""
    with CanarySweep() as sweep, IdentityProvider(canaries=sweep.canaries) as idp:
        sweep.canaries.watch(folder)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
            desk = Desk(folder, sweep.canaries, patch, SILENT)
            desk.ready_to_serve(idp)
        with ExitStack() as stack:
            with cold_starts():  # these tests look at the process too
                process = stack.enter_context(serving(desk, *words))
            yield SharedServer(desk, idp, process)
        sweep.check()

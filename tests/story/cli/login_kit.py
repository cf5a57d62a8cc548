"""A person with a data folder, a terminal and a browser, who types `oauthbroker login` in this process."""

from __future__ import annotations

import asyncio
import io
import queue
import sys
import webbrowser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from oauthbroker.cli import run
from oauthbroker.personal import app_files, logins
from oauthbroker.personal.places import Places
from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, connect_through
from oauthbroker.testing.browser import Page
from tests.kit.cli import Done, free_port


class _Stdin(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


class Person:
    """`answers` are typed at the questions in their order, and `asked` are these, with whether they echo."""

    def __init__(self, folder: Path, canaries: Canaries, patch: pytest.MonkeyPatch, capture: Any) -> None:
        self.canaries, self._patch, self._capture = canaries, patch, capture
        self.data, self.port = folder / "share", free_port()
        self.links: queue.Queue[str] = queue.Queue()
        self.asked: list[tuple[str, bool]] = []
        self.answers: list[str] = []
        canaries.may_show("ticket", "user code")  # the link, and the code to type, are what a login prints
        for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY", "OAUTHBROKER_KEY", "OAUTHBROKER_KEY_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_DATA_HOME", str(self.data))
        patch.setenv("DISPLAY", ":0")
        patch.chdir(folder)
        patch.setattr(logins, "CONSENT_SECONDS", min(logins.CONSENT_SECONDS, 15.0))  # a test that fails ends soon
        patch.setattr(webbrowser, "open", self._open)
        patch.setattr(typer, "prompt", self._prompt)
        patch.setattr(typer, "confirm", lambda question, **_: self._prompt(question) == "y")
        self.places = Places.of_user()
        self.places.prepare()
        head = {"apiVersion": app_files.API_VERSION, "kind": "Broker", "metadata": {"name": "broker"}}
        spec = {"weaken": ["plainHttpProvider"], "listen": {"port": self.port}}
        self.places.broker_file.write_text(yaml.safe_dump({**head, "spec": spec}))

    def _open(self, link: str) -> bool:
        self.links.put(link)
        return True

    def _prompt(self, question: str, default: str = "", *, hide_input: bool = False, **_: Any) -> str:
        self.asked.append((question, not hide_input))
        if not self.answers:
            raise typer.Abort
        return self.answers.pop(0) or default

    @property
    def keys(self) -> list[Path]:
        return list(self.data.rglob("*.kek"))

    def callback(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/oauth/callback/{name}"

    def type(self, *words: str, answers: list[str] | None = None, stdin: str = "") -> Done:
        """Type one command, at a terminal if there are answers."""
        self.answers, self.asked = list(answers or ()), []
        given = _Stdin(io.BytesIO(stdin.encode("utf-8", "surrogateescape")))
        given.terminal = answers is not None
        self._patch.setattr(sys, "stdin", given)
        self._capture.readouterr()
        code = run(list(words))
        printed = self._capture.readouterr()
        for key in self.keys:
            self.canaries.excuse(key)
        return Done(code, printed.out, printed.err)

    async def started(self, *words: str, **more: Any) -> tuple[asyncio.Task[Done], str]:
        """Begin a command, and return it with the link that it opened; an empty one if it ended before."""
        task = asyncio.create_task(asyncio.to_thread(self.type, *words, **more))
        while not task.done():
            try:
                return task, self.links.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.005)
        return task, ""

    async def log_in(
        self, idp: IdentityProvider, *words: str, who: str = "alice", deny: bool = False, **more: Any
    ) -> tuple[Done, Page | None]:
        """Log in, with the browser of this person. Return the output, and the last page."""
        task, link = await self.started("login", *words, **more)
        page = None
        if link:
            page = await connect_through(Browser(canaries=self.canaries), idp, link, who, deny=deny)
        return await task, page

    def has_oidc(self, idp: IdentityProvider, name: str = "oidc", **more: Any) -> tuple[str, ...]:
        """Register a client at the provider. Return the words that name it, and its secret as `self.secret`."""
        client = idp.register(Client(f"client-{name}", redirect_uris=(self.callback(name),), **more))
        self.secret = client.reveal_secret()
        return (name, "--client-id", f"client-{name}", "--param", f"issuer={idp.issuer}")

    def texts(self) -> str:
        """Return all files that are no sealed record, and the names of the rest."""
        found = [path for path in self.data.rglob("*") if path.is_file()]
        return "\n".join(path.read_text("utf-8") if path.suffix == ".yaml" else path.name for path in found)

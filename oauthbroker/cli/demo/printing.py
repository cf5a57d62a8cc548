"""Print the demo's text, step by step. Links are never broken into two lines."""

from __future__ import annotations

from datetime import datetime
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from oauthbroker.cli.demo.agent import Fetched

WHO, WIDEST = 9, 100  # columns


class Telling:
    """Prints the demo's steps."""

    def __init__(self, *, aside: bool = False) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, stderr=aside)
        self._step = 0

    def opening(self, *, provider: str, broker: str, folder: str) -> None:
        self._print(Text("oauthbroker demo", style="bold"))
        self._print(Text("Everything runs on this machine and ends with this command.", style="dim"))
        self._print()
        self.says("provider", f"{provider}  the built-in one; it asks for no password")
        self.says("broker", f"{broker}  keeps everything sealed in {folder}")
        self.says("agent", "planner, with one tool: messages")

    def step(self, title: str) -> None:
        self._step += 1
        self._print()
        self._print(Text(f"{self._step}  {title}", style="bold"))

    def says(self, who: str, what: str, *, style: str = "") -> None:
        """Print one speaker's words, wrapped below each other."""
        for line in wrap(what, min(self._console.width, WIDEST) - WHO - 4):
            self._print(Text(f"   {who:<{WHO}} ", style="cyan").append(line, style=style or "default"))
            who = ""

    def link(self, url: str, until: datetime) -> None:
        self._print()
        self._print(Text("   ").append(url, style=f"bold underline link {url}"))
        self._print()
        self.says("you", "open it in a browser here, go on to the provider, sign in as Alice Arden and allow.")
        self.says("", "Or sign in as Bob Birch, or cancel, and see what the agent makes of it.", style="dim")
        self.says("agent", f"waiting ... the link lives until {until.astimezone():%H:%M:%S}; Ctrl-C ends the demo")

    def fetched(self, found: Fetched, api_path: str) -> None:
        self.says("messages", f"GET {api_path} with the token: {found.status}")
        for message in found.body.get("messages", []):
            self._print(Text(f"   {'':<{WHO}}   {message['text']}", style="green"))

    def ending(self, sentence: str, *lines: str) -> None:
        self._print()
        self._print(Text(sentence, style="bold"))
        for line in lines:
            self._print(Text(line, style="dim"))

    def _print(self, text: Text | None = None) -> None:
        self._console.print(text if text is not None else "", soft_wrap=True)

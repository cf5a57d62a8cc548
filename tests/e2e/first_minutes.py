"""`make first-minutes`: from an empty environment and an empty home to the first answer of an API, in four ways.

A person types two commands at a terminal, `uv pip install` (with `--pip` plain pip) and `oauthbroker login`, agrees in a
real Chromium, and starts a program of three lines. The provider, the API that takes a key and the MCP server are scripted
ones on this machine. The data folder holds beforehand the permission to ask a provider without TLS and, for the device
flow and the key, the app in place of a preset that leads to a real provider. Prints a transcript and the seconds of each way.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import playwright.async_api as browsers
import yaml

from oauthbroker.personal.app_files import API_VERSION
from oauthbroker.personal.places import Places
from oauthbroker.testing import Canaries
from release.building import ROOT, build, commit_time, copied, ran, tracked
from release.trying import environment
from tests.e2e.first_ways import Way, ways
from tests.e2e.person import Person, chromium
from tests.kit.cli import free_port
from tests.kit.terminal import at_terminal

MOST_SECONDS = 60
PAGE = ROOT / "docs" / "performance-first-minutes.md"
HEAD = """\
# Performance: the first minutes

Written by `make first-minutes ARGS=--write`: an empty environment, an empty home folder, a scripted provider, a person in Chromium. Seconds since the start of the first command, on {machine}.

The data folder has what real providers need not: the permission to ask without TLS and, for the device flow and the key, the app in place of a preset.

| way | installed | connected | first answer of the API |
|---|---|---|---|
{rows}

"""
UV = ROOT / ".venv" / "uv" / "bin" / "uv"
PROGRAM = """\
import oauthbroker
with oauthbroker.local("{app}").client() as api:
    print(api.{call}.text)
"""
OF_INDEX = ("PIP_", "UV_INDEX", "SSL_CERT_", "HTTPS_PROXY", "https_proxy")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A person's home folder, the two programs there, and the port of the callbacks."""

    home: Path
    oauthbroker: Sequence[str | Path]
    python: str | Path
    env: Mapping[str, str]
    port: int

    @classmethod
    def fresh(cls, home: Path, port: int) -> Machine:
        """Return that of an empty environment in this folder. Where packages come from is this machine's."""
        programs = home / "bin"
        env = {name: value for name, value in os.environ.items() if name.startswith(OF_INDEX)}
        env |= {**environment(programs, home), "VIRTUAL_ENV": str(home)}
        return cls(home=home, oauthbroker=[programs / "oauthbroker"], python=programs / "python", env=env, port=port)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def opened(self) -> Path:
        """The file with the link that a program opens in the browser."""
        return self.home / "opened"

    def prepare(self, way: Way) -> dict[str, str]:
        """Write what lies there beforehand. Return the variables of the person's terminal."""
        share = self.home / "share"
        places = Places(share / "oauthbroker" / "local")
        places.prepare()
        broker = {"kind": "Broker", "spec": {"weaken": ["plainHttpProvider"], "listen": {"port": self.port}}}
        for name, resource in {"_broker": broker, **way.files}.items():
            head = {"apiVersion": API_VERSION, "metadata": {"name": name.removeprefix("_")}}
            (places.config / f"{name}.yaml").write_text(yaml.safe_dump({**head, **resource}), "utf-8")
        browser = self.home / "browser"
        browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {self.opened}.new\nmv {self.opened}.new {self.opened}\n')
        browser.chmod(0o700)
        return {
            **self.env,
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(share),
            "TERM": "dumb",
            "BROWSER": str(browser),
        }


@dataclass
class Walk:
    """One way from its first command to the answer of the API."""

    way: Way
    commands: list[str] = field(default_factory=list)
    transcript: str = ""
    answer: str = ""
    begun: float = field(default_factory=time.monotonic)
    ends: list[float] = field(default_factory=list)  # of each command and of the program, in seconds from the start

    def shows(self, command: str, screen: str) -> None:
        self.transcript += f"$ {command}\n" + screen.replace("\r\n", "\n")
        self.ends.append(time.monotonic() - self.begun)

    @property
    def summary(self) -> str:
        return f"{self.way.title}: {len(self.commands)} commands, {self.ends[-1]:.1f} s to the first answer"


async def walk(
    machine: Machine, way: Way, browser: browsers.Browser, canaries: Canaries, install: Sequence[str | Path] = ()
) -> Walk:
    """Go one way, from the installation if there is a command for it. Raises AssertionError where it leads nowhere."""
    env = machine.prepare(way)
    walked = Walk(way)
    if install:
        await _step(walked, _as_typed(install), install, machine, env)
    typed = f"oauthbroker login {shlex.join(way.login)}"
    words = [*machine.oauthbroker, "login", *way.login]
    logging_in = asyncio.create_task(_step(walked, typed, words, machine, env, way.answers))
    if way.agree is not None and (link := await _link(machine, logging_in)):
        person = await Person.with_profile(browser, machine.address, canaries)
        await way.agree(person, link)
        assert [] == person.shared_circuits
    await logging_in
    program = machine.home / "first.py"
    program.write_text(PROGRAM.format(app=way.app, call=way.call), "utf-8")
    walked.transcript += f"$ cat {program.name}\n{program.read_text('utf-8')}"
    walked.answer = await _run(walked, f"python {program.name}", [machine.python, program], machine, env)
    return walked


def _as_typed(words: Sequence[str | Path]) -> str:
    """Return a command as a person types it in an environment that is active."""
    return shlex.join([Path(words[0]).name, *(str(word) for word in words[1:])])


async def _step(
    walked: Walk, typed: str, words: Sequence[str | Path], machine: Machine, env: Mapping[str, str],
    answers: Sequence[tuple[str, str]] = (),
) -> None:  # fmt: skip
    walked.commands.append(typed)
    await _run(walked, typed, words, machine, env, answers)


async def _run(
    walked: Walk, typed: str, words: Sequence[str | Path], machine: Machine, env: Mapping[str, str],
    answers: Sequence[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """Run one command at a terminal, and answer its questions as they come. Return its screen."""

    def at_the_terminal() -> str:
        with at_terminal(words, machine.home, env) as terminal:
            for question, answer in answers:
                terminal.until(question)
                terminal.type(answer)
            status = terminal.end()
        walked.shows(typed, terminal.screen)
        assert status == 0, walked.transcript
        return terminal.screen

    return await asyncio.to_thread(at_the_terminal)


async def _link(machine: Machine, logging_in: asyncio.Task[None]) -> str:
    """Return the link that the login has opened; empty if it ended before."""
    while not machine.opened.exists():
        if logging_in.done():
            return ""
        await asyncio.sleep(0.02)
    return machine.opened.read_text("utf-8")


async def main(*, is_pip: bool, is_written: bool) -> int:
    """Build the wheel, go each way on a machine of its own, and print. Return 1 where one takes too long."""
    port, canaries, walks = free_port(), Canaries(), list[Walk]()
    with tempfile.TemporaryDirectory(prefix="oauthbroker-first-") as folder:
        work = Path(folder)
        wheel = build(copied(tracked(), work / "source"), work / "dist", commit_time(), "-t", "wheel").wheel
        async with ways(canaries, port) as found, chromium() as browser:
            for way in found:
                home = work / "home"
                home.mkdir()
                await asyncio.to_thread(ran, sys.executable, "-m", "venv", *([] if is_pip else ["--without-pip"]), home)
                machine = Machine.fresh(home, port)
                install: list[str | Path] = [home / "bin" / "pip"] if is_pip else [UV, "pip"]
                walks.append(await walk(machine, way, browser, canaries, [*install, "install", "-q", wheel]))
                print(f"== {walks[-1].summary}\n{walks[-1].transcript}", flush=True)
                shutil.rmtree(home)
        if is_written:
            PAGE.write_text(page_of(walks).replace(str(work / "home"), "~").replace(f"{work}/", ""), "utf-8")
    return int(max(each.ends[-1] for each in walks) > MOST_SECONDS)


def page_of(walks: Sequence[Walk]) -> str:
    """Return the page with the table of seconds and the transcripts. Links have no secret any more."""
    rows = "\n".join(f"| {each.way.title} | {' | '.join(f'{end:.1f} s' for end in each.ends)} |" for each in walks)
    shown = "\n".join(
        f"## {each.way.title[0].upper()}{each.way.title[1:]}\n\n```\n{each.transcript.rstrip()}\n```\n"
        for each in walks
    )
    machine = f"{os.cpu_count()} cores, with a load of {os.getloadavg()[0]:.0f} from other work"
    return HEAD.format(machine=machine, rows=rows) + re.sub(r"(/connect/)[\w-]+", r"\1...", shown)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(asyncio.run(main(is_pip="--pip" in sys.argv, is_written="--write" in sys.argv)))

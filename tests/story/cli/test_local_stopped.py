"""Ctrl-C in a program that waits in `oauthbroker.local`."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import environment
from tests.story.cli.login_kit import Person

ASYNC = """
import asyncio, oauthbroker
async def main():
    async with oauthbroker.local('oidc').async_client():
        pass
asyncio.run(main())
"""
CAUGHT = """
import oauthbroker
try:
    oauthbroker.local('oidc').token()
except KeyboardInterrupt:
    raise SystemExit('mine') from None
"""
OTHER = """
import oauthbroker
try:
    oauthbroker.local('oidc').token()
except KeyboardInterrupt:
    pass
raise ValueError('another fault')
"""
PROGRAMS = {
    "a token": ("import oauthbroker; oauthbroker.local('oidc').token()", "Stopped."),
    "a client": ("import oauthbroker\nwith oauthbroker.local('oidc').client(): pass", "Stopped."),
    "a client with await": (ASYNC, "Stopped."),
    "a program that catches it": (CAUGHT, "mine"),
    "a fault after it": (OTHER, "ValueError: another fault"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_that_is_stopped_while_it_waits_ends_with_a_line(
    person: Person, idp: IdentityProvider, name: str
) -> None:
    program, said = PROGRAMS[name]
    words = person.has_oidc(idp, access_lifetime=1)
    done, _ = await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    assert 0 == done.code, done.err
    await asyncio.sleep(1.1)  # the token has ended: the program waits for the next one
    hold = idp.script.refresh.hang()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env=environment(XDG_DATA_HOME=str(person.data)),
        stderr=asyncio.subprocess.PIPE,
    )
    await hold.arrived()
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.2)
    hold.release()
    _, written = await asyncio.wait_for(process.communicate(), 30)
    lines = written.decode().strip().splitlines()
    assert said == lines[-1], lines
    assert ("Traceback" in written.decode()) is (name == "a fault after it")
    assert (process.returncode == -signal.SIGINT) is (said == "Stopped.")

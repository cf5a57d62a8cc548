"""What others do to a person with `oauthbroker login` on a machine that they share: each attack, and the test that plays it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.kit.cli import MAIN, REPOSITORY, environment
from tests.story.cli.login_kit import Person
from tests.story.cli.run_kit import UNPRIVILEGED, as_root, logged_in, reachable, typed

HERE = "story/cli/test_hostile_machine.py"
ATTACKS = [  # attack | what happens | the tests, below tests/
    ("another user reads app, store, key", "the folders let no other user in, under any umask",
     f"{HERE}::test_another_user_reads_no_file_of_a_person_whose_umask_is_open"),
    ("another user has planted a folder or an app", "it is refused with what to do, and no key is made",
     "story/cli/test_login_mistakes.py::test_a_place_that_another_user_could_have_written_is_not_used"),
    ("another user listens on the callback port", "the login is refused before a link is made",
     f"{HERE}::test_a_port_where_another_user_listens_is_refused_before_anything_is_opened"),
    ("another user sends callbacks and guesses links while a login waits", "each is refused, and the login goes on",
     f"{HERE}::test_the_guesses_of_another_user_do_not_stop_a_login_that_waits"),
    ("another user opens the link that the process list shows, and agrees first", "the login names that account",
     f"{HERE}::test_an_account_that_is_planted_by_a_link_from_the_process_list_is_named"),
    ("the same at a connection that works", "nothing changes, and the login says which account came",
     "story/cli/test_login.py::test_a_second_login_asks_before_another_account_takes_the_place"),
    ("a planted browser on the callback port", "the login fails, and says that another browser came back",
     "story/cli/test_login.py::test_another_browser_cannot_finish_a_login"),
    ("a second login of another account", "it asks first; without a terminal --yes or --account is needed",
     "story/cli/test_login.py::test_a_second_login_asks_before_another_account_takes_the_place"),
    ("a stolen path of the socket", "the folder, then the mode, then the kernel's word of who calls: 401",
     "story/cli/test_serve_local.py::test_another_users_process_gets_nothing_even_where_it_can_connect"),
    ("a socket in the place of ours", "no byte is sent to it",
     "story/cli/test_serve_local.py::test_a_planted_socket_is_refused_with_what_to_do"),
    ("a process of another user behind our own socket", "no byte is sent to it",
     "story/cli/test_serve_local.py::test_a_process_of_another_user_behind_our_own_socket_is_refused"),
    ("requests at the socket by the same user", "tokens of one fixed subject, and nothing else",
     "story/cli/test_serve_local.py::test_nothing_that_is_said_at_the_socket_reaches_another_subject"),
    ("a token in the process list", "it is in an environment that only its user can read",
     f"{HERE}::test_another_user_finds_no_token_in_the_list_of_processes"),
    ("a secret in the shell's history", "no option takes one: it is typed unseen, or comes from stdin",
     "unit/cli/test_error_output.py::test_no_option_takes_a_secret"),
    ("a token on the screen", "a terminal gets none without --show",
     "story/cli/test_run.py::test_a_terminal_is_shown_the_token_only_when_the_person_says_so"),
    ("a tool with a part of a turn's variables", "it never gets the person's own token",
     "story/cli/test_run.py::test_a_tool_with_a_part_of_a_turn_never_gets_the_persons_own_token"),
]  # fmt: skip


@pytest.mark.parametrize(("attack", "happens", "test"), ATTACKS, ids=[attack for attack, _, _ in ATTACKS])
def test_each_attack_is_played(attack: str, happens: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (REPOSITORY / "tests" / file).read_text("utf-8"), (attack, happens)


def as_nobody(program: str, *words: str | Path) -> str:
    """Run a program as another user, and return its output."""
    modules = "import collections, encodings.idna, os, sys, urllib.error, urllib.request"  # which it cannot read later
    head = f"{modules}\nos.setgroups([])\nos.setgid({UNPRIVILEGED})\nos.setuid({UNPRIVILEGED})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", head + program, *map(str, words)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@as_root
async def test_another_user_reads_no_file_of_a_person_whose_umask_is_open(
    person: Person, idp: IdentityProvider
) -> None:
    before = os.umask(0)
    try:
        await logged_in(person, idp)
    finally:
        os.umask(before)
    files = [path for path in person.data.rglob("*") if path.is_file()]
    assert person.keys[0] in files
    assert person.places.app_file("oidc") in files
    program = (
        "for path in sys.argv[1:]:\n for flags in (os.O_RDONLY, os.O_WRONLY):\n  try: os.open(path, flags)\n"
        "  except PermissionError: continue\n  print(path)\n"
    )
    with reachable(person.data / "oauthbroker"):
        assert "" == await asyncio.to_thread(as_nobody, program, *(path.resolve() for path in files))


@contextmanager
def listening_as_nobody(family: int, host: str, port: int) -> Iterator[None]:
    program = (
        f"import os, socket, sys\nos.setuid({UNPRIVILEGED})\ns = socket.socket({family})\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        f"s.bind(('{host}', {port}))\ns.listen()\nprint('listens', flush=True)\nsys.stdin.read()\n"
    )
    words = [sys.executable, "-I", "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"listens\n" == process.stdout.readline()
        yield  # its stdin ends with the block


@as_root
@pytest.mark.parametrize(
    ("provider", "family", "host"),
    [("oidc", socket.AF_INET, "127.0.0.1"), ("oidc", socket.AF_INET, "0.0.0.0"), ("microsoft", socket.AF_INET6, "::1")],
)
def test_a_port_where_another_user_listens_is_refused_before_anything_is_opened(
    person: Person, idp: IdentityProvider, provider: str, family: int, host: str
) -> None:
    """Microsoft's callback is at `localhost`, of which a browser may try the address in IPv6 first."""
    words: tuple[str, ...] = person.has_oidc(idp)
    if provider == "microsoft":
        words = ("microsoft", "--client-id", "c", "--param", "tenant=8c29b8a6-2f4d-4b2c-9a1e-5f0d1c2b3a49")
    with listening_as_nobody(family, host, person.port):
        done = person.type("login", *words, "--no-device", "--stdin", stdin=person.secret)
    assert (2, "") == (done.code, done.out), done
    assert f"port {person.port}: another process listens there." in done.err
    assert person.links.empty()


@as_root
async def test_the_guesses_of_another_user_do_not_stop_a_login_that_waits(
    person: Person, idp: IdentityProvider
) -> None:
    words = person.has_oidc(idp)
    begun, link = await person.started("login", *words, "--stdin", stdin=person.secret)
    program = (
        "found = collections.Counter()\n"
        "for number in range(200):\n"
        " for path in ('/oauth/callback/oidc?state=s%d&code=c' % number, '/connect/' + str(number) * 20):\n"
        "  try: found[urllib.request.urlopen(sys.argv[1] + path).status] += 1\n"
        "  except urllib.error.HTTPError as refused: found[refused.code] += 1\n"
        "print(sorted(found))\n"
    )
    answered = await asyncio.to_thread(as_nobody, program, f"http://127.0.0.1:{person.port}")
    page = await connect_through(Browser(canaries=person.canaries), idp, link, "alice")
    done = await begun
    assert re.fullmatch(r"\[(4\d\d(, )?)+\]\n", answered), answered
    assert (0, 200) == (done.code, page.status), (done, page.text)
    assert f"oidc:user:{idp.account('alice').sub}" in done.out


async def test_an_account_that_is_planted_by_a_link_from_the_process_list_is_named(
    person: Person, idp: IdentityProvider
) -> None:
    """Until the person has agreed, the link is whose browser comes first: docs/quickstart.md says to look at the name."""
    words = person.has_oidc(idp)
    begun, link = await person.started("login", *words, "--stdin", stdin=person.secret)
    await connect_through(Browser(canaries=person.canaries), idp, link, "mallory")
    done = await begun
    planted = f"oidc:user:{idp.account('mallory').sub}"
    assert (0, True) == (done.code, done.out.startswith(f"Connected as mallory ({planted})")), done
    assert "mallory" in (await typed(person, "status")).out


@pytest.mark.slow
@as_root
async def test_another_user_finds_no_token_in_the_list_of_processes(
    person: Person, idp: IdentityProvider, tmp_path: Path
) -> None:
    token = await logged_in(person, idp)
    env = environment(XDG_DATA_HOME=str(person.data), HOME=str(tmp_path))
    child = "import os, time\nprint(len(os.environ['OAUTHBROKER_ACCESS_TOKEN']), flush=True)\ntime.sleep(60)"
    words = [sys.executable, "-c", MAIN, "run", "oidc", "--", sys.executable, "-c", child]
    program = (
        "found = ''\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        " try: found += open(f'/proc/{pid}/cmdline').read()\n except OSError: pass\n"
        "try: found += open(f'/proc/{sys.argv[1]}/environ').read()\n"
        "except PermissionError: print('no environment')\nprint(found)\n"
    )

    def story() -> str:
        with subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert f"{len(token)}\n" == process.stdout.readline()
                return as_nobody(program, str(process.pid))
            finally:
                process.kill()

    seen = await asyncio.to_thread(story)
    assert seen.startswith("no environment\n")
    assert "time.sleep(60)" in seen, "its words are seen"
    assert token not in seen

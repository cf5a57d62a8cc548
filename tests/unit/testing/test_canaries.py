"""Every form of a secret is found wherever it lies, and nothing else is."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.testing import Canaries, CanarySweep, Find, SecretLeakedError
from oauthbroker.testing.canary import MARK
from oauthbroker.testing.encodings import encodings_of

pytestmark = pytest.mark.secrets_may_leak("these tests plant leaks")

AWKWARD = 'p&ss wörd/"+?=\\~✓'  # differs in every encoding


def in_base64(text: str, shift: int) -> str:
    return base64.b64encode(b"x" * shift + text.encode() + b"y" * (3 - shift)).decode()


def in_base64url(text: str, shift: int) -> str:
    return base64.urlsafe_b64encode(b"x" * shift + text.encode() + b"y" * (3 - shift)).decode().rstrip("=")


HIDING_PLACES: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "URL-encoded": lambda text: quote(text, safe=""),
    "URL-encoded as a form": quote_plus,
    "URL-encoded, slashes kept": quote,
    "JSON": json.dumps,
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON, slashes escaped": lambda text: json.dumps(text, ensure_ascii=False).replace("/", r"\/"),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    **{f"base64 at {n}": partial(in_base64, shift=n) for n in range(3)},
    **{f"base64url at {n}": partial(in_base64url, shift=n) for n in range(3)},
    "HTML": escape,
    "repr": lambda text: repr(text)[1:-1],
    "repr of bytes": lambda text: repr(text.encode())[2:-1],
}


@pytest.mark.case("89")
@pytest.mark.parametrize("hide", HIDING_PLACES.values(), ids=HIDING_PLACES)
@pytest.mark.parametrize(
    "where", ["log", "args", "exception", "cause", "context", "extra", "note", "file", "file name"]
)
def test_a_planted_leak_is_found_in_every_encoding_and_place(hide, where: str, tmp_path: Path):
    hidden = hide(AWKWARD)
    with CanarySweep() as sweep:
        sweep.canaries.add(AWKWARD, "password")
        plant(hidden, where, sweep, tmp_path)
    with pytest.raises(SecretLeakedError) as caught:
        sweep.check()
    assert {"password"} == {find.kind for find in caught.value.finds}
    for form in HIDING_PLACES.values():
        assert form(AWKWARD) not in str(caught.value)


def plant(hidden: str, where: str, sweep: CanarySweep, tmp_path: Path) -> None:
    logger = logging.getLogger("planted")
    match where:
        case "log":
            logger.log(1, f"look: {hidden}")  # noqa: G004
        case "args":
            logger.debug("look: %s", {"deep": [hidden]} if "\\" not in hidden else hidden)
        case "exception" | "cause" | "context":
            log_an_exception(logger, hidden, where)
        case "extra":
            logger.info("nothing here", extra={"note": Shown(hidden)})
        case "note":
            sweep.canaries.look(f"<{hidden}>", "an answer")
        case "file":
            (tmp_path / "record").write_bytes(b"\0\xff" + hidden.encode() + b"\xfe")
            sweep.canaries.watch(tmp_path)
        case _:
            folder = tmp_path / "x"
            for part in f"a{hidden}b".split("/"):  # a slash makes folders, so this one name may be split
                folder = folder / part
            folder.mkdir(parents=True)
            sweep.canaries.watch(tmp_path)


class Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class ShownError(Exception):
    def __str__(self) -> str:
        return str(self.args[0])

    __repr__ = __str__


def log_an_exception(logger: logging.Logger, hidden: str, where: str) -> None:
    inner = ShownError(hidden)
    try:
        fail(inner, where)
    except (ShownError, ValueError):
        logger.exception("it failed")


def fail(inner: ShownError, where: str) -> None:
    if where == "exception":
        raise inner
    try:
        raise inner
    except ShownError as exc:
        raise ValueError("clean") from (exc if where == "cause" else None)


@given(st.text(min_size=6, max_size=60), st.binary(max_size=20), st.binary(max_size=20))
def test_base64_of_anything_around_a_secret_gives_it_away(text: str, before: bytes, after: bytes):
    canaries = Canaries()
    canaries.add(text)
    raw = before + text.encode("utf-8", "surrogatepass") + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert canaries.search(encode(raw), "here")


@given(st.text(min_size=20, max_size=60), st.text(max_size=200))
def test_a_text_without_the_secret_gives_nothing_away(text: str, other: str):
    canaries = Canaries()
    canaries.add(text)
    if not any(form in other.encode("utf-8", "surrogatepass") for form in encodings_of(text)):
        assert [] == canaries.search(other, "here")


def test_a_minted_secret_is_a_secret_with_the_mark():
    canaries = Canaries()
    one, other = canaries.mint("access token"), canaries.mint("access token", prefix="xoxb-")
    assert one != other
    assert one.reveal().startswith(f"{MARK}-access-token-")
    assert other.reveal().startswith(f"xoxb-{MARK}")
    assert 2 == len(canaries)
    assert [Find("access token", "here", "plain")] == canaries.search(f"Bearer {one.reveal()}", "here")


def test_a_foreign_or_cut_canary_is_known_by_its_mark():
    foreign = Canaries().mint("refresh token").reveal()
    for shown in (foreign, foreign[:20], in_base64(foreign, 1), foreign.encode().hex()):
        (find,) = Canaries().search(shown, "here")
        assert find.kind.startswith("minted secret")


def test_what_may_be_there_is_not_a_find():
    canaries = Canaries()
    ticket, token = canaries.mint("ticket"), canaries.mint("access token")
    page = f"{ticket.reveal()} {token.reveal()}"
    assert [Find("access token", "page", "plain")] == canaries.search(page, "page", allow=["ticket"])
    assert [] == canaries.search(ticket.reveal(), "page", allow=["ticket"])
    canaries.look(ticket.reveal(), "page", allow=["ticket"])
    assert [] == CanarySweep(canaries).finds()


def test_a_short_text_cannot_be_a_canary():
    with pytest.raises(ValueError, match="at least 6"):
        Canaries().add("abc")


def test_a_registered_secret_object_is_found_too():
    canaries = Canaries()
    canaries.add(Secret("opensesame"), "password")
    assert [Find("password", "x", "plain")] == canaries.search(b"..opensesame..", "x")
    assert "opensesame" not in repr(canaries.search(b"opensesame", "x"))


def test_a_secret_registered_late_is_still_found():
    with CanarySweep() as sweep:
        logging.getLogger("early").debug("verifier=%s", "late-verifier")
        sweep.canaries.add("late-verifier", "code verifier")
    assert [Find("code verifier", "log early DEBUG", "plain")] == sweep.finds()


def test_the_sweep_hears_level_one_and_puts_everything_back():
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with CanarySweep() as sweep:
        secret = sweep.canaries.mint("token").reveal()
        logging.getLogger("deep.down").log(1, secret)
        assert 1 == root.level
    assert before == (root.level, list(root.handlers))
    logging.getLogger("deep.down").warning(secret)
    assert ["log deep.down Level 1"] == [find.where for find in sweep.finds()]


def test_excused_files_are_left_out(tmp_path: Path):
    (tmp_path / "keys").mkdir()
    with CanarySweep() as sweep:
        text = sweep.canaries.mint("client secret").reveal()
        for name in ("keys/a", "b", "c"):
            (tmp_path / name).write_text(text)
        sweep.canaries.watch(tmp_path)
        sweep.canaries.excuse(tmp_path / "keys", tmp_path / "b")
    assert ["file c"] == [find.where for find in sweep.finds()]


def test_symlinks_are_not_followed_and_unreadable_files_are_passed(tmp_path: Path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()
    with CanarySweep() as sweep:
        outside.write_text(sweep.canaries.mint("token").reveal())
        (inside / "link").symlink_to(outside)
        (inside / "dangling").symlink_to(tmp_path / "nothing")
        sweep.canaries.watch(inside)
    assert [] == sweep.finds()


def test_all_that_hangs_on_an_exception_is_swept():
    canaries = Canaries()
    secret = canaries.mint("token").reveal()
    hidden = ValueError("clean")
    hidden.body = {"deep": secret}  # type: ignore[attr-defined]
    group = ExceptionGroup("clean", [RuntimeError("clean"), hidden])
    canaries.look(group, "the error")
    assert {Find("token", "the error", "plain")} == set(CanarySweep(canaries).finds())


def test_pydantic_input_is_seen_though_it_hides_it():
    from pydantic import BaseModel, ConfigDict, ValidationError

    class Strict(BaseModel):
        model_config = ConfigDict(hide_input_in_errors=True)
        count: int

    canaries = Canaries()
    secret = canaries.mint("token").reveal()
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate({"count": secret})
    assert secret not in str(caught.value)
    canaries.look(caught.value, "the error")
    assert [Find("token", "the error", "plain")] == CanarySweep(canaries).finds()


def test_objects_are_looked_at_as_json_and_as_repr():
    canaries = Canaries()
    secret = canaries.mint("token").reveal()
    canaries.look({"payload": [Shown(secret)]}, "event")
    canaries.look({("not", "json"): secret}, "odd")
    assert ["event", "odd"] == [find.where for find in CanarySweep(canaries).finds()]


def test_active_canaries_nest():
    assert Canaries.active() is not Canaries.active()
    with CanarySweep() as outer:
        with CanarySweep() as inner:
            assert Canaries.active() is inner.canaries
        assert Canaries.active() is outer.canaries


@given(
    st.lists(st.text(min_size=6, max_size=12), min_size=1, max_size=8),
    st.lists(st.one_of(st.integers(0, 7), st.text(max_size=9)), max_size=6),
)
def test_a_search_for_all_forms_at_once_finds_what_a_search_for_each_finds(secrets: list[str], pieces: list[int | str]):
    canaries = Canaries()
    for number, secret in enumerate(secrets):
        canaries.add(secret, str(number))
    text = "".join(secrets[each % len(secrets)] if isinstance(each, int) else each for each in pieces)
    haystack = text.encode("utf-8", "surrogatepass")
    meaning: dict[bytes, tuple[str, str]] = {}
    for secret in secrets:
        for needle, form in encodings_of(secret).items():
            meaning.setdefault(needle, (str(secrets.index(secret)), form))
    found = [(find.kind, find.form) for find in canaries.search(haystack, "here")]
    assert sorted({meaning[needle] for needle in meaning if needle in haystack}) == found


@pytest.mark.parametrize("length", [6, 10, 11, 12, 40])
def test_a_secret_is_found_at_each_place_of_a_text(length: int):
    canaries = Canaries()
    canaries.add("0123456789abcdefghijklmnopqrstuvwxyzABCD"[:length], "token")
    for before in range(17):
        for behind in (0, 5):
            found = canaries.search(
                "." * before + "0123456789abcdefghijklmnopqrstuvwxyzABCD"[:length] + "." * behind, "here"
            )
            assert ["token"] == [find.kind for find in found], (before, behind)

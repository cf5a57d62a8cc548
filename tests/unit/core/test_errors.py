"""The table of errors: complete, in two languages, each sentence says what to do and names no person."""

from __future__ import annotations

import copy
import pickle
import re
import string
from pathlib import Path
from typing import get_args

import pytest

from oauthbroker.core.errors import LOCALES, BrokerError, Code
from oauthbroker.core.words import SENTENCES
from oauthbroker.model.token_results import Failed, Reason, invitation

PAGE = (Path(__file__).parents[3] / "docs" / "errors.md").read_text("utf-8")
SPECIFICATION = {
    "oauthAppNotFound",
    "subjectUnavailable",
    "scopeNotAllowed",
    "deviceCodeUnsupported",
}
PLACEHOLDERS = {"mode", "fact"}
HANGUL = re.compile(r"[가-힣]")
# A sentence says what to do by one of these; a new one is a decision, not an accident.
DO = re.compile(
    r"\b(Check|Start|Ask|ask|Add|Send|Use|Run|Go|Open|Sign in|Tell|must|Connect|restore|Restore|Provide|Finish|"
    r"remove|Close|close|Correct)\b"
)
DO_KO = re.compile(r"(십시오|해야 합니다|해야 사용할 수 있습니다)")


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("locale", LOCALES)
def test_every_code_has_a_sentence_and_every_sentence_a_code(locale: str) -> None:
    assert [code.value for code in Code] == list(SENTENCES[locale]["errors"]), (
        f"write the sentences of all codes, in their order, into oauthbroker/core/words/{locale}.json"
    )


def test_a_code_is_one_camel_case_word_and_no_two_codes_say_the_same() -> None:
    assert all(re.fullmatch(r"[a-z]+(?:[A-Z][a-z]+)*", code.value) for code in Code)
    assert {code.name for code in Code} == {re.sub(r"([A-Z])", r"_\1", code.value).upper() for code in Code}
    for locale in LOCALES:
        assert len(Code) == len({code.sentence(locale) for code in Code})


def test_the_codes_of_the_specification_are_spelt_as_it_spells_them() -> None:
    assert {code.value for code in Code} >= SPECIFICATION


@pytest.mark.parametrize("code", Code)
def test_a_sentence_says_what_to_do(code: Code) -> None:
    english, korean = code.sentence("en"), code.sentence("ko")
    assert DO.search(english), english
    assert DO_KO.search(korean), korean
    assert HANGUL.search(korean)
    assert english.isascii()
    assert english[0].isupper() or english.startswith("turn.auth.")
    assert english.endswith(".")
    assert korean.endswith(".")
    assert 400 <= code.status < 600


@pytest.mark.parametrize("code", Code)
def test_only_words_of_ours_are_filled_in(code: Code) -> None:
    """A sentence can never carry a subject, an id or a provider's text: there is no place for one in it."""
    assert all(placeholders(code.sentence(locale)) <= PLACEHOLDERS for locale in LOCALES)


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("code", Code)
def test_every_message_fills_its_placeholders(code: Code, locale: str) -> None:
    filled = BrokerError(code, mode="user").message(locale)
    bare = BrokerError(code).message(locale)
    assert "{" not in filled + bare
    assert "}" not in filled + bare
    assert ("user" in filled) is ("mode" in placeholders(code.sentence())) or "user" in code.sentence()


def test_what_can_be_tried_again_says_so_and_nothing_else_does() -> None:
    assert {
        Code.REFRESH_IN_PROGRESS,
        Code.REFRESH_REFUSED,
        Code.FACT_MISSING,
        Code.CREDENTIAL_UNCHECKED,
        Code.PROVIDER_UNREACHABLE,
        Code.OUTGOING_PROXY_REFUSED,
        Code.PROVIDER_RATE_LIMITED,
        Code.STORE_LOCKED,
        Code.AUDIT_UNAVAILABLE,
        Code.STORE_UNAVAILABLE,
        Code.RATE_LIMITED,
        Code.REQUEST_TIMEOUT,
        Code.SERVER_BUSY,
        Code.BROKER_UNREACHABLE,
    } == {code for code in Code if BrokerError(code).retryable}
    assert all(code.status in {408, 429, 503} for code in Code if code.retryable)


def test_an_error_says_code_sentence_and_note_and_answers_in_json() -> None:
    error = BrokerError(Code.RATE_LIMITED, note="too many", retry_after_seconds=60)
    assert f"rateLimited: {Code.RATE_LIMITED.sentence()} (too many)" == str(error)
    assert ("rateLimited",) == error.args
    assert 429 == error.status
    assert {
        "status": "error",
        "error": {
            "code": "rateLimited",
            "message": Code.RATE_LIMITED.sentence("ko"),
            "retryable": True,
            "retryAfterSeconds": 60,
        },
    } == Failed.from_error(error, "ko").to_json()


@pytest.mark.parametrize("carry", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
def test_an_error_survives_being_carried_between_processes(carry) -> None:
    error = BrokerError(Code.SUBJECT_UNAVAILABLE, note="n", retry_after_seconds=3, mode="user")
    came = carry(error)
    assert (error.code, error.note, error.words, str(error), error.retry_after_seconds) == (
        came.code,
        came.note,
        came.words,
        str(came),
        came.retry_after_seconds,
    )


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_reason_has_an_invitation_that_names_the_app(reason: Reason, locale: str) -> None:
    said = invitation(reason, "Mail & Co", "", locale)
    assert "Mail & Co" in said
    assert "{" not in said
    assert {"en": "link", "ko": "링크"}.get(locale, "") in said


@pytest.mark.parametrize("locale", LOCALES)
def test_an_invitation_for_one_of_several_accounts_names_it(locale: str) -> None:
    assert "Mail (work)" in invitation("noGrant", "Mail", "work", locale)
    assert f"Mail ({'x' * 40})" in invitation("noGrant", "Mail", "x" * 128, locale, apart=True)


def test_the_page_of_errors_names_no_code_that_is_not_one() -> None:
    named = set(re.findall(r"`([a-z]+(?:[A-Z][a-z]+)+)`", PAGE))
    calls = {"getAccessToken", "reportRejected", "retryAfterSeconds"}
    assert set() == named - {code.value for code in Code} - calls - {*get_args(Reason)}


def test_the_page_of_errors_explains_every_reason() -> None:
    reasons = PAGE.partition("| reason | when |")[2]
    assert {*get_args(Reason)} == set(re.findall(r"(?m)^\| `(\w+)` \| .+ \|$", reasons))


def test_every_code_is_in_use() -> None:
    harness = Path(__file__).parents[3] / "oauthbroker"
    table = harness / "core" / "errors.py"
    files = [path for path in harness.rglob("*.py") if path != table and "testing" not in path.parts]
    raised = "".join(path.read_text("utf-8").replace("error.code is Code.", "") for path in files)
    used = set(re.findall(r"\bCode\.(\w+)", raised))
    assert [] == [code.value for code in Code if code.name not in used]


def test_the_typescript_client_says_its_own_errors_in_the_sentences_of_this_table() -> None:
    source = (Path(__file__).parents[3] / "clients/typescript/src/errors.ts").read_text("utf-8")
    for locale in LOCALES:
        block = source.partition(f"  {locale}: {{")[2].partition("  },")[0]
        said = {word: text for word, _, text in re.findall(r"""(\w+):\s+(["'])(.+?)\2,\n""", block)}
        known = {**SENTENCES[locale]["errors"], **SENTENCES[locale]["hints"]}
        assert said.keys() >= {"brokerUnreachable", "brokerAnswerInvalid", "requestInvalid", "unauthenticated"}
        assert {word: known[word] for word in said} == said


def test_the_page_on_troubleshooting_says_of_every_code_what_to_do() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text("utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("|"))
    assert set() == {code.value for code in Code} - set(re.findall(r"`(\w+)`", rows))
    assert "(troubleshooting.md)" in PAGE


@pytest.mark.parametrize("locale", LOCALES)
def test_a_store_that_waiting_never_mends_says_its_cause_first_and_nothing_of_waiting(locale: str) -> None:
    lasting = BrokerError(Code.STORE_UNAVAILABLE, note="the database lacks tables: run `it`", lasting=True)
    passing = BrokerError(Code.STORE_UNAVAILABLE, note="the database does not answer")
    assert str(lasting).startswith("storeUnavailable: the database lacks tables: run `it`. The store cannot")
    assert str(passing).endswith(" (the database does not answer)")
    assert SENTENCES[locale]["hints"]["storeBroken"] == lasting.message(locale) != passing.message(locale)
    assert "Try again" not in lasting.message()

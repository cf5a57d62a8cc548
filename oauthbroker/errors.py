"""The one exception of the broker: a code, and what it means."""

from __future__ import annotations

from typing import Literal, get_args

from oauthbroker.codes import Code, known_code
from oauthbroker.meanings import MEANINGS, Meaning

__all__ = ["LOCALES", "MEANINGS", "BrokerError", "Code", "Locale", "Meaning", "known_code", "known_locale"]

Locale = Literal["en", "ko"]
LOCALES: tuple[Locale, ...] = get_args(Locale)


class BrokerError(Exception):
    """The only exception the broker raises on purpose.

    `words` fill the placeholders of the message and are words of our configuration (a mode, an app's name),
    never data of a person or a provider. `note` is for the operator's log: a short fixed phrase, same rule.
    """

    def __init__(self, code: Code, *, note: str = "", retry_after_seconds: int | None = None, **words: str) -> None:
        code = Code(code)  # a copy or an unpickled one arrives as its args, which hold the plain word
        super().__init__(code.value)
        self.code = code
        self.note = note
        self.retry_after_seconds = retry_after_seconds
        self.words = words

    @property
    def retryable(self) -> bool:
        return MEANINGS[self.code].retryable

    @property
    def status(self) -> int:
        """The HTTP status that fits the code."""
        return MEANINGS[self.code].status

    def message(self, locale: Locale = "en") -> str:
        """The sentence for a person or a model, in `en` or `ko`."""
        meaning = MEANINGS[self.code]
        text = meaning.ko if locale == "ko" else meaning.en
        return text.format(**{"mode": "?", **self.words})

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message()}" + (f" ({self.note})" if self.note else "")


def known_locale(word: object) -> Locale | None:
    """Return the locale of that name, None for any other word."""
    return next((locale for locale in LOCALES if isinstance(word, str) and locale == word), None)


def place_of(fault: BaseException, *, below: str = "") -> str:
    """`module.function:line` of the innermost frame of ours, else of the innermost one at all: what a log may say of an
    exception whose text may hold anything. `below` is the module of a fence, which is no place of a fault."""
    place, ours, traceback = "?", False, fault.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "?")
        own = module.startswith("oauthbroker.") and module != below
        if own or not ours:
            place = f"{module}.{traceback.tb_frame.f_code.co_qualname}:{traceback.tb_lineno}"
        ours = ours or own
        traceback = traceback.tb_next
    return place

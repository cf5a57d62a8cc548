"""Turn crashes while validating a provider's answer into refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.protocol.messages import ProviderResponse

P = ParamSpec("P")
T = TypeVar("T")


def crashed(error: Exception, code: Code = Code.TOKEN_RESPONSE_INVALID) -> BrokerError:
    """Return the refusal that replaces a crash of a validator. Raise it outside the `except` block.

    Its note has the exception's type only: the exception's text may hold parts of the answer.
    """
    return BrokerError(code, note=f"the answer could not be checked ({type(error).__name__})")


def validator(code: Code) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a function that validates an answer: any exception but a `BrokerError` becomes a refusal with `code`. The
    note of a refused redirect says where it leads.

    Answers are untrusted data. A crash would leave the waiting session claimed and lose a refresh token of the answer.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def validated(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except BrokerError as error:
                refused = error
            except Exception as error:  # noqa: BLE001 - the answer is to blame for any
                refused = crashed(error, code)
            _note_redirect(refused, (*args, *kwargs.values()))
            raise refused

        return validated

    return decorate


def _note_redirect(refused: BrokerError, arguments: tuple[object, ...]) -> None:
    for answer in arguments:
        if isinstance(answer, ProviderResponse) and answer.redirect and answer.redirect not in refused.note:
            refused.note = "; ".join(filter(None, (refused.note, answer.redirect)))

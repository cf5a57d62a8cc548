"""What ends at the border to another package's code, and what passes it."""

from __future__ import annotations

import asyncio

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import ForeignFault, MisuseError, foreign_code


class Odd(BaseException):
    """Raised by a package that knows no better."""


@pytest.mark.parametrize("error", [ValueError, SystemExit, Odd, BaseExceptionGroup("x", [Odd()]), MisuseError("no")])
def test_an_exception_of_any_kind_is_told_by_its_type_and_line(error: BaseException) -> None:
    with pytest.raises(ForeignFault, match=r"^the plug-in garden: "), foreign_code("the plug-in garden"):
        raise error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, BrokerError(Code.STORE_LOCKED), LookupError]
)
def test_an_exception_from_outside_and_one_of_ours_pass(error: type[BaseException]) -> None:
    with pytest.raises(error if isinstance(error, type) else BrokerError), foreign_code("it", LookupError):
        raise error

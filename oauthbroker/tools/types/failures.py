"""Errors of tool calls: their codes, and the error that each exception of a handler becomes (specification 002,
section 10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, BrokerError, Failed, RequestRefusedError
from oauthbroker.plugins import type_name
from oauthbroker.tools.types.foreign_values import cause_of, text_of
from oauthbroker.tools.types.results import NAME, SUGGESTION, ToolError, truncated

_SUGGESTIONS: Final[dict[str, dict[str, str]]] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in (Path(__file__).parents[1] / "words").glob("*.json")
}


class ToolCode(StrEnum):
    """The codes of errors. The first two are the specification's."""

    TOOL = "E_TOOL"
    NOT_IN_CATALOG = "E_TOOL_NOT_IN_CATALOG"
    ARGUMENTS = "E_TOOL_ARGUMENTS"
    OUTPUT = "E_TOOL_OUTPUT"
    INTERRUPTED = "E_TOOL_INTERRUPTED"
    TOO_MANY = "E_TOOL_TOO_MANY_CALLS"
    TIMEOUT = "E_TOOL_TIMEOUT"
    CHANGESET = "E_CHANGESET"
    AUTHORIZATION = "E_AUTHORIZATION_REQUIRED"


class ToolFailure(Exception):
    """A handler raises it to say how its call failed. Every other exception is reported by its type and text."""

    def __init__(
        self,
        message: str,
        *,
        name: str = "Error",
        code: str = ToolCode.TOOL,
        suggestion: str | None = None,
        help_url: str | None = None,
    ) -> None:
        super().__init__(message)
        self.error = ToolError(message=message, name=name, code=code, suggestion=suggestion, help_url=help_url)

    @classmethod
    def of(cls, error: ToolError) -> Self:
        """Return the failure that has this error, its code included."""
        failure = cls(error.message)
        failure.error = error
        return failure


_USUAL: Final = {
    ToolCode.NOT_IN_CATALOG: ("ToolNotInCatalogError", "Tool '{}' is not available in the current Tool Catalog."),
    ToolCode.ARGUMENTS: ("ToolArgumentsError", "The arguments do not fit the parameters of '{}': {}"),
    ToolCode.OUTPUT: ("OutputError", "The output is refused: {}."),
    ToolCode.INTERRUPTED: ("ToolInterruptedError", "The process ended during this call. It may have taken effect."),
    ToolCode.TOO_MANY: (
        "ToolTooManyCallsError",
        "An answer may ask for {} calls. This one came after them and was not performed.",
    ),
    ToolCode.TIMEOUT: ("ToolTimeout", "The tool gave no result in {:g} seconds. It may have taken effect."),
}


def usual_error(code: ToolCode, *facts: object) -> ToolError:
    """Return the error that the runtime itself has for a call, such as 002 section 9.2 prints it. `facts` are the parts
    of its message: a name that a model made up as `shown_name` returns it."""
    name, message = _USUAL[code]
    return ToolError(message=message.format(*facts), name=name, code=code)


def error_of(error: BaseException) -> ToolError:
    """Return the error that tells an exception; its type, if its own code fails. Raises nothing."""
    try:
        return _texts_of(_named(cause_of(error)))
    except BaseException:  # noqa: BLE001  (code of the tool)
        return ToolError(message=type_name(error), name=type_name(error))


def _named(error: BaseException) -> ToolError:
    match error:
        case ToolFailure():
            return error_from(error.error)
        case AuthorizationRequiredError():
            return consent(error.result)
        case RequestRefusedError():
            return refused(error.result)
        case BrokerError():
            return ToolError(message=error.message(), name=error.code.value)
    return ToolError(message=text_of(error), name=type_name(error))


def error_from(given: Any) -> ToolError:
    """Return the error that code of a tool or an extension has given: a ToolError or its JSON, an exception, a text."""
    if isinstance(given, BaseException):
        return error_of(given)
    if isinstance(given, dict):
        known = {"message", "name", "code", "suggestion", "helpUrl"} & given.keys()
        given = ToolError.from_json({"message": None} | {member: given[member] for member in known})
    return _texts_of(given if isinstance(given, ToolError) else ToolError(message=text_of(given)))


def _texts_of(error: ToolError) -> ToolError:
    given = {field.name: getattr(error, field.name) for field in fields(ToolError)}
    texts = {name: text for name, value in given.items() if value is not None and (text := text_of(value))}
    return ToolError(**{"message": "The tool failed."} | texts)


def is_cancellation(error: BaseException) -> bool:
    """Return whether an exception cancels the present task, and is no failure of the code that raised it."""
    task = asyncio.current_task()
    return issubclass(type(error), asyncio.CancelledError) and task is not None and task.cancelling() > 0


def consent(asked: AuthorizationRequired) -> ToolError:
    """Return the error of a call that waits for the user. Its suggestion has the link, so that no limit cuts it."""
    link = AuthorizationRequiredError(asked).for_model.removeprefix(asked.message).strip() or None
    code = ToolCode.AUTHORIZATION
    return ToolError(message=asked.message, name="AuthorizationRequired", code=code, suggestion=link)


def refused(failed: Failed) -> ToolError:
    """Return the error of a call that got no token."""
    return ToolError(message=failed.message, name=failed.code.value)


def visible_error(error: ToolError, limit: int, locale: str, scrub: Callable[[str], str]) -> ToolError:
    """Return the error as the model gets it: without tokens, its message within the tool's limit and its other texts
    within ours, with a suggestion in a language; English where there is none. A code that is not ours has that of
    `E_TOOL`."""
    words = _SUGGESTIONS.get(locale, _SUGGESTIONS["en"])
    usual = words.get(error.code, words[ToolCode.TOOL])
    suggestion = error.suggestion or usual
    if error.code == ToolCode.AUTHORIZATION and error.suggestion:
        suggestion = f"{usual} {error.suggestion}"

    def cut(text: str, most: int) -> str:
        return truncated(scrub(text), most)

    return ToolError(
        message=cut(error.message, limit),
        name=cut(error.name, NAME),
        code=cut(error.code, NAME),
        suggestion=cut(suggestion, SUGGESTION),
        help_url=error.help_url and cut(error.help_url, SUGGESTION),
    )

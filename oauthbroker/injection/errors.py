"""The exceptions of a client that carries tokens, and what a tool may tell a model about them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from oauthbroker.model.token_results import AuthorizationRequired, Failed

Tool = TypeVar("Tool", bound=Callable[..., Any])


class InjectionError(Exception):
    """A request was not sent, or its answer does not count. `result` is what a token call would have returned."""

    def __init__(self, result: AuthorizationRequired | Failed) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return repr(self)

    @property
    def for_model(self) -> str:
        """Return a text for the model that called the tool: words for the user, or the failure."""
        return self.result.message


class AuthorizationRequiredError(InjectionError):
    """The user has to consent first: return the link. The runtime shows it, ends the turn, and waits for the event."""

    result: AuthorizationRequired

    def __repr__(self) -> str:
        return f"AuthorizationRequiredError({self.result!r})"  # without the link

    @property
    def for_model(self) -> str:
        """Return the message with the link and, for a device code, the code to type."""
        asked, device = self.result, self.result.device_code
        code = "" if device is None else f" {device.verification_uri} {device.user_code}"
        return f"{asked.message} {asked.authorization_url}{code}"


class RequestRefusedError(InjectionError):
    """No token, or no such request: `result.code` says why, `result.retryable` whether to send it again."""

    result: Failed

    def __repr__(self) -> str:
        return f"RequestRefusedError({self.result.code.value})"

    def __str__(self) -> str:
        return f"{self.result.code.value}: {self.result.message}"


def raised(result: AuthorizationRequired | Failed) -> InjectionError:
    """Return the exception that carries a result."""
    return (
        AuthorizationRequiredError(result) if isinstance(result, AuthorizationRequired) else RequestRefusedError(result)
    )


def errors_for_model(tool: Tool) -> Tool:
    """Wrap a tool, async or not, so that it returns `for_model` of an `InjectionError` that it raises."""
    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def waiting(*args: Any, **kwargs: Any) -> Any:
            try:
                return await tool(*args, **kwargs)
            except InjectionError as error:
                return error.for_model

        return cast("Tool", waiting)

    @functools.wraps(tool)
    def calling(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except InjectionError as error:
            return error.for_model

    return cast("Tool", calling)

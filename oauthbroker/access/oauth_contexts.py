"""Make `ctx.oauth` for the turns of a runtime and for the holders of turn tokens."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Code
from oauthbroker.core.spelling import nearest_tool
from oauthbroker.injection.injector import Injector
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.turn import TurnLike, given_turn, locale_of
from oauthbroker.model.turn_token import is_tool
from oauthbroker.observability.metrics import Metric
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthContexts:
    """The contexts of one broker. They belong to the event loop that made this object."""

    manager: OAuthManager
    config: CurrentConfig
    injector: Injector
    loop: AbstractEventLoop = field(default_factory=get_running_loop)

    def of_turn(self, turn: TurnLike, tool: str | None, *, private_links: bool) -> OAuthContext:
        """Return the context of a turn, limited to the apps and scopes that the configuration declares for `tool`."""
        declared, near, tools = None, None, self.config.bundle.tools
        if tool is not None:
            declared = tools.get(tool, ()) if isinstance(tool, str) else ()
            named = isinstance(tool, str) and (is_tool(tool) or is_tool(f"Tool/{tool}"))
            near = nearest_tool(tool, tools) if named and tool not in tools else None
        return self._of(Caller(given_turn(turn), tool, declared, private_links=private_links, nearest=near))

    def of_turn_token(self, token_holder: TurnTokenHolder) -> OAuthContext:
        """Return the context of a turn token's holder, as `Turns.admit` returned it."""
        return self._of(token_holder)

    def count_refused(self, code: Code) -> None:
        """Count a token call that was refused before it had a context."""
        self.manager.metrics.add(Metric.TOKEN_ERRORS, code.value)

    def _of(self, caller: Caller) -> OAuthContext:
        locale = locale_of(caller.turn, self.config.bundle.settings.locale)
        return OAuthContext(manager=self.manager, caller=caller, locale=locale, loop=self.loop, injector=self.injector)

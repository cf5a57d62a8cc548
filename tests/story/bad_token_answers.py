"""What a token endpoint can do wrong, as orders to the scripted provider: at the exchange, or at a refresh."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from oauthbroker.testing import IdentityProvider

Spoil = Callable[[IdentityProvider, str], object]
GONE = object()


@dataclass(frozen=True)
class Spoiling:
    """Each order takes the provider and a canary, text of the provider's own that must never be shown."""

    of: Literal["token", "refresh"]

    def script(self, idp: IdentityProvider) -> Any:
        return getattr(idp.script, self.of)

    def answers(self, status: int, body: Any, headers: dict[str, str] | None = None) -> Spoil:
        """The provider answers this and does nothing; `CANARY` in the body becomes the canary."""

        def spoil(idp: IdentityProvider, canary: str) -> None:
            text = body if isinstance(body, bytes | str) else json.dumps(body)
            known = text.encode() if isinstance(text, str) else text
            self.script(idp).answer(status, known.replace(b"CANARY", canary.encode()), headers)

        return spoil

    def with_members(self, **members: Any) -> Spoil:
        """The honest answer, the refresh token rotated, with these members changed; GONE takes one out."""

        def change(found: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in {**found, **members}.items() if value is not GONE}

        return lambda idp, canary: self.script(idp).alter(change)

    def forges(self, **change: Any) -> Spoil:
        return lambda idp, canary: self.script(idp).alter_id_token(**change)

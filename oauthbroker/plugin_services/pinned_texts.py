"""Pin texts of strangers when they are first seen. A text that differs later waits for an operator's approval."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.plugin_services.plugin_state import PluginState

MOST_PINNED: Final = 1_000  # of one group
_DIGESTS: Final = "pins/"
_TEXTS: Final = "pin/"


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A text that differs from the pinned one. `place` is `group/name`."""

    place: str
    pinned: str
    now: str


class PinnedTexts:
    """The pins of one plug-in, in its durable values. A group has no `/`."""

    def __init__(self, state: PluginState) -> None:
        self._state = state

    async def compare(self, group: str, texts: Mapping[str, str]) -> dict[str, bool]:
        """Return which texts are as they were pinned. Pin new names, and keep the new text of a changed one. Raises
        ValueError for a group that `approve` could not tell from a name."""
        if "/" in group:
            raise ValueError("a group of pinned texts has no `/`")
        known: Mapping[str, str] = await self._state.get(_DIGESTS + group) or {}
        new = {name: texts[name] for name in texts if name not in known}
        new = dict(list(new.items())[: max(0, MOST_PINNED - len(known))])
        for name, text in new.items():
            await self._write(f"{group}/{name}", text, None)
        if new:
            known = await self._note(group, new, again=False)
        same = {name: known.get(name) == _digest(text) for name, text in texts.items()}
        for name in [name for name in same if name in known and not same[name]]:
            await self._keep(f"{group}/{name}", texts[name])
        return same

    async def has(self, group: str, name: str) -> bool:
        """Return whether a text of this name was pinned."""
        return name in (await self._state.get(_DIGESTS + group) or {})

    async def waiting(self) -> AsyncIterator[ChangedText]:
        """Yield the texts that wait for approval, in no order."""
        async for key, value in self._state.all():
            if key.startswith(_TEXTS) and value["now"] is not None:
                yield ChangedText(key.removeprefix(_TEXTS), value["pinned"], value["now"])

    async def approve(self, text: ChangedText) -> bool:
        """Pin a new text. False if it differs from the one that was shown."""
        found = await self._state.get(_TEXTS + text.place)
        if found is None or found["now"] != text.now:
            return False
        group, _, name = text.place.partition("/")
        await self._note(group, {name: text.now}, again=True)
        await self._write(text.place, text.now, None)
        return True

    async def _note(self, group: str, texts: Mapping[str, str], *, again: bool) -> Mapping[str, str]:
        digests = {name: _digest(text) for name, text in texts.items()}

        def change(before: Any) -> Any:
            return (before or {}) | digests if again else digests | (before or {})

        noted: Mapping[str, str] = await self._state.change(_DIGESTS + group, change)
        return noted

    async def _keep(self, place: str, now: str) -> None:
        found = await self._state.get(_TEXTS + place)
        if found is None or found["now"] != now:
            await self._write(place, "" if found is None else found["pinned"], now)

    async def _write(self, place: str, pinned: str, now: str | None) -> None:
        await self._state.change(_TEXTS + place, lambda _: {"pinned": pinned, "now": now})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

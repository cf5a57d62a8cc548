"""What a scope means to a person: a sentence for well-known scopes, and the spelling of the provider for all others."""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import Locale
from oauthbroker.web.words import SECTIONS

SCOPES_SHOWN = 100  # of one request or grant, on a page
_BRANDS = {"slack": "Slack", "github": "GitHub", "google": "Google", "microsoft": "Microsoft"}


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """One permission as shown: the sentence for people, empty for a scope that we do not know, and the scope itself."""

    label: str
    raw: str


def scope_line(provider: str, scope: str, locale: Locale) -> ScopeLine:
    """Return a permission in the reader's words. An unknown scope has none: a guess could hide its permissions."""
    words = SECTIONS[locale]
    return ScopeLine(words.get(f"scopes.{provider}", {}).get(scope) or words["scopes"].get(scope, ""), scope)


def shown_scopes(provider: str, scopes: Sequence[str], locale: Locale) -> tuple[list[ScopeLine], int]:
    """Return the first permissions of a request or grant, and how many more there are."""
    lines = [scope_line(provider, scope, locale) for scope in scopes[:SCOPES_SHOWN]]
    return lines, len(scopes) - len(lines)


def brand_of(provider: str) -> str:
    """Return the brand of a well-known provider; empty for any other."""
    return _BRANDS.get(provider, "")


def provider_title(provider: str, host: str) -> str:
    """Return a provider's usual name; where only a protocol's name or a local one is known, the host says it best."""
    return _BRANDS.get(provider, host)

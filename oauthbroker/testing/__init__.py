"""For tests of everything that uses oauthbroker, our own included: a provider, a browser, a clock, a leak sweep.

Documented in docs/testing.md. pytest users say `pytest_plugins = ["oauthbroker.testing.pytest_plugin"]`.
"""

from __future__ import annotations

from oauthbroker.testing.browser import Browser, Page, connect_through
from oauthbroker.testing.canary import Canaries, Find, SecretLeakedError
from oauthbroker.testing.clock import TestClock
from oauthbroker.testing.provider import Account, Client, IdentityProvider

__all__ = [
    "Account",
    "Browser",
    "Canaries",
    "Client",
    "Find",
    "IdentityProvider",
    "Page",
    "SecretLeakedError",
    "TestClock",
    "connect_through",
]

"""Test tools for code that uses oauthbroker: a provider, a browser, a clock, a leak sweep.

Documented in docs/testing.md. Load in pytest with `pytest_plugins = ["oauthbroker.testing.pytest_plugin"]`.
"""

from __future__ import annotations

from oauthbroker.testing.authority import Authority, Certificate
from oauthbroker.testing.browser import Browser, Page
from oauthbroker.testing.canary import Canaries, Find, off_the_record
from oauthbroker.testing.clock import TestClock
from oauthbroker.testing.provider import FOREVER, Account, Client, IdentityProvider, SeenRequest
from oauthbroker.testing.stores import open_file_store
from oauthbroker.testing.story import connect_through, leave
from oauthbroker.testing.sweep import CanarySweep, SecretLeakedError
from oauthbroker.testing.webhooks import ReceivedWebhook, WebhookReceiver

__all__ = [
    "FOREVER", "Account", "Authority", "Browser", "Canaries", "CanarySweep", "Certificate", "Client", "Find",
    "IdentityProvider", "Page", "ReceivedWebhook", "SecretLeakedError", "SeenRequest", "TestClock", "WebhookReceiver",
    "connect_through", "leave", "off_the_record", "open_file_store",
]  # fmt: skip

"""The addresses of the connect pages that a person is sent to."""

from __future__ import annotations

from oauthbroker.core.secret import Secret


def connect_link(base_url: str, ticket: Secret | None) -> str:
    """Return `<publicBaseUrl>/connect/<ticket>`. It holds no state, client id or code challenge."""
    return f"{base_url.rstrip('/')}/connect/{ticket.reveal() if ticket is not None else ''}"


def private_page(base_url: str) -> str:
    """Return the address of the page that says that the link was delivered elsewhere. It opens nothing."""
    return f"{base_url.rstrip('/')}/connect"

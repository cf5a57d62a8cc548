"""The provider's pages: sign-in, consent and errors. Rendered on the server, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from oauthbroker.testing.provider.http import Answer
from oauthbroker.testing.provider.types import Account, Client

NO_CHOICE = "openid"  # providers show it as the sign-in, without a box
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5b6579; --paper: #fff; --ground: #eef1f6; --line: #d5dbe6;
  --accent: #2f5bea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf4; --soft: #9aa6bc; --paper: #1b2130; --ground: #10141d;
  --line: #313a4e; --accent: #7c9bff; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 26rem; background: var(--paper); border: 1px solid var(--line); border-radius: 14px;
  padding: 1.75rem; }
header { font-size: .85rem; color: var(--soft); margin-bottom: 1rem; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .4rem; }
p { margin: .4rem 0 1rem; color: var(--soft); }
form { display: grid; gap: .6rem; }
button { font: inherit; padding: .7rem 1rem; border-radius: 9px; border: 1px solid var(--line); background: transparent;
  color: inherit; cursor: pointer; text-align: left; }
button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
button small { display: block; color: var(--soft); }
.yes { background: var(--accent); border-color: var(--accent); color: var(--paper); text-align: center;
  font-weight: 600; }
.no { text-align: center; }
input:not([type]) { font: inherit; letter-spacing: .15em; padding: .7rem 1rem; border-radius: 9px;
  border: 1px solid var(--line); background: transparent; color: inherit; text-transform: uppercase; }
fieldset { border: 1px solid var(--line); border-radius: 9px; margin: 0; padding: .6rem .9rem; }
legend { color: var(--soft); font-size: .85rem; padding: 0 .3rem; }
label { display: flex; gap: .6rem; align-items: baseline; padding: .2rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); }
"""


def login_page(client: Client, ticket: str, accounts: Sequence[Account]) -> Answer:
    """Ask for an account, without a password."""
    buttons = "".join(
        f'<button name="login" value="{escape(one.login)}">{escape(one.display)}'
        f"<small>{escape(one.email or one.login)}</small></button>"
        for one in accounts
    )
    return _page(
        "Sign in",
        f"<h1>Sign in</h1><p>to continue to <strong>{escape(client.display)}</strong></p>"
        f'<form method="post" action="/login">{_ticket(ticket)}{buttons}</form>',
    )


def consent_page(client: Client, ticket: str, account: Account, scopes: Sequence[str]) -> Answer:
    """Ask for consent; every scope can be unticked but `openid`, which is the sign-in itself."""
    boxes = "".join(
        f"<label>{escape(scope)}</label>"
        if scope == NO_CHOICE
        else f'<label><input type="checkbox" name="scope" value="{escape(scope)}" checked>{escape(scope)}</label>'
        for scope in scopes
    )
    asked = f"<fieldset><legend>It asks for</legend>{boxes}</fieldset>" if boxes else ""
    return _page(
        "Allow access",
        f"<h1>{escape(client.display)} wants access to your account</h1>"
        f"<p>You are signed in as <strong>{escape(account.display)}</strong> ({escape(account.login)}). "
        f'<a href="/login?ticket={escape(ticket)}">Use another account</a></p>'
        f'<form method="post" action="/consent">{_ticket(ticket)}{asked}'
        '<button class="yes" name="decision" value="allow">Allow</button>'
        '<button class="no" name="decision" value="deny">Cancel</button></form>',
    )


def device_page(user_code: str, *, wrong: bool = False) -> Answer:
    """Ask for the device's code (RFC 8628 section 3.3)."""
    note = "That code is unknown or over." if wrong else "Type the code that your device shows."
    return _page(
        "Connect a device",
        f'<h1>Connect a device</h1><p>{note}</p><form method="post" action="/device">'
        f'<input name="user_code" value="{escape(user_code)}" autocomplete="off" spellcheck="false" autofocus>'
        '<button class="yes">Continue</button></form>',
        status=400 if wrong else 200,
    )


def device_done_page(*, allowed: bool) -> Answer:
    """Confirm the user's decision; the device gets it with its next poll."""
    title = "Your device is connected" if allowed else "Nothing was connected"
    return _page(title, f"<h1>{title}</h1><p>You can close this page and go back to your device.</p>")


def error_page(why: str) -> Answer:
    """Show an error in the request itself, without a redirect."""
    return _page("Cannot continue", f"<h1>Cannot continue</h1><p>{escape(why)}</p>", status=400)


def _ticket(ticket: str) -> str:
    return f'<input type="hidden" name="ticket" value="{escape(ticket)}">'


def _page(title: str, body: str, status: int = 200) -> Answer:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><header>Example ID, a provider for tests</header>{body}</main></body></html>"
    )
    headers = (
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        (
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
        ),
    )
    return Answer(status, headers, html.encode())

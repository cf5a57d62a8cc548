"""Made turn-token-v1.json, once. It is frozen: when this script's output differs, the code is wrong.

`python -m tests.vectors.make_turn_tokens` prints it; tests of the Python and of the TypeScript client read it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.model.turn_token import MAX_CAVEATS, TurnToken, narrow

Json = dict[str, Any]
ROOT = hashlib.shake_256(b"oauthbroker vector turn token").digest(32)
LOCATOR = "dHVybi10b2tlbi12ZWN0bw"
FIRST = TurnToken.first(LOCATOR, ROOT).to_text()

NARROWINGS: list[tuple[str, Json]] = [
    ("nothing to narrow", {}),
    ("only for a tool", {"tool": "Tool/slack"}),
    ("a tool's export, with a name that is not ASCII", {"tool": "Tool/메일:보내기"}),
    ("one app with scopes, another with all", {"apps": {"slack-bot": ["chat:write", "channels:read"], "github": None}}),
    ("no app at all", {"apps": {}}),
    ("an app with no scope", {"apps": {"slack-bot": []}}),
    ("characters that JSON escapes", {"apps": {'a"b\\c\n\u2028': ["\u007f/"]}}),
    ("until a moment, of which whole seconds count", {"expiresAt": "2026-02-01T10:00:00.900000Z"}),
    (
        "all three, in this order",
        {"tool": "Tool/mail", "apps": {"mail": ["read"]}, "expiresAt": "2026-02-01T10:00:00Z"},
    ),
]


def narrowed(token: Secret, to: Json) -> Secret:
    until = datetime.fromisoformat(to["expiresAt"]).astimezone(UTC) if "expiresAt" in to else None
    return narrow(token, tool=to.get("tool"), apps=to.get("apps"), expires_at=until)


def document() -> Json:
    twice = narrowed(narrowed(FIRST, {"tool": "Tool/a"}), {"tool": "Tool/b"})
    cases = [
        {"why": why, "token": FIRST.reveal(), "to": to, "expect": narrowed(FIRST, to).reveal()}
        for why, to in NARROWINGS
    ]
    once = narrowed(FIRST, {"tool": "Tool/slack"}).reveal()
    cases.append(
        {
            "why": "narrowed before",
            "token": once,
            "to": {"tool": "Tool/b"},
            "expect": narrowed(Secret(once), {"tool": "Tool/b"}).reveal(),
        }
    )
    full = FIRST
    for _ in range(MAX_CAVEATS):
        full = narrowed(full, {"tool": "T"})
    refused = [
        {"why": "the 17th caveat", "token": full.reveal(), "to": {"tool": "T"}, "code": "requestInvalid"},
        {"why": "too long", "token": twice.reveal(), "to": {"tool": "T" * 4000}, "code": "requestInvalid"},
        {"why": "an API key", "token": FIRST.reveal().replace("oabt", "oabk"), "to": {"tool": "T"}, "code": "unauthenticated"},
        {"why": "cut short", "token": FIRST.reveal()[:-1], "to": {"tool": "T"}, "code": "unauthenticated"},
        {"why": "a signature that no bytes are spelt like", "token": FIRST.reveal()[:-1] + "B", "to": {"tool": "T"}, "code": "unauthenticated"},
        {"why": "an account, which only a call names", "token": FIRST.reveal(), "to": {"apps": {"mail@work": None}}, "code": "requestInvalid"},
        {"why": "nothing", "token": "", "to": {"tool": "T"}, "code": "unauthenticated"},
    ]  # fmt: skip
    root = base64.urlsafe_b64encode(ROOT).decode()
    return {"root": root, "locator": LOCATOR, "first": FIRST.reveal(), "narrowed": cases, "refused": refused}


if __name__ == "__main__":
    print(json.dumps(document(), indent=1, ensure_ascii=False))

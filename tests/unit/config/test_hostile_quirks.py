"""Each quirk with each kind of wrong value: it loads or is refused at its place with what to do, and no value is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.written.resource_specs import QuirksSpec
from tests.unit.config.bundles import APP, BROKER, CANARY, everything_said

QUIRKS: dict[str, Any] = {
    "scopeSeparator": ",", "answerScopeSeparator": " ", "scopeParam": "perms", "paramNames": {"client_id": "client_key"},
    "codeParam": "auth_code", "alwaysScopes": ["offline"], "scopeAliases": {"r": "read"}, "scopePrefixes": ["https://a.example/"],
    "unlistedScopes": ["x"], "extraScopes": "ignore", "pkce": "refused", "scopeless": False, "tokenRequestFormat": "query",
    "tokenHeaders": {"X-A": "1"}, "refreshScope": "send", "tokenResponseFormat": "list", "tokenPath": ["data"],
    "refreshTokenPath": ["data"], "tokenNames": {"access_token": "key"}, "tokenTypeAliases": ["bot"], "tokenTypeOptional": True,
    "lifetimeField": "ttl", "lifetimeForm": "minutes", "defaultLifetimeSeconds": 3600, "refreshTokenEndField": "ends",
    "refreshTokenDays": 7, "errorMembers": ["err"], "okMembers": {"code": 0}, "errorWords": {"bad": "invalid_grant"},
    "idTokenAlgorithms": ["RS256"], "issuerTemplate": "https://login.example/{tid}", "issuerPromised": True,
    "userInfoMethod": "POST", "userInfoBody": {"q": "x"}, "userInfoHeaders": {"X-B": "2"}, "userInfoKind": "own",
    "userInfoTokenScheme": "Bearer", "tokenHeader": "X-Acme-Token", "tokenScheme": "", "apiHeaders": {"X-C": "3"},
    "keeps": ["team"], "toolData": ["team"],
    "secondExchange": {"url": "https://acme.example/x", "method": "GET", "grantType": "long", "tokenParam": "access_token"},
    "refreshWith": {"token": "access", "grantType": "long", "minAgeSeconds": 5},
    "revoke": {
        "kind": "own", "reach": "token", "method": "POST", "authenticate": "client", "body": "form", "tokenField": "tok",
        "params": {"a": "b"}, "headers": {"X-D": "4"}, "tokens": "access", "okField": "ok", "errorField": "e",
        "deadWords": ["dead"], "deadStatuses": [404],
    },
}  # fmt: skip
WRONG: tuple[Any, ...] = (
    None, -1, 10**30, 1.5, "", f"{CANARY}\r\nX-Evil: 1", f"{CANARY}\0", f"{CANARY}ü\u202e", CANARY * 6000,
    "http://169.254.169.254/latest", "{client_secret}", [], [CANARY, [CANARY]], {}, {CANARY: {CANARY: CANARY}},
    {"X-A": f"{CANARY}\r\nX-Evil: 1"}, {"X-A": CANARY, "x-a": CANARY}, {"Authorization": CANARY}, {"client_id": "state"},
)  # fmt: skip


def bundle(quirks: Any, folder: Path) -> Path:
    app = yaml.safe_load(APP)
    app["spec"]["endpoints"] |= {
        "userInfoUrl": "https://acme.example/me", "revokeUrl": "https://acme.example/revoke", "refreshUrl": "https://acme.example/r",
    }  # fmt: skip
    app["spec"]["quirks"] = quirks
    file = folder / "bundle.yaml"
    file.write_text(f"{BROKER}\n---\n{json.dumps(app)}", "utf-8")
    return file


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deeper for step, value in steps for deeper in places(value, (*path, step)))]


def test_every_quirk_is_here_and_all_of_them_load_together(tmp_path: Path):
    assert {info.alias or name for name, info in QuirksSpec.model_fields.items()} == QUIRKS.keys()
    assert load(bundle(QUIRKS, tmp_path)).apps.keys() == {"acme"}


def refusal(quirks: Any, folder: Path) -> ConfigInvalidError | None:
    try:
        load(bundle(quirks, folder))
    except ConfigInvalidError as refused:
        return refused
    return None


@pytest.mark.slow
@pytest.mark.parametrize("quirk", QUIRKS)
def test_a_wrong_value_is_told_at_its_place_and_nothing_of_it(quirk: str, tmp_path: Path):
    for place in places(QUIRKS[quirk], (quirk,)):
        for wrong in WRONG:
            quirks = {quirk: copy.deepcopy(QUIRKS[quirk])}
            inner: Any = quirks
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = copy.deepcopy(wrong)
            refused = refusal(quirks, tmp_path)
            told = refused.problems if refused else []
            assert all(it.path.startswith("spec.quirks") and it.hint for it in told), (place, told)
            assert len({(it.path, it.line, it.column, it.what) for it in told}) == len(told)
            assert refused is None or CANARY not in everything_said(refused), (place, wrong)

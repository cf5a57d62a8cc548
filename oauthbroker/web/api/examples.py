"""Examples of requests and answers, as the document shows them; a test makes each request, and judges each answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Any
SESSION = "as-AAAAAAAAAAAAAAAAAAAAAA"
TURN = "turn-AAAAAAAAAAAAAAAAAAAAAA"
GRANT = "sha256:" + "0" * 64
EVENT = f"evt-{SESSION}-auth.granted"
LEASE = "BBBBBBBBBBBBBBBBBBBBBB"
LINK = "https://broker.example/connect/AAAAAAAAAAAAAAAAAAAAAA"
UNTIL = "2026-02-01T10:10:00Z"
_TURN_TOKEN = f"oabt.{'A' * 22}.{'B' * 43}"
_SUBJECTS = {"global": "slack:team:T111", "user": "slack:user:T111:U234567"}
_APP = {"kind": "OAuthApp", "name": "slack-bot"}
_SLACK = {"oauthAppRef": "OAuthApp/slack-bot", "scopes": ["chat:write"]}
_ACTOR = {"type": "user", "id": "slack:U234567"}

BODIES: Mapping[str, Mapping[str, Json]] = {
    "beginTurn": {
        "runtime": {
            "turn": {
                "agentName": "planner",
                "instanceKey": "1700000000.000100",
                "swarmRef": "Swarm/default",
                "origin": {"connector": "slack-main", "channel": "C123"},
                "auth": {"actor": _ACTOR, "subjects": _SUBJECTS},
            },
            "tools": {"Tool/slack": None, "Tool/digest": [_SLACK]},
            "ttlSeconds": 900,
        }
    },
    "narrowTurn": {"turn": {"apps": [_SLACK], "ttlSeconds": 60}},
    "getAccessToken": {"turn": {"oauthAppRef": _APP, "scopes": ["chat:write"], "minTtlSeconds": 60}},
    "reportRejected": {"turn": {"oauthAppRef": _APP, "accessToken": "what-the-provider-refused"}},
    "ackEvent": {"runtime": {"lease": LEASE}},
    "nackEvent": {"runtime": {"lease": LEASE}},
    "confirmAuthSession": {
        "runtime": {"handle": "what-the-browser-brought", "subject": _SUBJECTS["user"]},
        "wholeTurn": {"channelCode": "what-the-person-said"},
    },
    "linkConnections": {"runtime": {"subjects": _SUBJECTS}},
    "eraseSubject": {"operator": {"subject": _SUBJECTS["user"]}},
}

PARAMETERS: Mapping[str, Mapping[str, Json]] = {
    "endTurn": {"turnId": TURN},
    "nextEvent": {"agent": "planner", "wait": 0},
    "ackEvent": {"agent": "planner", "eventId": EVENT},
    "nackEvent": {"agent": "planner", "eventId": EVENT},
    "getAuthSession": {"id": SESSION},
    "cancelAuthSession": {"id": SESSION},
    "listGrants": {"app": "slack-bot", "state": "live", "limit": 10},
    "getGrantRecord": {"grantId": GRANT},
    "endGrant": {"grantId": GRANT},
    "listAuthSessions": {"app": "slack-bot", "status": "pending", "limit": 10},
    "getAuthSessionRecord": {"id": SESSION},
    "listDeadLetters": {"agent": "planner"},
    "retryDeadLetter": {"agent": "planner", "eventId": EVENT},
    "dropDeadLetter": {"agent": "planner", "eventId": EVENT},
}

_REQUIRED = {
    "authSessionId": SESSION,
    "authorizationUrl": LINK,
    "expiresAt": UNTIL,
    "message": "A connection to Slack is needed. Open the link below and agree. The work then continues by itself.",
}
_RESULTS = {
    "ready": {
        "status": "ready",
        "accessToken": "xoxb-of-the-team",
        "tokenType": "Bearer",
        "scopes": ["chat:write"],
        "expiresAt": UNTIL,
    },
    "authorization_required": {"status": "authorization_required", **_REQUIRED, "reason": "noGrant"},
    "error": {
        "status": "error",
        "error": {
            "code": "appForbidden",
            "message": "This tool has not declared that OAuthApp. Add it to the tool's spec.auth.oauthAppRef.",
            "retryable": False,
        },
    },
}
_EVENT = {
    "eventId": EVENT,
    "type": "auth.granted",
    "swarmRef": {"kind": "Swarm", "name": "default"},
    "instanceKey": "1700000000.000100",
    "agentName": "planner",
    "origin": {"connector": "slack-main", "channel": "C123"},
    "auth": {"actor": _ACTOR, "subjects": _SUBJECTS},
    "payload": {
        "oauthAppRef": _APP,
        "provider": "slack",
        "subject": _SUBJECTS["global"],
        "scopesGranted": ["chat:write"],
        "authSessionId": SESSION,
        "grantId": GRANT,
    },
    "createdAt": "2026-02-01T10:00:00Z",
}
_PENDING = {**_REQUIRED, "oauthAppRef": _APP, "provider": "slack", "subjectMode": "global"}
_GRANT: dict[str, Any] = {
    "grantId": GRANT,
    "app": "slack-bot",
    "provider": "slack",
    "subject": _SUBJECTS["global"],
    "scopes": ["chat:write"],
    "state": "live",
    "needs": None,
    "expiresAt": UNTIL,
    "refreshable": True,
    "createdAt": "2026-02-01T09:00:00Z",
    "updatedAt": "2026-02-01T09:10:00Z",
    "authorizedBy": None,
    "eventsToSend": 0,
    "providerToTell": False,
    "providerData": {},
}
_GRANT_RECORD: dict[str, Any] = {
    "apiVersion": "agents.example.io/v1alpha1",
    "kind": "OAuthGrantRecord",
    "metadata": {"name": GRANT},
    "spec": {
        "provider": "slack",
        "oauthAppRef": _APP,
        "subject": _SUBJECTS["global"],
        "flow": "authorization_code",
        "scopesGranted": ["chat:write"],
        "token": {
            "tokenType": "Bearer", "accessToken": "<secret>", "refreshToken": "<secret>", "expiresAt": UNTIL,
        },
        "createdAt": "2026-02-01T09:00:00Z",
        "updatedAt": "2026-02-01T09:10:00Z",
        "revoked": False,
        "providerData": {"team": "<secret>"},
    },
}  # fmt: skip
_SESSION_RECORD: dict[str, Any] = {
    "apiVersion": "agents.example.io/v1alpha1",
    "kind": "AuthSessionRecord",
    "metadata": {"name": SESSION},
    "spec": {
        "provider": "slack",
        "oauthAppRef": _APP,
        "subjectMode": "global",
        "subject": _SUBJECTS["global"],
        "requestedScopes": ["chat:write"],
        "flow": {
            "type": "authorization_code", "state": "<secret>",
            "pkce": {"method": "S256", "codeVerifier": "<secret>", "codeChallenge": "A" * 43},
        },
        "status": "pending",
        "createdAt": "2026-02-01T10:00:00Z",
        "expiresAt": UNTIL,
        "resume": {
            "swarmRef": {"kind": "Swarm", "name": "default"},
            "instanceKey": "1700000000.000100",
            "agentName": "planner",
            "origin": {"connector": "slack-main", "channel": "C123"},
            "auth": {"actor": _ACTOR, "subjects": _SUBJECTS},
        },
    },
}  # fmt: skip
_QUEUE = {"agentName": "planner", "waiting": 1, "leased": 0, "dead": 1, "oldestAt": "2026-02-01T10:00:00Z"}
_DEAD_LETTER = {
    "eventId": EVENT,
    "type": "auth.granted",
    "agentName": "planner",
    "swarmRef": {"kind": "Swarm", "name": "default"},
    "instanceKey": "1700000000.000100",
    "oauthAppRef": _APP,
    "attempts": 5,
    "createdAt": "2026-02-01T10:00:00Z",
}

ANSWERS: Mapping[str, Mapping[int, Mapping[str, Json]]] = {
    "beginTurn": {
        201: {
            "begun": {
                "turnId": TURN,
                "turnToken": _TURN_TOKEN,
                "toolTokens": {"Tool/slack": f"oabt.{'A' * 22}.eyJ0b29sIjoiVG9vbC9zbGFjayJ9.{'C' * 43}"},
                "expiresAt": UNTIL,
            }
        }
    },
    "narrowTurn": {200: {"narrower": {"turnToken": _TURN_TOKEN, "expiresAt": UNTIL}}},
    "getPending": {200: {"waiting": {"type": "auth.pending", "items": [_PENDING]}}},
    "getLinks": {
        200: {
            "waiting": {
                "links": [
                    {
                        "authSessionId": SESSION,
                        "authorizationUrl": LINK,
                        "subjectMode": "user",
                        "subject": _SUBJECTS["user"],
                        "expiresAt": UNTIL,
                    }
                ]
            }
        }
    },
    "getAccessToken": {200: _RESULTS},
    "reportRejected": {200: _RESULTS},
    "nextEvent": {200: {"leased": {"event": _EVENT, "lease": LEASE, "attempt": 1, "leaseExpiresAt": UNTIL}}},
    "listQueues": {200: {"queues": {"queues": [_QUEUE]}}},
    "listDeadLetters": {200: {"dead letters": {"deadLetters": [_DEAD_LETTER]}}},
    "listAuthSessions": {200: {"a page": {"sessions": [_SESSION_RECORD], "next": SESSION}}},
    "getAuthSessionRecord": {200: {"a record": _SESSION_RECORD}},
    "getAuthSession": {200: {"waiting": {"authSessionId": SESSION, "status": "pending"}}},
    "cancelAuthSession": {200: {"withdrawn": {"cancelled": True}}},
    "confirmAuthSession": {
        200: {
            "connected": {"authSessionId": SESSION, "status": "completed"},
            "another account": {"authSessionId": SESSION, "status": "failed", "code": "subjectMismatch"},
        }
    },
    "linkConnections": {201: {"link": {"url": "https://broker.example/connections/open/AAAA", "expiresAt": UNTIL}}},
    "listGrants": {200: {"a page": {"grants": [_GRANT], "next": GRANT}}},
    "getGrantRecord": {200: {"a record": _GRANT_RECORD}},
    "endGrant": {200: {"ended": {"grantId": GRANT, "provider": "done"}}},
    "eraseSubject": {
        200: {
            "erased": {
                "erased": True,
                "grants": 2,
                "sessions": 1,
                "events": 1,
                "turns": 1,
                "visits": 0,
                "uses": 2,
                "toTell": 0,
                "connecting": 0,
                "namedIn": [],
            }
        }
    },
    "listApps": {
        200: {
            "apps": {
                "apps": [
                    {
                        "name": "slack-bot",
                        "title": "Slack",
                        "provider": "slack",
                        "flow": "authorizationCode",
                        "subjectMode": "global",
                        "scopes": ["chat:write", "channels:read"],
                    }
                ]
            }
        }
    },
}

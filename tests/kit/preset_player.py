"""A provider that plays one play: it refuses what its original would refuse, and answers as its documentation does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email.utils import format_datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.located_app import located
from oauthbroker.model.provider_api import written_host
from oauthbroker.protocol.discovery import relies_on_discovery
from oauthbroker.testing import Canaries, TestClock
from tests.kit.preset_demands import CLIENT_ID, Call, Inspector
from tests.kit.preset_plays import Asked, Demand, Play, Said
from tests.unit.protocol.kit import RawServer, raw_answer

CODE = "code-of-the-play"
OF_THE_API = "/of-the-api"  # what a tool asks for in a play
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_MOMENT = re.compile(r"\{(epoch|epochMs|iso|http|plain)([+-][0-9]+)\}")
_SECRETS = ("access", "refresh", "access2", "refresh2", "access3", "refresh3", "device")  # 3: refreshed once more


@dataclass
class Player:
    """The provider of one play. `complaints` are the demands that a request did not meet; `refusing` makes an
    endpoint answer with a refusal from now on."""

    play: Play
    app: App
    clock: TestClock
    secrets: Mapping[str, str]
    key: Any
    refusing: dict[str, Said] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    refreshes: int = 0
    revoked: list[str] = field(default_factory=list)
    inspector: Inspector = field(init=False)
    server: RawServer = field(init=False)

    def __post_init__(self) -> None:
        secret = self.app.client.client_secret
        own_query = urlsplit(self.app.endpoints.token_url or "").query
        self.inspector = Inspector(secret.reveal() if secret else "", self._filled, self._names, own_query)
        self.server = RawServer(self.handle)

    @property
    def complaints(self) -> list[str]:
        return self.inspector.complaints

    @property
    def _names(self) -> dict[str, str]:
        return dict(self.play.said_quirks.get("paramNames", {}))

    @property
    def _redirect_uri(self) -> str:
        """What requests have to name, by the play and not by the app."""
        return self.play.app.redirect.get("uriName") or self.app.redirect.uri

    # --- what a browser sees

    def authorize(self, url: str) -> str:
        """A person agrees at `url`. Returns the callback's address."""
        found = self.routes.get(urlsplit(url).path)
        self.inspector.must(found == "authorization_url", f"the browser was sent to {urlsplit(url).path}")
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        self.asked = dict(pairs)
        self.inspector.must(len(pairs) == len(self.asked), "a parameter came twice")
        self.inspector.meets(self.play.expects.authorize, self.asked, "authorize")
        standard = {"response_type": "code", "client_id": CLIENT_ID, "redirect_uri": self._redirect_uri,
                    "code_challenge_method": "S256"}  # fmt: skip
        standard = {self._names.get(name, name): value for name, value in standard.items()}
        self.inspector.meets(standard, self.asked, "authorize")
        back = {self.play.said_quirks.get("codeParam", "code"): CODE, "state": self.asked["state"]}
        if self.app.habits.issuer_promised:
            back["iss"] = self.app.endpoints.issuer
        back |= self.play.answers.callback
        if self.app.facts.hmac:
            text = "&".join(f"{name}={back[name]}" for name in sorted(back))
            secret = self.app.client.client_secret
            assert secret is not None
            back["hmac"] = hmac.new(secret.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()
        return f"{self.app.redirect.uri}?{urlencode(back)}"

    # --- what the broker asks

    async def handle(self, _: StreamReader, writer: StreamWriter) -> None:
        call = Call.parsed(self.server.requests[-1])
        kind = self.routes.get(call.path, "")
        if kind == "revoke_url" and call.method == "POST" and call.path == urlsplit(self.learned().token_url).path:
            kind = "token_url"  # a token is revoked by a DELETE of the same address
        said = self._answer(kind, call)
        body = said.body if isinstance(said.body, str) else json.dumps(said.body)
        date = format_datetime(self.clock.now(), usegmt=True)
        writer.write(raw_answer(said.status, self._filled(body), content_type=said.type, date=date))
        await writer.drain()

    def _answer(self, kind: str, call: Call) -> Said:
        match kind:
            case "token_url" | "exchange" if call.method == "GET" and self.app.habits.second_exchange is not None:
                return self._exchange(call)
            case "refresh_url" if call.method == "GET" and self.app.habits.refresh_with is not None:
                return self._renew(call)
            case "token_url" | "refresh_url":
                return self._token(kind, call)
            case "device_authorization_url":
                return self._device(call)
            case "user_info_url":
                return self._userinfo(call)
            case "facts":
                return self._facts(call)
            case "jwks_url":
                return Said(body=KeySet([self.key]).as_dict(private=False))
            case "revoke_url":
                return self._revoke(call)
            case "metadata":
                return Said(body=self.metadata())
        if call.path.endswith(OF_THE_API):
            return self._api(call)
        self.inspector.must(False, f"{call.method} {call.path} is no endpoint")
        return Said(status=404, body={})

    def _token(self, kind: str, call: Call) -> Said:
        again = call.members.get("grant_type") == "refresh_token"
        step = "refresh" if again else "token"
        self.calls.append(step)
        demand = self.play.expects.refresh if again else self.play.expects.token
        if demand is None or (kind == "refresh_url") != (again and bool(self.app.endpoints.refresh_url)):
            self.inspector.must(False, f"{step} at {call.path} was not expected")
            return Said(status=400, body={"error": "unsupported_grant_type"})
        wanted: dict[str, str | None]
        if again:
            wanted = {"refresh_token": self.secrets["refresh" if self.refreshes == 0 else self._current_refresh]}
        elif self.play.app.flow == "clientCredentials":
            wanted = {"grant_type": "client_credentials"}
        elif self.play.app.flow == "deviceCode":
            wanted = {"grant_type": DEVICE_GRANT, "device_code": self.secrets["device"]}
        else:
            wanted = {"grant_type": "authorization_code", "code": CODE, "redirect_uri": self._redirect_uri}
        fine = self.inspector.approves(demand, wanted, call, step)
        if not again and self.play.app.flow == "authorizationCode":
            digest = hashlib.sha256(call.members.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            self.inspector.must(challenge == self.asked.get("code_challenge"), f"{step}: the verifier does not fit")
        if not fine:
            return Said(status=400, body={"error": "invalid_request"})
        if self.play.app.flow == "deviceCode" and self.play.answers.pending and self.calls.count("token") == 1:
            return self.play.answers.pending
        if step in self.refusing:
            return self.refusing[step]
        if not again:
            return self.play.answers.token
        assert self.play.answers.refresh is not None, "the play has no answer to a refresh"
        self.refreshes += 1
        return self.play.answers.refresh

    def _exchange(self, call: Call) -> Said:
        self.calls.append("exchange")
        secret = self.inspector.client_secret
        self.inspector.meets({"client_id": CLIENT_ID, "client_secret": secret}, call.members, "exchange")
        self.inspector.meets(self.play.expects.exchange, call.members, "exchange")
        assert self.play.answers.exchange is not None, "the play has no answer to an exchange"
        return self.play.answers.exchange

    def _renew(self, call: Call) -> Said:
        self.calls.append("refresh")
        demand, said = self.play.expects.refresh, self.play.answers.refresh
        assert demand is not None
        assert said is not None
        return said if self.inspector.approves(demand, {}, call, "refresh") else Said(status=400, body={})

    @property
    def _current_refresh(self) -> str:
        after = self.play.result.after_refresh
        return "refresh2" if after and after.refresh_token == "replaced" else "refresh"

    def _device(self, call: Call) -> Said:
        self.calls.append("device")
        demand, said = self.play.expects.device, self.play.answers.device
        if demand is None or said is None:
            self.inspector.must(False, "a device code was not expected")
            return Said(status=400, body={"error": "unauthorized_client"})
        approved = self.inspector.approves(demand, {}, call, "device")
        return said if approved else Said(status=400, body={"error": "invalid_request"})

    def _userinfo(self, call: Call) -> Said:
        self.calls.append("userInfo")
        demand: Asked = self.play.expects.user_info
        headers = dict(demand.headers)
        if not any("{access}" in (value or "") for value in headers.values()):
            headers["Authorization"] = "Bearer {access}"
        shown = Demand(
            method=demand.method,
            body="none" if demand.body is None else "json",
            headers=headers,
            params=dict(demand.body or {}),
        )
        if not self.inspector.approves(shown, {}, call, "userInfo") or self.play.answers.user_info is None:
            return Said(status=401, body={"error": "invalid_token"})
        return self.refusing.get("userInfo", self.play.answers.user_info)

    def _facts(self, call: Call) -> Said:
        self.calls.append("facts")
        demand = Demand(method="GET", body="none", headers={"Authorization": "Bearer {access}"})
        if not self.inspector.approves(demand, {}, call, "facts") or self.play.answers.facts is None:
            return Said(status=401, body={"error": "invalid_token"})
        return self.play.answers.facts

    def _revoke(self, call: Call) -> Said:
        demand = self.play.expects.revoke
        if demand is None:
            self.inspector.must(False, "a revocation was not expected")
            return Said(status=400, body={})
        self.inspector.approves(demand, {}, call, "revoke")
        carried = [*call.members.values(), call.headers.get("authorization", "")]
        self.revoked += [name for name in _SECRETS if any(self.secrets[name] in text.split() for text in carried)]
        return self.play.answers.revoke

    def _api(self, call: Call) -> Said:
        """A request of a tool, whose token is in one header."""
        self.calls.append(f"{call.method} {call.path}")
        held = ("access", "access2") if self.app.habits.second_exchange else ("access",)  # an exchange may fail
        tokens = {self.secrets[name] for name in held}
        carried = [name for name, text in call.headers.items() if tokens & set(text.split())]
        wanted = (self.app.habits.token_header or "Authorization").lower()
        self.inspector.must(carried == [wanted], f"the API: the token is in the headers {carried}")
        for name, value in self.play.preset.api_headers.items():
            told = call.headers.get(name.lower())
            self.inspector.must(told == value.replace("{client_id}", CLIENT_ID), f"the API: {name} is {told}")
        return Said(body={"of": "the API"})

    # --- its answers

    def _filled(self, text: str) -> bytes:
        """Placeholders replaced; a moment that stands alone in JSON becomes a number."""
        for name in _SECRETS:
            later = name.replace("2", "3") if self.refreshes > 1 else name
            text = text.replace(f"{{{name}}}", self.secrets[later])
        if "{id_token}" in text:
            text = text.replace("{id_token}", self.id_token())
        text = re.sub(r'"' + _MOMENT.pattern.replace("|iso|http|plain", "") + r'"', lambda it: it[0].strip('"'), text)
        return _MOMENT.sub(self._moment, text).encode()

    def _moment(self, found: re.Match[str]) -> str:
        moment = self.clock.now() + timedelta(seconds=int(found[2]))
        if found[1] == "iso":
            return moment.isoformat().replace("+00:00", "Z")
        if found[1] == "http":
            return format_datetime(moment, usegmt=True)
        if found[1] == "plain":
            return moment.strftime("%Y-%m-%d %H:%M:%S")
        return str(int(moment.timestamp() * (1000 if found[1] == "epochMs" else 1)))

    def id_token(self) -> str:
        claims = dict(self.play.answers.id_token or {})
        now = int(self.clock.now().timestamp())
        template = self.app.habits.issuer_template
        issuer = (
            re.sub(r"\{(\w+)\}", lambda it: str(claims[it[1]]), template) if template else self.app.endpoints.issuer
        )
        claims = {"iss": issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 3600} | claims
        if self.refreshes == 0 and "nonce" in self.asked:
            claims["nonce"] = self.asked["nonce"]
        algorithm = self.app.habits.id_token_algorithms[0]
        header = {"alg": algorithm, "kid": self.key.kid, "typ": "JWT"}
        return jwt.encode(header, claims, self.key, algorithms=[algorithm])

    def metadata(self) -> dict[str, Any]:
        ends = self.learned()
        return {
            "issuer": self.app.endpoints.issuer,
            "authorization_endpoint": ends.authorization_url,
            "token_endpoint": ends.token_url,
            "userinfo_endpoint": ends.user_info_url,
            "jwks_uri": ends.jwks_url,
            "revocation_endpoint": ends.revoke_url,
            "device_authorization_endpoint": ends.device_authorization_url,
            "code_challenge_methods_supported": ["S256"],
        }

    def learned(self) -> Endpoints:
        """The endpoints with those that only discovery tells."""
        own, issuer = located(self.app, self.play.answers.callback).endpoints, self.app.endpoints.issuer
        names = {"authorization_url": "authorize", "token_url": "token", "user_info_url": "me", "jwks_url": "jwks",
                 "revoke_url": "revoke", "device_authorization_url": "device"}  # fmt: skip
        return replace(own, **{slot: getattr(own, slot) or f"{issuer}/{name}" for slot, name in names.items()})

    @property
    def routes(self) -> dict[str, str]:
        ends = self.learned()
        slots = [slot for slot in Endpoints.__slots__ if slot != "issuer" and getattr(ends, slot)]
        found = {urlsplit(getattr(ends, slot).replace("{client_id}", CLIENT_ID)).path: slot for slot in slots}
        asked = {urlsplit(each.url).path: "facts" for each in self.app.facts.requests}
        second = self.app.habits.second_exchange
        asked |= {urlsplit(second.url).path: "exchange"} if second is not None else {}
        return (
            asked | found | {urlsplit(ends.issuer).path.rstrip("/") + "/.well-known/openid-configuration": "metadata"}
        )


@asynccontextmanager
async def playing(play: Play, app: App, clock: TestClock, canaries: Canaries) -> AsyncIterator[Player]:
    """The play's provider at work. Its `app` is the one that a broker must be given: its endpoints lead here."""
    secrets = {name: canaries.mint(f"{name} of the play").reveal() for name in _SECRETS}
    if play.answers.token_claims:
        claims = base64.urlsafe_b64encode(json.dumps(play.answers.token_claims).encode()).rstrip(b"=").decode()
        secrets["access"] = f"e30.{claims}.{secrets['access']}"
    player = Player(play, app, clock, secrets, _key(app.habits.id_token_algorithms[0]))
    async with player.server:
        requests = tuple(replace(it, url=_at(player.server.url, it.url)) for it in app.facts.requests)
        facts = replace(app.facts, requests=requests)
        habits, second = app.habits, app.habits.second_exchange
        if second is not None:
            habits = replace(habits, second_exchange=replace(second, url=_at(player.server.url, second.url)))
        here = written_host(player.server.url)
        assert here is not None
        api = replace(app.api, hosts=(here,))
        moved = _moved(app, player.server.url)
        player.app = replace(app, endpoints=moved, facts=facts, habits=habits, api=api)
        yield player


def _moved(app: App, base: str) -> Endpoints:
    """Every address on the player's server. An issuer is only a name, and stays, unless discovery has to ask it."""
    ends = {slot: getattr(app.endpoints, slot) for slot in Endpoints.__slots__}
    stays = set() if relies_on_discovery(app) else {"issuer"}
    return Endpoints(**{slot: url if slot in stays else _at(base, url) for slot, url in ends.items()})


def _at(base: str, url: str) -> str:
    return url.replace("https://", f"{base}/", 1)


@cache
def _key(algorithm: str) -> Any:
    """One for each algorithm: hundreds of plays that made their own spent a third of their time on it."""
    if algorithm == "EdDSA":
        return OKPKey.generate_key("Ed25519", {"kid": "k1"})
    if algorithm.startswith("ES"):
        return ECKey.generate_key({"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm], {"kid": "k1"})
    return RSAKey.generate_key(2048, {"kid": "k1"})

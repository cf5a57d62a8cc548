"""Webhooks: signed requests of other services. A run is stored before the answer, and goes on behind it."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.working import refusal
from oauthbroker.flowtools.serving.data import STANDARD, secrets_of
from oauthbroker.flowtools.serving.http_calls import ToolPath, answer
from oauthbroker.flowtools.serving.service import FlowService, event_key, finding
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.plugins import PluginCall, PluginFinding, PluginRoute, SystemClock, decode_json

PATH: Final = "/v1/flowtools/webhooks/{name}"
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


class Webhooks:
    def __init__(self, service: FlowService, broker: Broker) -> None:
        self._service, self._broker = service, broker
        self.problems: tuple[PluginFinding, ...] = ()

    def routes(self) -> list[PluginRoute]:
        given: dict[str, Any] = {"who": (), "takes_long": True, "authenticate": self.authenticate}
        return [PluginRoute(method="POST", path=PATH, parameters=ToolPath, handler=self.receive, **given)]

    async def look(self) -> None:
        """Find the webhooks without a secret."""
        flows = self._service.taking("webhook")
        self.problems = tuple([self._problem(each) for each in flows if not await self._secrets(each)])

    async def authenticate(self, request: Request) -> str:
        """Verify the signature, and keep the flow and the event's id in the request's state. Raises `notFound` for
        another tool, and `unauthenticated`, also without a secret: a finding says so, and a stranger learns nothing."""
        flow = self._service.serving.get(request.path_params["name"])
        if flow is None or flow.tool.trigger.type != "webhook":
            raise BrokerError(Code.NOT_FOUND)
        secrets = await self._secrets(flow)
        if not secrets:
            raise BrokerError(Code.UNAUTHENTICATED, note=self._problem(flow).text)
        event = verified(
            flow.tool.trigger.signature,
            request.headers,
            await request.body(),
            secrets=secrets,
            now=SystemClock().now().timestamp(),
            seconds=self._service.spec.webhook_seconds,
        )
        request.state.event = flow, event
        return f"webhook-{flow.tool.name}"

    async def receive(self, call: PluginCall) -> Response:
        data = decode_json(await call.request.body(), Code.REQUEST_INVALID)
        flow, event = call.request.state.event  # another version may serve by now, with another secret
        try:
            run = await self._service.accept(flow, data, event_key("webhook", event))
        except FlowFailed as error:
            return answer(refusal(error))
        return JSONResponse({"run": run.id}, 202)

    async def _secrets(self, flow: ReadyFlow) -> list[str]:
        """Return the secrets that the form of the webhook can use."""
        trigger = flow.tool.trigger
        found = await secrets_of(self._broker, str(trigger.webhook_secret))
        return [each for each in found if trigger.signature != "standard" or each.startswith(STANDARD)]

    def _problem(self, flow: ReadyFlow) -> PluginFinding:
        name = flow.tool.trigger.webhook_secret
        kind = "" if flow.tool.trigger.signature != "standard" else f", or does not begin with {STANDARD}"
        text = f"The secret {name} of the webhook {flow.tool.name} is missing{kind}. Its calls are refused."
        return finding("webhookSecretMissing", text, f"Run `oauthbroker flow secret set {name}`.")


def verified(
    form: str, headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: float, seconds: int
) -> str:
    """Return the id of a signed event: that of Standard Webhooks, else the hash of the body, because no other form
    signs an id. Raises `unauthenticated` for a bad signature, and for a time out of the window."""
    event, at, signed, sent = _READ[form](headers, body)
    expected = [_signature(form, each, signed) for each in secrets]
    matches = [hmac.compare_digest(one.encode(), other.encode()) for one in expected for other in sent]
    in_time = at is None or bool(_NUMBER.fullmatch(at) and abs(now - int(at)) <= seconds)
    if not any(matches) or not in_time or not event:
        raise BrokerError(Code.UNAUTHENTICATED, note="the signature of a webhook")
    return event


def _signature(form: str, secret: str, signed: bytes) -> str:
    if form != "standard":
        return hmac.new(secret.encode(), signed, "sha256").hexdigest()
    key = b64decode(secret.removeprefix(STANDARD))
    return b64encode(hmac.digest(key, signed, "sha256")).decode()


_Read = tuple[str, str | None, bytes, list[str]]  # the event's id, its time, the signed bytes, the signatures


def _standard(headers: Mapping[str, str], body: bytes) -> _Read:
    event, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    sent = [each.removeprefix("v1,") for each in headers.get("webhook-signature", "").split() if each.startswith("v1,")]
    return event, at, f"{event}.{at}.".encode() + body, sent


def _github(headers: Mapping[str, str], body: bytes) -> _Read:
    found = headers.get("x-hub-signature-256", "")
    return hashlib.sha256(body).hexdigest(), None, body, [found.removeprefix("sha256=")]


def _stripe(headers: Mapping[str, str], body: bytes) -> _Read:
    pairs = [each.partition("=") for each in headers.get("stripe-signature", "").split(",")]
    at = next((value for name, _, value in pairs if name == "t"), "")
    return hashlib.sha256(body).hexdigest(), at, f"{at}.".encode() + body, [v for name, _, v in pairs if name == "v1"]


_READ: Final = {"standard": _standard, "github": _github, "stripe": _stripe}

"""Device authorization (RFC 8628): the device's two endpoints, and the page for the user code."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from oauthbroker.testing.provider import pages
from oauthbroker.testing.provider.client_auth import authenticate, form_of, resources_of
from oauthbroker.testing.provider.dialects import refusal, split_scopes
from oauthbroker.testing.provider.history import Poll
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import Device, Pending, State
from oauthbroker.testing.provider.token_table import Agreement, Issued, RefusedError
from oauthbroker.testing.provider.types import Account, Client

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628 section 6.1: no vowels, no words; easily typed and told apart
_SLOWER = 5  # section 3.5
_LENIENCE = timedelta(seconds=0.05)  # a timely poll may have travelled faster than the one before


def authorization(state: State, request: Request) -> Answer:
    """`POST /device_authorization` (section 3.1)."""
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
        device = _opened(state, client, split_scopes(form.get("scope", "")), resources_of(request))
    except RefusedError as refused:
        known = state.clients.get(dict(request.form_fields).get("client_id", ""))
        return refusal(known.dialect if known else "oidc", refused, request)
    page = f"{state.base_url}/device"
    document: dict[str, Any] = {
        "device_code": device.code,
        "user_code": device.user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?user_code={device.user_code}",
        "expires_in": client.device_lifetime,
        "interval": device.interval,
    }
    return json_answer(document)


def _opened(state: State, client: Client, scopes: tuple[str, ...], resources: tuple[str, ...]) -> Device:
    if client.scopes and not set(scopes) <= client.scopes:
        raise RefusedError("invalid_scope", "not registered for this scope")
    letters = [secrets.choice(_LETTERS) for _ in range(8)]
    user_code = "".join(letters[:4]) + "-" + "".join(letters[4:])
    code = state.canaries.mint("device code").reveal()
    until = state.clock.now() + timedelta(seconds=client.device_lifetime)
    device = Device(
        client=client,
        code=code,
        user_code=user_code,
        scopes=scopes,
        resources=resources,
        until=until,
        interval=client.device_interval,
    )
    state.devices[user_code] = device
    return device


def redeem(state: State, client: Client, code: str, resources: tuple[str, ...]) -> Issued:
    """Issue tokens for a device code (section 3.4) after the user agreed. Raises RefusedError with the error words
    of section 3.5."""
    device = next((one for one in state.devices.values() if one.code == code), None)
    if device is None or device.client.client_id != client.client_id:
        raise RefusedError("invalid_grant", "unknown device code")
    try:
        account = _decided(state, device)
    except RefusedError as refused:
        device.polls.append(Poll(state.clock.now(), refused.error))
        raise
    device.polls.append(Poll(state.clock.now(), "granted"))
    device.redeemed = True
    agreement = Agreement(
        client_id=client.client_id,
        account=account,
        scopes=device.scopes,
        at=state.clock.now(),
        resources=device.resources,
    )
    return state.token_table.issue(client, agreement, device.scopes, resources=resources)


def _decided(state: State, device: Device) -> Account:
    now = state.clock.now()
    if device.redeemed:
        raise RefusedError("invalid_grant", "the device code was used before")
    if device.until <= now:
        raise RefusedError("expired_token", "the user did not agree in time")
    if device.polls and now - device.polls[-1].at < timedelta(seconds=device.interval) - _LENIENCE:
        device.interval += _SLOWER
        raise RefusedError("slow_down", "faster than the interval")
    if device.decision is None:
        raise RefusedError("authorization_pending", "the user has not decided yet")
    if device.decision is False:
        raise RefusedError("access_denied", "the person said no")
    return device.decision


def verification(state: State, request: Request) -> Answer:
    """`GET /device` asks for the code, `POST /device` takes it and goes on to sign-in and consent (section 3.3)."""
    found = dict(request.query_fields + request.form_fields)
    typed = found.get("user_code", "")
    if request.method != "POST":
        return pages.device_page(typed)
    try:
        device = state.device(typed)
    except KeyError:
        return pages.device_page("", wrong=True)
    if device.story(state.clock.now()).status != "pending":
        return pages.device_page("", wrong=True)
    if state.auto_consent is not None:
        decide(device, state.accounts[state.auto_consent], device.scopes)
        return pages.device_done_page(allowed=True)
    ticket = secrets.token_urlsafe(16)
    state.pending[ticket] = Pending(client=device.client, scopes=device.scopes, login_again=True, device=device)
    return pages.login_page(device.client, ticket, list(state.accounts.values()))


def decide(device: Device, account: Account, scopes: tuple[str, ...] | None) -> None:
    """Record the user's decision; `scopes` None is a denial."""
    device.decision = False if scopes is None else account
    device.scopes = device.scopes if scopes is None else scopes

"""How the client proves itself in the whole story: secrets and keys that are replaced without a pause, assertions that
an endpoint which lies cannot use, and what the token is for (RFC 8707) in every request."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AssertionAudience, AuthMethod, Client, Endpoints
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.canary import off_the_record
from oauthbroker.testing.provider import FOREVER
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, Harness, device_app, endpoints_of, running, user_app

RESOURCES = ("https://api.example/a", "https://api.example/b")
METHODS: list[AuthMethod] = ["client_secret_basic", "client_secret_post"]


def app_with(idp: IdentityProvider, *secrets: Secret, method: AuthMethod = "client_secret_basic", **more: Any) -> App:
    app = user_app(idp, **more)
    idp.change(app.client.client_id, auth_method=method)
    return replace(app, client=Client(app.client.client_id, secrets[0], method, later_secrets=secrets[1:]))


def own(idp: IdentityProvider) -> Secret:
    """The secret that the provider knows the app by."""
    secret = user_app(idp).client.client_secret
    assert secret is not None
    return secret


def minted(canaries: Canaries) -> Secret:
    return canaries.mint("client secret")


def lines(harness: Harness) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    return [line for line in said if "client secret" in line.get("event", "")]


@pytest.mark.parametrize("method", METHODS)
async def test_a_new_secret_is_listed_first_and_used_once_the_provider_has_it(
    identity_provider: IdentityProvider, canaries: Canaries, test_clock: TestClock, method: AuthMethod
) -> None:
    """The order of a rotation without a pause: into the list, to the provider, off the list."""
    new, old = minted(canaries), own(identity_provider)
    async with running(
        identity_provider, [app_with(identity_provider, new, old, method=method)], clock=test_clock
    ) as harness:
        await harness.connected(scopes=["read"])
        assert [("mail", 1, 2)] == [(line["app"], line["refused"], line["works"]) for line in lines(harness)]
        exchanges = identity_provider.count("authorization_code")
        await harness.connected(scopes=["write"])
        assert exchanges + 1 == identity_provider.count("authorization_code"), "what works is remembered"
        identity_provider.change("client-mail", client_secret=new)
        await harness.connected(scopes=["admin"])
        assert [2, 1] == [line["works"] for line in lines(harness)]
        assert 2 == harness.broker.metrics.value(Metric.CLIENT_SECRETS_REFUSED, "mail")
        assert not identity_provider.refusals("authorization_code")[2:]


async def test_a_refresh_token_survives_a_secret_that_is_refused(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The provider revokes a family whose refresh token comes twice: a refusal for the client's sake does not count."""
    first = own(identity_provider)
    second = identity_provider.rotate_secret("client-mail")
    app = app_with(identity_provider, first, second)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        identity_provider.change("client-mail", client_secret=second, more_secrets=())
        test_clock.advance(3600)
        assert isinstance(await harness.ask(), Ready)
        [family] = identity_provider.families("client-mail", "alice")
        assert (True, {1: 1}, 0) == (family.is_alive, dict(family.redeemed), family.reused)


async def test_when_no_secret_is_known_the_code_is_spent_on_none_and_the_operator_is_told(
    identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    async with running(identity_provider, [app_with(identity_provider, minted(canaries), minted(canaries))]) as harness:
        page = await harness.connect(await harness.ask_link())
        assert_error_page(page, Code.APP_MISCONFIGURED)
        assert 2 == identity_provider.count("authorization_code")
        assert await harness.grant() is None
        assert [] == lines(harness)


@pytest.mark.parametrize("error", ["invalid_grant", "unauthorized_client", "invalid_request"])
async def test_a_code_is_never_sent_twice_for_another_reason(
    identity_provider: IdentityProvider, canaries: Canaries, error: str
) -> None:
    async with running(
        identity_provider, [app_with(identity_provider, own(identity_provider), minted(canaries))]
    ) as harness:
        identity_provider.script.token.refuse(error, times=FOREVER)
        await harness.connect(await harness.ask_link())
        assert 1 == identity_provider.count("authorization_code")


async def test_a_revocation_is_told_with_the_next_secret(
    identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    new, old = minted(canaries), own(identity_provider)
    app = app_with(identity_provider, old, new)
    async with running(identity_provider, [app]) as harness:
        ready = await harness.connected()
        identity_provider.change("client-mail", client_secret=new)
        await harness.broker.revoke("mail", subject=ALICE)
        assert not identity_provider.is_alive(ready.access_token)


# keys


def key(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid}, private=True)


def signing(
    idp: IdentityProvider, canaries: Canaries, known: list[ECKey], used: list[ECKey], app: App | None = None
) -> App:
    app = user_app(idp) if app is None else app
    public: tuple[Mapping[str, Any], ...] = tuple(each.as_dict(private=False) for each in known)
    idp.change(app.client.client_id, auth_method="private_key_jwt", public_keys=public)
    texts = [json.dumps(each.as_dict(private=True)) for each in used]
    for text in texts:
        canaries.add(json.loads(text)["d"], "private key")
    first, *later = [Secret(text) for text in texts]
    return replace(app, client=Client(app.client.client_id, first, "private_key_jwt", later_secrets=tuple(later)))


async def test_keys_are_replaced_like_secrets(identity_provider: IdentityProvider, canaries: Canaries) -> None:
    old, new = key("old"), key("new")
    app = signing(identity_provider, canaries, [old], [new, old])
    async with running(identity_provider, [app]) as harness:
        await harness.connected(scopes=["read"])
        assert [2] == [line["works"] for line in lines(harness)]
        public = new.as_dict(private=False)
        identity_provider.change("client-mail", public_keys=(public,))
        await harness.connected(scopes=["write"])
        assert [2, 1] == [line["works"] for line in lines(harness)]


async def test_an_assertion_names_the_issuer_alone_and_never_twice(
    identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    """RFC 7523 section 3 as its successor has it: one text, no list, also where the endpoint lies elsewhere."""
    pair = key("k")
    async with running(identity_provider, [signing(identity_provider, canaries, [pair], [pair])]) as harness:
        ready = await harness.connected()
        await harness.broker.revoke("mail", subject=ALICE)
        assert not identity_provider.is_alive(ready.access_token)
        sent = [seen.form["client_assertion"] for seen in identity_provider.requests if "client_assertion" in seen.form]
        claims = [jwt.decode(_text(each), pair, algorithms=["ES256"]).claims for each in sent]
        assert {identity_provider.issuer} == {each["aud"] for each in claims}
        assert len(claims) == len({each["jti"] for each in claims}) >= 3
        assert {60} == {each["exp"] - each["iat"] for each in claims}


async def test_a_token_endpoint_that_lies_cannot_use_the_assertion(
    identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    """Another provider, where the same key is registered, collects our assertions and tries them here."""
    pair = key("k")
    async with IdentityProvider(clock=TestClock()) as liar:
        app = signing(liar, canaries, [pair], [pair])
        signing(identity_provider, canaries, [pair], [pair])
        async with running(liar, [app]) as harness:
            await harness.connected()
        [taken] = [seen.form["client_assertion"] for seen in liar.seen("token")]
    form = {
        "grant_type": "client_credentials",
        "client_id": "client-mail",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": _text(taken),
    }
    with off_the_record():
        async with httpx2.AsyncClient(trust_env=False) as thief:
            answer = await thief.post(identity_provider.url("/token"), data=form)
    assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])
    assert "aud must be the issuer" in identity_provider.refusals("client_credentials")[-1].why


AUDIENCES: list[AssertionAudience] = ["issuer", "tokenEndpoint", "endpoint"]


def naming(
    idp: IdentityProvider, canaries: Canaries, ours: AssertionAudience, theirs: AssertionAudience, base: App
) -> App:
    """An app whose assertions name `ours`, at a provider that takes `theirs` alone."""
    pair = key("k")
    app = signing(idp, canaries, [pair], [pair], base)
    idp.change(app.client.client_id, assertion_audience=theirs)
    return replace(app, client=replace(app.client, assertion_audience=ours))


def audiences(idp: IdentityProvider) -> dict[str, set[str]]:
    """Whom the assertions named, by the endpoint they were sent to."""
    found: dict[str, set[str]] = {}
    for seen in idp.requests:
        if "client_assertion" in seen.form:
            payload = _text(seen.form["client_assertion"]).split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            found.setdefault(seen.endpoint, set()).add(claims["aud"].removeprefix(idp.issuer))
    return found


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("learned", [False, True])
async def test_assertions_name_the_audience_that_the_app_says_in_every_request(
    identity_provider: IdentityProvider,
    canaries: Canaries,
    test_clock: TestClock,
    audience: AssertionAudience,
    learned: bool,
) -> None:
    """Pushed request, exchange, refresh, revocation; with endpoints that were written and with discovered ones."""
    identity_provider.par = "required"
    said = endpoints_of(identity_provider)
    written = replace(said, pushed_authorization_url=identity_provider.url("/par"))
    base = user_app(identity_provider, endpoints=Endpoints(issuer=said.issuer) if learned else written)
    app = naming(identity_provider, canaries, audience, audience, base)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        test_clock.advance(3600)
        ready = await harness.ask()
        assert isinstance(ready, Ready)
        await harness.broker.revoke("mail", subject=ALICE)
        assert not identity_provider.is_alive(ready.access_token)
    places = {"par", "token", "revoke"}
    named = {place: {"issuer": "", "tokenEndpoint": "/token", "endpoint": f"/{place}"}[audience] for place in places}
    assert {place: {path} for place, path in named.items()} == audiences(identity_provider)


@pytest.mark.parametrize("audience", AUDIENCES)
async def test_a_device_codes_requests_name_that_audience_too(
    identity_provider: IdentityProvider, canaries: Canaries, audience: AssertionAudience
) -> None:
    app = naming(identity_provider, canaries, audience, audience, device_app(identity_provider))
    async with running(identity_provider, [app]) as harness:
        assert isinstance(await harness.ask("tv"), AuthorizationRequired)
    expected = {"issuer": "", "tokenEndpoint": "/token", "endpoint": "/device_authorization"}[audience]
    assert {expected} == audiences(identity_provider)["device"]


@pytest.mark.parametrize(
    "ours, advice",
    [
        ("issuer", "the client's assertion names as its audience the issuer; see client.assertionAudience"),
        ("tokenEndpoint", "the client's assertion names as its audience the token endpoint;"),
    ],
)
async def test_a_provider_that_wants_another_audience_is_told_from_one_that_does_not_know_the_client(
    identity_provider: IdentityProvider, canaries: Canaries, ours: AssertionAudience, advice: str
) -> None:
    app = naming(
        identity_provider, canaries, ours, "endpoint" if ours == "issuer" else "issuer", user_app(identity_provider)
    )
    async with running(identity_provider, [app]) as harness:
        assert_error_page(await harness.connect(await harness.ask_link()), Code.APP_MISCONFIGURED)
        assert advice in harness.log.getvalue()


@pytest.mark.parametrize("status", [400, 401])
async def test_a_refusal_of_the_assertion_at_a_refresh_is_still_about_the_client(
    identity_provider: IdentityProvider, canaries: Canaries, test_clock: TestClock, status: int
) -> None:
    """The refreshes of the grant pause, and the log says why."""
    app = naming(identity_provider, canaries, "issuer", "issuer", user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        await harness.connected()
        test_clock.advance(3600)
        identity_provider.script.refresh.answer(status, {"error": "invalid_client"}, times=FOREVER)
        for _ in range(5):
            assert isinstance(await harness.ask(), Failed)
            test_clock.advance(120)
        said = [json.loads(line) for line in harness.log.getvalue().splitlines()]
        paused = [line["note"] for line in said if line.get("event") == "refreshes of one grant pause"]
        assert paused
        assert paused[0].startswith("invalid_client; the client's assertion names")


def _text(secret: str | Secret) -> str:
    return secret.reveal() if isinstance(secret, Secret) else secret


# what the token is for


async def test_the_resource_is_named_when_asking_exchanging_and_refreshing(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """RFC 8707 section 2: as often as the app lists it, in its order."""
    async with running(
        identity_provider, [user_app(identity_provider, resource=RESOURCES)], clock=test_clock
    ) as harness:
        await harness.connected()
        test_clock.advance(3600)
        ready = await harness.ask()
        assert isinstance(ready, Ready)
        asked = [seen.resources for name in ("authorize", "token") for seen in identity_provider.seen(name)]
        assert {RESOURCES} == set(asked)
        assert 3 <= len(asked)
        assert ("refresh_token", RESOURCES) in [(it.grant_type, it.resources) for it in identity_provider.seen("token")]
        assert RESOURCES == identity_provider.resources_of(ready.access_token)


async def test_a_resource_that_the_provider_refuses_is_the_operators(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [user_app(identity_provider, resource=RESOURCES)]) as harness:
        identity_provider.script.token.refuse("invalid_target")
        assert_error_page(await harness.connect(await harness.ask_link()), Code.APP_MISCONFIGURED)
        assert not isinstance(await harness.ask(), Failed)

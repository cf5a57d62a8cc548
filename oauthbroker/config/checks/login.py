"""`login` of `kind: Broker`: a client of ours at an OpenID provider, checked as an app's client is."""

from __future__ import annotations

from typing import Final

from oauthbroker.config.checks.app import check_client, check_scopes
from oauthbroker.config.checks.endpoints import check_endpoints
from oauthbroker.config.checks.owner import template_problem
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_merge import Merged, merge
from oauthbroker.config.written.broker_spec import BrokerSpec, LoginSpec
from oauthbroker.config.written.client_spec import EndpointsSpec
from oauthbroker.config.written.resource_specs import (
    IdentitiesSpec,
    IdentitySpec,
    OAuthAppSpec,
    OwnerSpec,
    RedirectSpec,
)
from oauthbroker.model.broker_login import CONFIRM_SECONDS, LOGIN_NAME, Operators
from oauthbroker.model.owner_check import spelling
from oauthbroker.model.provider_networks import ProviderNetworks

CALLBACK_PATH: Final = "/login/callback"


def as_app(broker: Written[BrokerSpec], login: LoginSpec, public_base_url: str) -> Merged:
    """Return the login as the app that it is to its provider."""
    below = Written(
        kind=broker.kind,
        name=LOGIN_NAME,
        spec=_app_spec(login),
        document=broker.document,
        problems=broker.problems,
        refused=broker.refused,
        base=("spec", "login"),
    )
    return merge(below, public_base_url)


def check_login(login: Merged, reach: ProviderNetworks) -> None:
    """Check what holds for an app's client, endpoints and identity. An issuer has to be named: ID tokens are compared
    with it."""
    written, template = login.written, login.identities["user"].template
    if not login.endpoints.issuer:
        written.missing(("endpoints", "issuer"), "write your identity provider's issuer, https://...")
    else:
        check_endpoints(login, reach)
    check_client(login)
    check_scopes(login)
    if not template:
        written.missing(("subject",), 'write how the runtime spells its people, such as "acme:user:{sub}"')
    elif problem := template_problem(template):
        written.refuse(("subject",), *problem)


def operators_of(broker: Written[BrokerSpec]) -> Operators | None:
    """Return the operators who sign in by the login. Notes a problem for operators without a login, or without a
    name."""
    said = broker.spec.admin.operators if broker.spec.admin is not None else None
    if said is None:
        return None
    place, subjects = ("admin", "operators"), tuple(said.subjects or ())
    if broker.spec.login is None and broker.whole("login"):
        broker.refuse(place, "there is no login to sign in at", "write spec.login, or use an API key without operators")
    elif not subjects and not said.claims and broker.whole(*place):
        broker.refuse(place, "names no operator", 'write subjects: ["acme:user:7"], or claims: {groups: operators}')
    template = (broker.spec.login and broker.spec.login.subject) or ""
    for number, subject in enumerate(subjects if template and template_problem(template) is None else ()):
        if not spelling(template).fullmatch(subject):
            what = "a subject that is never made by spec.login.subject"
            broker.refuse((*place, "subjects", number), what, f"write one as that spells it: {template}")
    return Operators(
        subjects=subjects,
        claims=tuple(sorted((said.claims or {}).items())),
        acr=tuple(said.acr or ()),
        amr=tuple(said.amr or ()),
        confirm_seconds=said.confirm_seconds or CONFIRM_SECONDS,
    )


def _app_spec(login: LoginSpec) -> OAuthAppSpec:
    endpoints = {slot: url for slot, url in (login.endpoints or ()) if url is not None}
    rule = IdentitySpec.model_construct(source="idToken", template=login.subject)
    return OAuthAppSpec.model_construct(
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=login.client,
        endpoints=EndpointsSpec.model_construct(**endpoints),
        scopes=login.scopes or [],
        redirect=RedirectSpec.model_construct(callback_path=CALLBACK_PATH),
        owner=OwnerSpec.model_construct(identity=IdentitiesSpec.model_construct(user=rule)),
    )

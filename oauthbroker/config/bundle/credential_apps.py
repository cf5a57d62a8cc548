"""Make apps of the bundle's CredentialApps, after checking them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from oauthbroker.config.bundle.broker_facts import BrokerFacts
from oauthbroker.config.bundle.unresolved_bundle import AppDraft
from oauthbroker.config.checks.api import api_of, check_api
from oauthbroker.config.checks.app import check_provider
from oauthbroker.config.checks.connect import check_connect_params, connect_params_of
from oauthbroker.config.checks.credential import (
    NO_REVOCATION,
    CredentialForms,
    as_oauth_app,
    check_credential,
    forms_of,
    preset_of,
)
from oauthbroker.config.checks.outgoing_proxy import check_way_out
from oauthbroker.config.checks.owner import check_binding
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.outside_places import outside_place
from oauthbroker.config.values.preset_endpoints import values_of
from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.config.values.value_sources import Source, source_of
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.client_spec import OutsideSource
from oauthbroker.config.written.credential_app_spec import CredentialAppSpec
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.model.apps import ANYONE, App, Client, Owner, Redirect
from oauthbroker.model.connect_params import filled
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.static_credential import StaticCredential
from oauthbroker.providers.credential_form import InjectForm


def credential_drafts(
    apps: Iterable[Written[CredentialAppSpec]], others: Iterable[Written[OAuthAppSpec]], facts: BrokerFacts
) -> dict[str, AppDraft]:
    """Return the apps of the bundle's credentials, after reporting problems. They share their names with OAuthApps,
    because turns, links and lists name an app alone."""
    taken, found = {it.name for it in others}, dict[str, AppDraft]()
    for written in apps:
        if written.name in taken:
            place = written.document.value_at(("metadata", "name"))
            what = f"OAuthApp/{written.name} has this name, and apps share their names"
            written.problems.add(place, "metadata.name", what, "rename one of the two")
        app, forms, preset = as_oauth_app(written), forms_of(written), preset_of(written)
        check_provider(app)
        check_api(app, facts.reach)
        check_connect_params(app, forms.texts)
        check_way_out(app, facts.broker, facts.settings.outgoing_proxy)
        check_binding(app, facts.settings, login=facts.broker.spec.login is not None)
        check_credential(written, app, forms)
        found[written.name] = AppDraft(
            app=_app(app, forms, written, facts.ca),
            client_id=None,
            client_secrets=(),
            values=_values(written, forms, facts.broker, facts.plain_hint),
            unverified=tuple(preset.unverified()) if preset is not None else (),
        )
    return found


def _values(
    written: Written[CredentialAppSpec], forms: CredentialForms, broker: Written[BrokerSpec], plain_hint: str
) -> dict[str, Source]:
    """Return the origins of the values that the bundle holds for a team: one for each field, or none."""
    said, spec = written.spec.values or {}, written.spec
    if spec.values is None:
        return {}
    if spec.subject_mode == "user" and spec.fallback is None:
        what = "one value for all users, where each has a credential of their own"
        written.refuse(("values",), what, "write subjectMode: global, or fallback: team", key=True)
    if spec.connect_params:
        written.refuse(("values",), "one value for connections that differ", "remove connectParams or values", key=True)
    for name in sorted(said.keys() - forms.fields.keys()):
        written.refuse(("values", name), "no field of this app", f"write {' and '.join(forms.fields)}", key=True)
    for name in sorted(forms.fields.keys() - said.keys()):
        written.missing(("values", name), "write where its value comes from: {valueFrom: {env: NAME}}")
    found = {name: _source(written, ("values", name), it, broker, plain_hint) for name, it in said.items()}
    return {name: source for name, source in found.items() if source is not None}


def _source(
    written: Written[CredentialAppSpec], path: Keys, value: OutsideSource, broker: Written[BrokerSpec], plain_hint: str
) -> Source | None:
    """Return the origin of one value, which may lie in Vault or AWS Secrets Manager."""
    named = value.value_from
    if value.value is not None or named is None or (named.vault is None and named.aws_secret is None):
        return source_of(written, path, value, plain_hint=plain_hint)
    place = outside_place(written, (*path, "valueFrom"), named)
    if place is None:
        return None
    if place.mount and broker.spec.vault is None and broker.whole("vault"):
        what = "a value in Vault, and no Vault that the broker may ask"
        written.refuse((*path, "valueFrom", "vault"), what, "write vault: {address, tokenFile} in the Broker resource")
    return Source(place=written.place(*path), path=written.path(*path), outside=place)


def _app(app: Merged, forms: CredentialForms, written: Written[CredentialAppSpec], ca: str) -> App:
    values = values_of(app.spec, app.preset)
    verify, identity = forms.verify, app.identities["user"].rule
    placement = (forms.inject or InjectForm(bearer="{?}")).placement().at(values)
    rule = None if identity is None else dataclasses.replace(identity, template=filled(identity.template, values))
    return App(
        name=written.name,
        provider=app.spec.provider or "",
        flow="staticCredential",
        subject_mode=app.mode,
        client=Client("", None, "none"),
        endpoints=app.endpoints,
        provider_ca=ca + trusted_ca(app.written, app.spec.provider_ca),
        direct=app.spec.outgoing_proxy == "direct",
        scopes=(),
        redirect=Redirect("", ""),
        owner=Owner(
            binding=app.binding,
            global_identity=rule if app.mode == "global" else None,
            user_identity=rule if app.mode == "user" else None,
            authorizers=ANYONE,
        ),
        several_accounts=app.spec.accounts == "several",
        connect_params=connect_params_of(app),
        title=app.spec.title or (app.preset.title if app.preset is not None else written.name),
        revocation=NO_REVOCATION,
        habits=Habits(),
        api=dataclasses.replace(api_of(app), injected=True),
        field_variables=dict(written.spec.environment or {}),
        credential=StaticCredential(
            fields=tuple(form.field(name) for name, form in forms.fields.items()),
            placement=placement,
            verification=verify.request().at(values) if verify is not None else None,
            life_days=forms.life.days if forms.life is not None else None,
            team_fallback=written.spec.fallback is not None,
        ),
    )

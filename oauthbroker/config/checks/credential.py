"""Check one CredentialApp: its fields, where requests carry them, and who may type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from oauthbroker.config.checks.api import api_of
from oauthbroker.config.checks.owner import template_problem
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_endpoints import place_of, values_of
from oauthbroker.config.values.preset_merge import Identity, Merged
from oauthbroker.config.written.credential_app_spec import CredentialAppSpec
from oauthbroker.config.written.resource_specs import OAuthAppSpec, OwnerSpec
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.program_variables import is_of_system
from oauthbroker.core.spelling import nearest
from oauthbroker.model.apps import ANYONE, Redirect
from oauthbroker.model.connect_params import filled, params_in
from oauthbroker.model.connection_facts import ConnectionFacts
from oauthbroker.model.provider_api import AccountHost
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.providers.credential_form import Fields, InjectForm, LifeForm, VerifyForm, placeholders
from oauthbroker.providers.credentials import credential_presets

if TYPE_CHECKING:
    from oauthbroker.providers.credentials.credential_preset import CredentialPreset

NO_REVOCATION: Final = Revocation(kind="none", reach="none")
_SHARED: Final = frozenset(OAuthAppSpec.model_fields) & frozenset(CredentialAppSpec.model_fields)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLANTED: Final = "otherwise a stranger who opens the link could plant a key, and read what the agent writes with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialForms:
    """What the app says of its credential, or else its preset."""

    fields: Fields
    inject: InjectForm | None
    verify: VerifyForm | None
    life: LifeForm | None

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts in which parameters may stand."""
        placed = self.inject.placement().templates if self.inject is not None else ()
        return (*placed, self.verify.host, self.verify.path) if self.verify is not None else placed


def preset_of(written: Written[CredentialAppSpec]) -> CredentialPreset | None:
    return credential_presets().get(written.spec.provider or "")


def forms_of(written: Written[CredentialAppSpec]) -> CredentialForms:
    """Return the forms. One with fields or a place of its own takes no check of the preset: it may go elsewhere;
    a check with a host of its own does not."""
    spec, preset = written.spec, preset_of(written)
    stays = preset is not None and preset.verify is not None and bool(preset.verify.host)
    moved = spec.api is not None and spec.api.hosts is not None and not stays
    is_own = spec.fields is not None or spec.inject is not None or moved
    return CredentialForms(
        fields=spec.fields or (preset.fields if preset is not None else {}),
        inject=spec.inject or (preset.inject if preset is not None else None),
        verify=spec.verify or (preset.verify if preset is not None and not is_own else None),
        life=spec.life or (preset.life if preset is not None else None),
    )


def as_oauth_app(written: Written[CredentialAppSpec]) -> Merged:
    """Return the app in the form of an OAuthApp, for the checks that both kinds share."""
    spec, preset = written.spec, preset_of(written)
    shared = {name: getattr(spec, name) for name in _SHARED if name != "owner"}
    owner = OwnerSpec.model_construct(binding=spec.owner.binding) if spec.owner is not None else None
    own: dict[str, object] = {"provider": spec.provider or written.name, "owner": owner, "flow": "deviceCode"}
    like = OAuthAppSpec.model_construct(**{**shared, **own})
    provider = preset.provider() if preset is not None else None
    verify = forms_of(written).verify
    identity = (
        Identity("userInfo", verify.account, name=verify.name) if verify is not None and verify.account else Identity()
    )
    return Merged(
        written=replace(written, spec=like),  # type: ignore[arg-type]
        preset=provider,
        mode=spec.subject_mode or "user",
        auth_method="none",
        assertion_audience="issuer",
        place=place_of(like, provider),
        scopes=(),
        redirect=Redirect("/".join(["", *(f"{{{name}}}" for name in spec.connect_params or {})]), ""),
        binding=(spec.owner.binding if spec.owner is not None else None) or "providerIdentity",
        identities={"global": identity, "user": identity},
        authorizers=(ANYONE,),
        habits=Habits(),
        revocation=NO_REVOCATION,
        facts=ConnectionFacts(),
    )


def check_credential(written: Written[CredentialAppSpec], app: Merged, forms: CredentialForms) -> None:
    spec = written.spec
    _check_provider(written)
    _check_names(written, app, forms)
    if not forms.fields and written.whole("fields"):
        written.missing(("fields",), "write the secrets that a person types, such as apiKey: {title: API key}")
    if forms.inject is None or not forms.inject.model_fields_set:
        if written.whole("inject"):
            written.missing(("inject",), 'write where requests carry them, such as bearer: "{apiKey}"')
    elif written.whole("inject") and written.whole("fields"):
        _check_placeholders(written, app, forms, forms.inject)
    hosts = api_of(app).hosts
    unnamed = not app.place.named_hosts and (spec.api is None or spec.api.hosts is None)  # else a parameter is missing
    if not hosts and written.whole("api", "hosts") and unnamed:
        written.missing(("api", "hosts"), "write the hosts of the API: a credential goes nowhere else")
    elif hosts and isinstance(hosts[0], AccountHost):
        what = "a host that differs by account, where the credential has to be checked"
        written.refuse(("api", "hosts", 0), what, "write a host, or one with connectParams")
    _check_owner(written, app, forms)
    _check_environment(written, app, forms)
    if spec.fallback is not None and app.mode != "user":
        hint = "remove it, or write subjectMode: user"
        written.refuse(("fallback",), "a team has no team to fall back to", hint, key=True)
    if spec.api is not None and spec.api.delivery is not None:
        written.refuse(("api", "delivery"), "a credential is always injected", "remove it", key=True)


def _check_environment(written: Written[CredentialAppSpec], app: Merged, forms: CredentialForms) -> None:
    """Check the variables of a key for programs. A server hands no key out: the key has to be one person's own."""
    said = written.spec.environment or {}
    if said and app.binding != "localOperator":
        what = "a key for programs, where it is not one person's own"
        written.refuse(("environment",), what, "remove it, or write owner: {binding: localOperator}", key=True)
    for name in sorted(said.keys() - forms.fields.keys()):
        written.refuse(("environment", name), "no field of this app", f"write {' or '.join(forms.fields)}", key=True)
    for name in sorted(name for name, variable in said.items() if not _VARIABLE.fullmatch(variable)):
        written.refuse(("environment", name), "not the name of a variable", "use letters, digits and underscores")
    for name in sorted(name for name, variable in said.items() if is_of_system(variable)):
        what = "a variable that the system or a shell reads for itself, and would show"
        written.refuse(("environment", name), what, "use a name of the program's own, such as MAIL_API_KEY")


def _check_provider(written: Written[CredentialAppSpec]) -> None:
    spec = written.spec
    if spec.provider is None or spec.provider in credential_presets() or spec.fields is not None:
        return
    meant = nearest(spec.provider, credential_presets())
    hint = f"the nearest known one is {meant}" if meant else "write fields and inject for an API of your own"
    written.refuse(("provider",), "no preset of credentials has this name", hint)


def _check_placeholders(
    written: Written[CredentialAppSpec], app: Merged, forms: CredentialForms, inject: InjectForm
) -> None:
    """Check that each `{name}` is a field or a parameter, and that each field goes somewhere."""
    named = set(placeholders(inject.placement()))
    params = {*values_of(app.spec, app.preset), *(app.spec.connect_params or {})}
    for name in sorted(named - params - forms.fields.keys()):
        close = nearest(name, [*forms.fields, *params])
        hint = f"the nearest known one is {{{close}}}" if close else "write one of fields, params or connectParams"
        written.refuse(("inject",), f"{{{name}}} is no field or parameter of this app", hint, key=True)
    for name in sorted((written.spec.fields or {}).keys() - named) if named <= params | forms.fields.keys() else ():
        written.refuse(("fields", name), "inject does not use it", "remove it, or write it into inject", key=True)
    for text in (*app.place.named_hosts, *((forms.verify.host, forms.verify.path) if forms.verify is not None else ())):
        for name in params_in(filled(text, values_of(app.spec, app.preset))):
            if name not in params:
                written.missing(("params", name), f"write it, or connectParams.{name} if each connection has its own")


def _check_names(written: Written[CredentialAppSpec], app: Merged, forms: CredentialForms) -> None:
    """Check that no parameter takes the place of a secret."""
    spec, fixed = written.spec, values_of(app.spec, app.preset)
    for name in sorted(forms.fields.keys() & {*fixed, *(spec.connect_params or {})}):
        section = (
            "params" if name in (spec.params or {}) else "fields" if name in (spec.fields or {}) else "connectParams"
        )
        what = "a parameter and a field have this name, and the parameter would take the place of the secret"
        written.refuse((section, name), what, "give one of them another name", key=True)


def _check_owner(written: Written[CredentialAppSpec], app: Merged, forms: CredentialForms) -> None:
    """Check that the subject's own person types a credential, or that the credential itself names the account."""
    account = forms.verify.account if forms.verify is not None else ""
    if forms.verify is not None and forms.verify.host and forms.inject is not None and forms.inject.aws_sig_v4 is None:
        what = "a host of its own, which would get the credential itself"
        written.refuse(("verify", "host"), what, "remove it: the check goes to the first of api.hosts", key=True)
    if account and (problem := template_problem(account)):
        written.refuse(("verify", "account"), *problem)
    if not written.whole("verify"):
        return
    if app.binding != "providerIdentity" or account or not written.whole("owner", "binding"):
        return
    what = f"nothing tells whose credential it is: {_PLANTED}"
    hint = "write verify.account, or owner.binding: brokerLogin or, on loopback, localOperator"
    if app.mode == "global":
        hint = "write verify.account, or owner.binding: localOperator, or let an operator import it"
    if app.mode == "global" and written.spec.owner is None:
        return  # an operator imports it; a link could not be finished
    written.refuse(("owner", "binding"), what, hint)

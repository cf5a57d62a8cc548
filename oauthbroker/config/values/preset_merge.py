"""Merge a preset into an app. The app's settings win; the preset fills the missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_endpoints import ProviderPlace, place_of, values_of
from oauthbroker.config.written.resource_specs import IdentitySpec, OAuthAppSpec, OwnerSpec, RedirectSpec
from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.spelling import nearest
from oauthbroker.model.apps import (
    AssertionAudience,
    AuthMethod,
    Binding,
    Endpoints,
    IdentityRule,
    IdentitySource,
    Redirect,
)
from oauthbroker.model.connect_params import filled
from oauthbroker.model.connection_facts import ConnectionFacts
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.turn import SubjectMode
from oauthbroker.providers import presets

if TYPE_CHECKING:
    from oauthbroker.providers.preset import Preset, PresetIdentity

MCP: Final = "mcp"  # the provider of apps whose issuer and client are learnt from an MCP server


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity rule that may still lack a half."""

    source: IdentitySource | None = None
    template: str = ""
    requires: tuple[tuple[str, bool | str], ...] = ()
    _: KW_ONLY
    name: str = ""

    @property
    def rule(self) -> IdentityRule | None:
        if not (self.source and self.template):
            return None
        return IdentityRule(self.source, self.template, self.requires, name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One app after the preset; everything but the client's values, unchecked."""

    written: Written[OAuthAppSpec]
    preset: Preset | None
    mode: SubjectMode
    auth_method: AuthMethod
    assertion_audience: AssertionAudience
    place: ProviderPlace
    scopes: tuple[str, ...]
    redirect: Redirect
    binding: Binding
    identities: Mapping[SubjectMode, Identity]
    authorizers: tuple[str, ...]
    habits: Habits
    revocation: Revocation
    facts: ConnectionFacts

    @property
    def spec(self) -> OAuthAppSpec:
        return self.written.spec

    @property
    def endpoints(self) -> Endpoints:
        return self.place.endpoints

    @property
    def meant_preset(self) -> str:
        """Return a hint for a provider without a preset, if its name is close to that of one; else an empty text."""
        name = self.spec.provider
        close = "" if self.preset is not None or name in {None, MCP} else nearest(str(name), presets())
        return f"; if you meant the provider {close}, write that" if close else ""

    @property
    def identities_used(self) -> tuple[SubjectMode, ...]:
        """Return the identities that this app relies on: its own mode's, and the user's where authorizers are named."""
        if self.spec.flow == "clientCredentials":
            return ()
        said = self.spec.owner.identity.user if self.spec.owner and self.spec.owner.identity else None
        if self.mode == "user":
            return ("user",) if self.binding == "providerIdentity" or said or self.identities["user"].rule else ()
        return ("global", "user") if self.authorizers != ("anyone",) or said else ("global",)


def merge(written: Written[OAuthAppSpec], public_base_url: str) -> Merged:
    """Merge without checking. The checks report missing and unsuitable settings."""
    spec = written.spec
    preset = preset_of(spec)
    place = place_of(spec, preset)
    redirect, owner = spec.redirect or RedirectSpec.empty(), spec.owner or OwnerSpec.empty()
    merged = Merged(
        written=written,
        preset=preset,
        mode=spec.subject_mode or "user",
        auth_method=_auth_method(spec, preset),
        assertion_audience=_assertion_audience(spec, preset),
        place=place,
        scopes=tuple(spec.scopes or ()),
        redirect=Redirect(
            callback_path=redirect.callback_path or f"/oauth/callback/{written.name}",
            base_url=redirect.base_url or public_base_url,
            link=redirect.link or "connect",
            uri_name=redirect.uri_name or "",
        ),
        binding=owner.binding or "providerIdentity",
        identities={mode: _identity(spec, preset, mode) for mode in ("global", "user")},
        authorizers=tuple(owner.authorizers or ()),
        habits=_known_habits(spec, preset, place),
        revocation=_revocation(spec, preset),
        facts=_facts(spec, preset, place),
    )
    return dataclasses.replace(merged, habits=_habits(merged))


def provider_options(spec: OAuthAppSpec) -> Mapping[str, str]:
    return (spec.options or {}).get(spec.provider or "", {})


def preset_of(spec: OAuthAppSpec) -> Preset | None:
    """Return the preset of the provider that an app names, in the mode of the app."""
    preset = presets().get(spec.provider or "")
    if preset is None or preset.modes is None:
        return preset
    mode = provider_options(spec).get(preset.modes.option) or preset.modes.default[spec.subject_mode or "user"]
    return preset.in_mode(mode)


def with_known_provider(app: Written[OAuthAppSpec]) -> Written[OAuthAppSpec]:
    """Report a provider that has neither a preset nor endpoints, and go on with the one that was meant, if any."""
    provider, known = app.spec.provider, (*presets(), MCP)
    if not provider or provider in known or app.spec.endpoints is not None or not app.whole("endpoints"):
        return app
    meant = nearest(provider, known)
    hint = f"the nearest known name is {meant}" if meant else f"write one of {', '.join(known)}"
    app.refuse(("provider",), "no preset has this name", f"{hint}, or endpoints of a provider of your own")
    spec = app.spec.model_copy(update={"provider": meant or None})
    return dataclasses.replace(app, spec=spec, refused=app.refused | {(*app.base, "provider")})


def _auth_method(spec: OAuthAppSpec, preset: Preset | None) -> AuthMethod:
    client = spec.client
    if client is not None and client.auth_method:
        return client.auth_method
    if spec.provider == MCP and not (client and (client.client_secret or client.client_secrets)):
        return "none"
    return preset.auth_method if preset else "client_secret_basic"


def _assertion_audience(spec: OAuthAppSpec, preset: Preset | None) -> AssertionAudience:
    said = spec.client.assertion_audience if spec.client else None
    return said or (preset.assertion_audience if preset else "issuer")


def _identity(spec: OAuthAppSpec, preset: Preset | None, mode: SubjectMode) -> Identity:
    written = spec.owner.identity if spec.owner else None
    said: IdentitySpec | None = None
    known: PresetIdentity | None = None
    if written is not None:
        said = written.global_ if mode == "global" else written.user
    if preset is not None:
        known = preset.identity.global_ if mode == "global" else preset.identity.user
    source = (said and said.source) or (known and known.source) or None
    template = (said and said.template) or (known.template if known and known.source == source else "")
    requires = known.requires if known and (source, template) == (known.source, known.template) else {}
    if said is not None and said.requires is not None:
        requires = said.requires
    name = (said and said.name) or (known.name if known and source == known.source else "")
    return Identity(source, template, tuple(requires.items()), name=name)


def _known_habits(spec: OAuthAppSpec, preset: Preset | None, place: ProviderPlace) -> Habits:
    """Return the preset's habits; the app's own quirks win. What a preset knows of its issuer is true of no other, and
    no other provider's tokens are exchanged at its addresses."""
    habits = preset.habits() if preset else Habits()
    if place.is_elsewhere:
        habits = dataclasses.replace(
            habits, issuer_template="", issuer_promised=False, second_exchange=None, refresh_with=None
        )
    elif "{" in habits.issuer_template:  # claims, and parameters of the preset
        issuer = filled(habits.issuer_template, values_of(spec, preset))
        habits = dataclasses.replace(habits, issuer_template=issuer)
    return spec.quirks.over(habits) if spec.quirks else habits


def _facts(spec: OAuthAppSpec, preset: Preset | None, place: ProviderPlace) -> ConnectionFacts:
    """Return the preset's facts with the app's parameters filled in; each part that the app writes wins. A preset's
    requests would take the token to its own hosts, so that an app with endpoints elsewhere gets none of its facts."""
    facts = ConnectionFacts()
    if preset is not None and not place.is_elsewhere:
        facts = preset.connection_facts.over(facts).at(values_of(spec, preset))
    return spec.facts.over(facts) if spec.facts is not None else facts


def _revocation(spec: OAuthAppSpec, preset: Preset | None) -> Revocation:
    if spec.quirks and spec.quirks.revoke:
        return spec.quirks.revoke.way()
    return preset.revocation() if preset else Revocation()


def _habits(app: Merged) -> Habits:
    """Return the preset's habits with the app's own parameters, scopes and identity taken into account."""
    options = app.spec.options or {}
    always = list(app.habits.always_scopes)
    if "openid" not in always and any(app.identities[mode].source == "idToken" for mode in app.identities_used):
        always.append("openid")
    return dataclasses.replace(
        app.habits,
        always_scopes=tuple(always),
        scope_aliases=_aliases(app),
        authorize_params={**app.habits.authorize_params, **options.get("authorize", {})},
        token_params={**app.habits.token_params, **options.get("token", {})},
        refresh_params={**app.habits.refresh_params, **options.get("refresh", {})},
    )


def _aliases(app: Merged) -> dict[str, str]:
    """Return spellings of the app's scopes that an answer may use. A scope that the app lists is no alias."""
    aliases = {
        other: ours
        for other, ours in app.habits.scope_aliases.items()
        if ours in app.scopes and other not in app.scopes
    }
    values = values_of(app.spec, app.preset)
    known = (filled(prefix, values) for prefix in (app.preset.scope_prefixes if app.preset else ()))
    prefixes = (*known, *(app.spec.quirks.scope_prefixes if app.spec.quirks else ()))
    for prefix in prefixes:
        for scope in app.scopes:
            other = scope.removeprefix(prefix) if scope.startswith(prefix) else prefix + scope
            if other not in app.scopes:
                aliases[other] = scope
    return aliases

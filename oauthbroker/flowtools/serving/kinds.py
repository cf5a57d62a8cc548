"""The resource kind `FlowService`: what a running broker serves flow tools with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from oauthbroker import BrokerError, Secret
from oauthbroker.flowtools.running.mail import SmtpAdapter
from oauthbroker.flowtools.running.ports import Adapter
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.plugins import (
    ForeignFault,
    JwtIssuer,
    ResourceKind,
    SecretSource,
    Strict,
    WrittenResource,
    WrittenResources,
    foreign_code,
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Role = Annotated[str, Field(min_length=1, max_length=128)]
Template = Annotated[str, Field(min_length=1, max_length=256)]
File = Annotated[str, Field(min_length=1, max_length=1024)]
Url = Annotated[str, Field(max_length=2048)]
Subjects = dict[Literal["user", "global"], Template]
# Signatures with a pair of keys only: with a shared secret, each holder of it could make tokens.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
_USUAL: Final[tuple[Algorithm, ...]] = ("RS256", "ES256")
TokenType = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$")]
ACCESS_TOKEN: Final = "at+jwt"
_SLOT: Final = re.compile(r"\{([^{}]+)\}")
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
OWN_IDS: Final = ("key:{name}", "service:{name}")  # of callers with API keys, and of services
GROUPS: Final = {"payments": "oauthbroker.flow_payments", "sms": "oauthbroker.flow_sms"}


class IssuerSpec(Strict):
    """An issuer of JWTs. In `id` and `subjects`, `{claim}` stands for a claim's text. `roles` is the path
    of the claim with the roles, such as `realm_access.roles`, or a URL, which names one claim. `types` are the values
    of `typ` that its access tokens have (RFC 9068); `JWT` also takes tokens without one."""

    issuer: Url
    audience: Annotated[str, Field(min_length=1, max_length=1024)]
    jwks_url: Url | None = None
    jwks: dict[str, Any] | None = None
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = Field(default_factory=lambda: list(_USUAL))
    types: Annotated[list[TokenType], Field(min_length=1)] = Field(default_factory=lambda: [ACCESS_TOKEN])
    id: Template = "{sub}"
    roles: Annotated[str, Field(min_length=1, max_length=256)] = "roles"
    subjects: Subjects = Field(default_factory=dict)

    @property
    def templates(self) -> dict[tuple[str, ...], str]:
        """Return the texts in which claims stand, by their place."""
        return {("id",): self.id, **{("subjects", mode): text for mode, text in self.subjects.items()}}

    def verified(self) -> JwtIssuer:
        """Return what verifies its tokens. Raises ValueError for keys that cannot be used."""
        keys: dict[str, Any] = {"jwks": self.jwks, "jwks_url": self.jwks_url or ""}
        return JwtIssuer(self.issuer, self.audience, **keys, algorithms=self.algorithms, types=self.types)


class FlowIdentitySpec(Strict):
    """What a caller with an API key, or a service, may: its roles, and the subjects whose tokens its requests use."""

    roles: list[Role] = Field(default_factory=list)
    subjects: Subjects = Field(default_factory=dict)


class FlowAdapterSpec(Strict):
    """An adapter of another package: its entry point, and what the package gets."""

    adapter: Name
    settings: dict[str, Any] = Field(default_factory=dict)
    secret: SecretSource | None = None


class FlowServiceSpec(Strict):
    """What serves flow tools, and to whom. `database` left out: SQLite beside the store. `applyChanges` makes the
    changes of tables that lose no data; left out, it does so for that SQLite alone. Files are relative to the folder of
    the bundle. An ended run keeps its input, result and steps for `retentionDays`."""

    entities: Annotated[list[File], Field(max_length=100)] = Field(default_factory=list)
    database: SecretSource | None = None
    apply_changes: bool | None = None
    sandbox: bool = False
    mail: Url | None = None
    mail_password: SecretSource | None = None
    payments: dict[Name, FlowAdapterSpec] = Field(default_factory=dict)
    sms: FlowAdapterSpec | None = None
    issuers: Annotated[list[IssuerSpec], Field(max_length=20)] = Field(default_factory=list)
    api_keys: dict[Name, FlowIdentitySpec] = Field(default_factory=dict)
    services: dict[Name, FlowIdentitySpec] = Field(default_factory=dict)
    webhook_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    retention_days: Annotated[int, Field(ge=1, le=36_500)] = 90


def slots(template: str) -> list[str]:
    """Return the claims that a template names."""
    return _SLOT.findall(template)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with the claims' texts in it."""
    return _SLOT.sub(lambda found: values[found[1]], template)


def may_be_one(template: str, other: str) -> bool:
    """Tell whether two templates can make one id. The text of a claim has no `:`."""
    parts, others = (_SLOT.sub("\0", each).split(":") for each in (template, other))
    return len(parts) == len(others) and all(map(_may_be_one_part, parts, others))


def _may_be_one_part(part: str, other: str) -> bool:
    begin, slot, _ = part.partition("\0")
    other_begin, other_slot, _ = other.partition("\0")
    known = min(len(begin), len(other_begin))
    return begin[:known] == other_begin[:known] if slot or other_slot else part == other


def _check(service: WrittenResource, resources: WrittenResources) -> None:
    if len(resources.of(service.kind)) > 1:
        service.refuse((), "a second FlowService", "keep one")
    if service.whole("mail") and service.whole("mailPassword") and service.spec.mail is not None:
        try:
            SmtpAdapter(service.spec.mail, None if service.spec.mail_password is None else Secret("it has one"))
        except ValueError as error:
            service.refuse(("mail",), "no mail server", str(error))
    if service.whole("entities"):
        _check_entities(service, resources.folder)
    if service.whole("issuers"):
        for at, each in enumerate(service.spec.issuers):
            _check_issuer(service, at, each)
    _check_identities(service)
    _check_adapters(service)


def _check_adapters(service: WrittenResource) -> None:
    payments = service.spec.payments if service.whole("payments") else {}
    named: dict[tuple[str, ...], FlowAdapterSpec] = {("payments", name): each for name, each in payments.items()}
    named |= {("sms",): service.spec.sms} if service.whole("sms") and service.spec.sms is not None else {}
    for place, each in named.items():
        if problem := adapter_problem(place[0], each.adapter):
            service.refuse((*place, "adapter"), problem, "install one package that has it, or correct the name")


def _check_identities(service: WrittenResource) -> None:
    for member, attribute in (("apiKeys", "api_keys"), ("services", "services")):
        known: dict[str, FlowIdentitySpec] = getattr(service.spec, attribute) if service.whole(member) else {}
        for name, identity in known.items():
            for mode, text in identity.subjects.items():
                if slots(text):
                    service.refuse((member, name, "subjects", mode), "a claim, and there are none", "write the subject")


def _check_entities(service: WrittenResource, folder: Path) -> None:
    from oauthbroker.flowtools.entities.definition import entities_in

    for at, each in enumerate(service.spec.entities):
        try:
            entities_in([folder / each])
        except FlowRefused as refused:
            service.refuse(("entities", at), f"entities that cannot be used: {refused.problems[0]}", "correct them")
        except ImportError:
            hint = 'run `pip install "oauthbroker[flowtools]"`'
            service.refuse(("entities",), "entities need the extra `flowtools`", hint)
        except (OSError, ValueError) as error:
            service.refuse(("entities", at), str(error) or "no readable files", "name a file or folder of entities")


def _check_issuer(service: WrittenResource, at: int, issuer: IssuerSpec) -> None:
    place, others = ("issuers", at), service.spec.issuers[:at]
    if any(issuer.issuer == other.issuer for other in others):
        service.refuse((*place, "issuer"), "that of another issuer", "write each issuer once")
    if (issuer.jwks_url is None) == (issuer.jwks is None):
        service.refuse(place, "not exactly one of jwksUrl and jwks", "write where the public keys are, or the keys")
    elif issuer.jwks_url is not None and not _is_url(issuer.jwks_url):
        service.refuse((*place, "jwksUrl"), "no URL of a key set", "write an https URL")
    else:
        try:
            issuer.verified()
        except ValueError:
            service.refuse((*place, "jwks"), "no usable key", "write {keys: [...]} with public keys")
    for path, text in issuer.templates.items():
        if not slots(text):
            service.refuse((*place, *path), "one text for all callers", "name a claim, such as {sub}")
        if any(path in other.templates and may_be_one(text, other.templates[path]) for other in others):
            whose, such = ("callers", "shop:{sub}") if path == ("id",) else ("subjects", "shop:user:{sub}")
            hint = f"write one that tells the {whose} of the issuers apart, such as {such}"
            service.refuse((*place, *path), "may be that of another issuer", hint)
    if any(may_be_one(issuer.id, each) for each in OWN_IDS):
        service.refuse((*place, "id"), "may be one of the ids of API keys or services", "begin it with another word")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    known = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    return known and bool(parts.hostname) and not parts.fragment and "@" not in parts.netloc


KINDS = (ResourceKind(kind="FlowService", model=FlowServiceSpec, check=_check),)


def adapter_problem(port: str, name: str) -> str:
    """Return why the entry point of an adapter cannot be taken; empty if it can. No code of a package runs."""
    found = metadata.entry_points(group=GROUPS[port], name=name)
    packages = sorted(each.dist.name if each.dist is not None else "a package" for each in found)
    why = f"the packages {' and '.join(packages)} both have" if found else "no installed package has"
    return "" if len(found) == 1 else f"{why} this entry point in {GROUPS[port]}"


def installed_adapter(port: str, spec: FlowAdapterSpec, secret: Secret | None) -> Adapter:
    """Return an adapter, made with the settings and the secret of the configuration. The entry point is a callable that
    takes both. Raises ValueError with the line of the package that fails, and no word of it: it may hold the secret."""
    name = spec.adapter
    if problem := adapter_problem(port, name):
        raise ValueError(f"the adapter {name}: {problem}")
    (point,) = metadata.entry_points(group=GROUPS[port], name=name)
    try:
        with foreign_code(f"the adapter {name}"):
            adapter: Adapter = point.load()(spec.settings, secret)
            is_one = callable(getattr(adapter, "send", None)) and isinstance(getattr(adapter, "takes_keys", None), bool)
    except ForeignFault as fault:
        why = fault.why
    except BrokerError as error:
        why = error.code.value
    else:
        if is_one:
            return adapter
        why = "it made no adapter"
    raise ValueError(f"the adapter {name}: {why}")

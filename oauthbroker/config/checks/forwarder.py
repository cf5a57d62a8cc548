"""Check the forwarders of a bundle: whose events go where, and with which secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from oauthbroker.config.checks.endpoints import fetched_problem
from oauthbroker.config.checks.outgoing_proxy import lookup_problem
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Keys, Problems, SourcePlace
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.value_sources import SecretKey, Source, source_of
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.forwarder_spec import ForwarderSpec, NatsSpec, WebhookSpec
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.forwarders import Forwarder, Nats, Webhook, webhook_key
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_networks import ProviderNetworks, is_loopback
from oauthbroker.model.settings import Settings

WrittenForwarder = Written[ForwarderSpec]
_SUBJECT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,15}")
_SERVER_ADVICE: Final = "write tls://host:4222"
_PLAIN_ADVICE: Final = f"{_SERVER_ADVICE}; nats:// is for this machine, with weaken: [plainHttpProvider]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderDraft:
    """A forwarder that is complete but for its secrets."""

    forwarder: Forwarder
    secrets: tuple[Source, ...]

    def resolved(self, env: Mapping[str, str], secrets: Mapping[SecretKey, Secret], problems: Problems) -> Forwarder:
        """Return the forwarder with its secrets. Report those that are missing or cannot sign."""
        to, found = self.forwarder.to, list[Secret]()
        for source in self.secrets:
            if (value := source.read(env, secrets, problems)) is None:
                continue
            if isinstance(to, Webhook) and webhook_key(value) is None:
                hint = "write whsec_ and the base64 of 24 to 64 random bytes"
                problems.add(source.place, source.path, "not a secret of Standard Webhooks", hint)
            found.append(value)
        if isinstance(to, Webhook):
            return replace(self.forwarder, to=replace(to, secrets=tuple(found)))
        return replace(self.forwarder, to=replace(to, password=next(iter(found), None)))


def forwarder_drafts(
    resources: Sequence[Written[Any]], settings: Settings, ca: str, plain_hint: str
) -> tuple[ForwarderDraft, ...]:
    """Check all forwarders of a bundle. An agent has one forwarder at most, and none if the tool runtime serves it."""
    served: dict[str, SourcePlace] = {
        each.name: each.document.value_at(("metadata", "name")) for each in resources if each.kind == "Agent"
    }
    found = list[ForwarderDraft | None]()
    for each in resources:
        if each.kind == "Forwarder" and not each.plugin:
            _check_agents(each, served)
            found.append(_draft(each, settings, ca, plain_hint))
    return tuple(each for each in found if each is not None)


def _check_agents(written: WrittenForwarder, served: dict[str, SourcePlace]) -> None:
    if not written.spec.agents:
        written.missing(("agents",), "name the agents whose events are forwarded")
    for at, agent in enumerate(written.spec.agents or ()):
        if not agent.strip():
            written.refuse(("agents", at), "an empty name", "write the agentName of its turns")
        elif agent in served:
            what = f"the events of this agent are taken elsewhere: {served[agent]}"
            written.refuse(("agents", at), what, "remove one: an agent is polled or has one forwarder")
        served.setdefault(agent, written.place("agents", at))


def _draft(written: WrittenForwarder, settings: Settings, ca: str, plain_hint: str) -> ForwarderDraft | None:
    spec, networks = written.spec, tuple(written.spec.networks or ())
    for at in (at for at, network in enumerate(networks) if not url_checks.is_network(network)):
        written.refuse(("networks", at), "not an address or network", "write 10.0.0.7 or 10.0.0.0/24")
    if (spec.webhook is None) == (spec.nats is None):
        if written.whole("webhook") and written.whole("nats"):
            written.refuse((), "exactly one of webhook and nats", "write one of them")
        return None
    plain = "plainHttpProvider" in settings.weaken
    reach = ProviderNetworks(tuple(filter(url_checks.is_network, networks)), loopback=plain)
    to: Webhook | Nats
    if spec.webhook is not None:
        to, sources = _webhook(written, spec.webhook, reach, settings.outgoing_proxy)
    else:
        to, sources = _nats(written, spec.nats or NatsSpec.empty(), reach)
    secrets = [source_of(written, path, source, plain_hint=plain_hint) for path, source in sources]
    forwarder = Forwarder(name=written.name, agents=tuple(spec.agents or ()), to=to, networks=networks, ca=ca)
    return ForwarderDraft(forwarder=forwarder, secrets=tuple(each for each in secrets if each is not None))


_Sources = Iterable[tuple[Keys, ValueSource]]


def _webhook(
    written: WrittenForwarder, spec: WebhookSpec, reach: ProviderNetworks, proxy: OutgoingProxy | None
) -> tuple[Webhook, _Sources]:
    if spec.url is None:
        written.missing(("webhook", "url"), "write the https address that takes the events")
    elif problem := fetched_problem(spec.url, reach, query=True):
        what, hint = problem
        inside = "list its network in `networks`" if reach.refuses(url_checks.host_of(spec.url)) else hint
        written.refuse(("webhook", "url"), what, inside)
    elif problem := lookup_problem(url_checks.host_of(spec.url), proxy):
        written.refuse(("webhook", "url"), *problem)
    if not spec.secrets:
        written.missing(("webhook", "secrets"), "write a list with the secret of the signatures")
    return Webhook(url=spec.url or ""), [
        (("webhook", "secrets", at), source) for at, source in enumerate(spec.secrets or ())
    ]


def _nats(written: WrittenForwarder, spec: NatsSpec, reach: ProviderNetworks) -> tuple[Nats, _Sources]:
    if not spec.servers:
        written.missing(("nats", "servers"), f"{_SERVER_ADVICE} for each server")
    for at, server in enumerate(spec.servers or ()):
        if problem := _server_problem(server, reach):
            written.refuse(("nats", "servers", at), *problem)
    if spec.subject is None:
        written.missing(("nats", "subject"), "write a subject of the stream, such as agents.events")
    elif not _SUBJECT.fullmatch(spec.subject):
        written.refuse(("nats", "subject"), "not a subject to publish to", "write words of letters, digits, - and _")
    if (spec.user is None) != (spec.password is None):
        written.missing(("nats", "user" if spec.user is None else "password"), "write both, or neither")
    sources = [(("nats", "password"), spec.password)] if spec.password is not None else []
    return Nats(servers=tuple(spec.servers or ()), subject=spec.subject or "", user=spec.user or ""), sources


def _server_problem(server: str, reach: ProviderNetworks) -> tuple[str, str] | None:
    """Return (problem, remedy) for the address of a NATS server, else None."""
    scheme, _, rest = server.partition("://")
    if scheme not in {"tls", "nats"} or (problem := url_checks.problem(f"https://{rest}", query=False)):
        return "not the address of a NATS server", _SERVER_ADVICE
    host = urlsplit(server).hostname or ""
    if urlsplit(server).path:
        return "not the address of a NATS server", _SERVER_ADVICE
    if scheme == "nats" and not (reach.loopback and is_loopback(host) and host != "localhost"):
        return "a connection without TLS", _PLAIN_ADVICE
    return ("an address inside your own network", "list its network in `networks`") if reach.refuses(host) else problem

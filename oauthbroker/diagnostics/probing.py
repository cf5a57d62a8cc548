"""Whether providers answer: the addresses that apps use are asked once each, without a secret. No redirect is followed.

Any HTTP answer will do, because it takes a name, a route, TLS and a server. What an issuer publishes of itself is
held against what the app relies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.diagnostics.findings import Finding, Severity
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.protocol.client_auth import AUDIENCES
from oauthbroker.protocol.discovery import endpoints_used, relies_on_discovery, uses_issuer
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.metadata import (
    ProviderMetadata,
    WrongIssuer,
    keys_response,
    metadata_addresses,
    metadata_response,
)
from oauthbroker.protocol.network.transport import MOST_BYTES, Transport, TransportFailed
from oauthbroker.protocol.protected_resource import ProtectedResources

AT_ONCE = 8
ANYWHERE = ProviderNetworks(("0.0.0.0/0", "::/0"), loopback=True)
TOO_LARGE = "the answer is too large"  # the transport's words for an answer all the same
SLOTS = {
    "authorization_url": "authorization",
    "token_url": "token",
    "refresh_url": "refresh",
    "device_authorization_url": "device authorization",
    "pushed_authorization_url": "pushed authorization",
    "user_info_url": "userinfo",
    "revoke_url": "revocation",
    "jwks_url": "key set",
}
COMPARED = ("authorization_url", "token_url", "jwks_url")
OUR_SIDE = "Look at DNS, the firewall and the way out of this machine; or the provider is down."


@dataclass(frozen=True, slots=True)
class Asked:
    """How one address answered: an answer, or why there is none."""

    answer: ProviderResponse | None = None
    status: int | None = None
    failure: str = ""


@asynccontextmanager
async def probing(settings: Settings, clock: Clock) -> AsyncIterator[Probe]:
    """Open a probe for the block. Providers are asked under the rules of every other request; our own public address
    may be anywhere."""
    plain, reach = "plainHttpProvider" in settings.weaken, ProviderNetworks(settings.provider_networks)
    to_providers = Transport(plain_http_loopback=plain, reach=reach, proxy=settings.outgoing_proxy)
    to_us = Transport(plain_http_loopback=settings.public_base_url.startswith("http:"), reach=ANYWHERE)
    try:
        yield Probe(to_providers=to_providers, to_us=to_us, clock=clock, limits=settings.limits)
    finally:
        await to_providers.close()
        await to_us.close()


@dataclass(slots=True, kw_only=True)
class Probe:
    """One round of questions. Apps that trust the same certificates ask every address once, and a host that cannot be
    reached only until that is known. `skews`: by how many seconds providers' clocks are ahead."""

    to_providers: Transport
    to_us: Transport
    clock: Clock
    limits: Limits
    skews: list[float] = field(default_factory=list)
    _asked: dict[tuple[str, str], asyncio.Task[Asked]] = field(default_factory=dict)
    _gone: dict[tuple[str, str], str] = field(default_factory=dict)
    _row: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def providers(self, apps: Iterable[App]) -> list[Finding]:
        """Return the findings of each app's provider, app by app; raises nothing."""
        found = await asyncio.gather(*(self._provider(app) for app in apps))
        return [finding for findings in found for finding in findings]

    async def address(self, public_base_url: str) -> list[Finding]:
        """Return whether a broker answers at its public address, as seen from here."""
        asked = await self._send(self.to_us, ProviderRequest("GET", f"{public_base_url.rstrip('/')}/healthz"))
        if asked.status == 200:
            return [Finding("address", "ok", f"A broker answers at {public_base_url}.")]
        why = asked.failure or f"status {asked.status}"
        hint = "Start it, or look at the proxy, TLS and DNS; from here it need not be reachable."
        return [Finding("address", "warning", f"No broker answers at {public_base_url}: {why}.", hint=hint)]

    async def _provider(self, app: App) -> list[Finding]:
        if app.mcp is not None:
            servers = ProtectedResources(transport=self.to_providers, limits=self.limits)
            try:
                app = app.learnt((await servers.of(app, app.mcp.url)).issuer_for(app), app.client)
            except BrokerError as error:
                text = f"Its MCP server cannot be used: {error.note or error.code.value}."
                return [_of(app, "failure", text, _CHECK_SERVER)]
        app = app.at({it.name: it.one_of[0] for it in app.connect_params if it.one_of})  # the first host of its lists
        learned, found = await self._issuer(app)
        addresses, differing = _addresses(app, learned)
        answers = await asyncio.gather(*(self._ask(app, url) for url in addresses.values()))
        asked = dict(zip(addresses, answers, strict=True))
        silent = {it.failure: [name for name in asked if asked[name].failure == it.failure] for it in asked.values()}
        found += [_silent(app, names, failure) for failure, names in silent.items() if failure]
        found += [_unwell(app, name, it) for name, it in asked.items() if it.status is not None and it.status >= 500]
        keys = asked.get("key set")
        if keys is not None and keys.answer is not None and (problem := _finding_of_keys(keys.answer)):
            found.append(_of(app, "failure", f"Its key set is of no use: {problem}.", _COMPARE))
        if not found:
            hosts = ", ".join(sorted({urlsplit(url).netloc for url in addresses.values()}))
            text = f"{hosts}: {len(asked)} addresses answer" if hosts else "nothing to ask"
            differs = f" {', '.join(differing)} differs by connection, and is not asked." if differing else ""
            found.append(_of(app, "ok", f"{text}.{differs}"))
        return [*found, *_of_assertion(app)]

    async def _issuer(self, app: App) -> tuple[Endpoints, list[Finding]]:
        """Return the endpoints that the app learns from its issuer's metadata, and the problems. An app that has all it
        needs learns nothing, and is only warned."""
        if not uses_issuer(app) or "{" in app.endpoints.issuer:
            return Endpoints(), []
        metadata, why, issuer = await self._metadata(app)
        relies, used = relies_on_discovery(app), endpoints_used(app)
        if metadata is None:
            text = f"What its issuer publishes cannot be used: {why}."
            severity: Severity = "failure" if relies else "warning"
            hint = f"If that is your provider, write endpoints.issuer: {issuer}" if issuer else _CHECK
            return Endpoints(), [_of(app, severity, text, hint)]
        found = []
        if app.has_callback and (metadata.s256 is False or (app.mcp is not None and not metadata.s256)):
            text = "Its issuer does not list PKCE with S256."
            found.append(_of(app, "failure" if relies else "warning", text, "Ask the provider."))
        for slot in (slot for slot in COMPARED if slot in used):
            ours, theirs = getattr(app.endpoints, slot), getattr(metadata.endpoints, slot)
            if ours and theirs and ours != theirs:
                text = f"Its issuer publishes another {SLOTS[slot]} address than the one in use."
                found.append(_of(app, "warning", text, _COMPARE))
        return metadata.endpoints if relies else Endpoints(), found

    async def _metadata(self, app: App) -> tuple[ProviderMetadata | None, str, str]:
        """Return the document, else why it is of no use, and the issuer that it names instead. The addresses
        and their order are those of a broker."""
        why = found = ""
        for url in metadata_addresses(app.endpoints.issuer, mcp=app.mcp is not None):
            asked = await self._ask(app, url)
            if asked.answer is None:
                return None, asked.failure, ""
            try:
                return metadata_response(app.endpoints.issuer, app.habits.issuer_template, asked.answer), "", ""
            except WrongIssuer as error:
                found, why = error.found, f"{error.note}: {error.found}" if error.found else error.note
            except BrokerError as error:
                why = why or error.note or error.code.value
        return None, why, found

    async def _ask(self, app: App, url: str) -> Asked:
        url = url.partition("?")[0]
        request, name = ProviderRequest("GET", url).for_app(app, "other"), (url, app.provider_ca)
        if name not in self._asked:
            self._asked[name] = asyncio.create_task(self._send(self.to_providers, request))
        return await self._asked[name]

    async def _send(self, transport: Transport, request: ProviderRequest) -> Asked:
        host = urlsplit(request.url).netloc, request.ca
        try:
            async with self._row:
                if host in self._gone:
                    return Asked(failure=self._gone[host])
                answer = await transport.send(request, seconds=self.limits.provider_seconds, max_bytes=MOST_BYTES)
        except TransportFailed as failed:
            if not failed.sent:
                self._gone[host] = failed.note
            return Asked(failure="" if failed.note == TOO_LARGE else failed.note)
        except BrokerError as error:
            return Asked(failure=error.note or error.code.value)
        if answer.date is not None:
            self.skews.append((answer.date - self.clock.now()).total_seconds())
        return Asked(answer, answer.status)


_CHECK_SERVER = "Check mcp.url and mcp.issuer; `oauthbroker mcp add URL` shows what the server publishes."
_CHECK = "Check endpoints.issuer."
_COMPARE = "Compare the app's endpoints with the provider's page."


def _of(app: App, severity: Severity, text: str, hint: str = "") -> Finding:
    return Finding("providers", severity, text, hint=hint, about=app.name)


def _addresses(app: App, learned: Endpoints) -> tuple[dict[str, str], list[str]]:
    """Return the app's addresses by name, and the hosts that differ by connection. An address with a placeholder is
    asked at its host's root."""
    found, differing, used = {}, set(), endpoints_used(app)
    for slot, name in ((slot, name) for slot, name in SLOTS.items() if slot in used):
        url = app.facts.filled(getattr(app.endpoints, slot) or getattr(learned, slot), {})
        parts = urlsplit(url)
        if "{" in parts.netloc:
            differing.add(parts.netloc)
        elif url:
            found[name] = f"{parts.scheme}://{parts.netloc}/" if "{" in url else url
    return found, sorted(differing)


def _of_assertion(app: App) -> list[Finding]:
    """Report the audience of signed assertions: a provider that wants another audience says no more than
    `invalid_client`."""
    if app.client.auth_method != "private_key_jwt":
        return []
    text = f"Its client signs assertions for {AUDIENCES[app.client.assertion_audience]}. A provider that answers "
    text += "invalid_client may want another client.assertionAudience."
    return [_of(app, "ok", text)]


def _silent(app: App, names: list[str], failure: str) -> Finding:
    which = f"{', '.join(names)} {'endpoint' if len(names) == 1 else 'endpoints'}"
    return _of(app, "failure", f"Its {which} cannot be asked: {failure}.", OUR_SIDE)


def _unwell(app: App, name: str, asked: Asked) -> Finding:
    text = f"Its {name} endpoint answers with status {asked.status}."
    return _of(app, "warning", text, "Mostly it passes; if it stays, check the address.")


def _finding_of_keys(answer: ProviderResponse) -> str:
    try:
        keys = keys_response(answer)
    except BrokerError as error:
        return error.note or error.code.value
    return "" if keys else "it holds no key that we know"

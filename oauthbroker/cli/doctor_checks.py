"""What `oauthbroker doctor` looks at on this machine: the configuration, the key, the disk, the store, the audit log.

Every check stands on its own: where one breaks, the others are made all the same. Nothing is written, and no lock of
the store is taken.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from oauthbroker.apps import OAuthApp
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.folder import NAME as AUDIT_LOG
from oauthbroker.audit.trail import FileTrail
from oauthbroker.checkup import findings
from oauthbroker.checkup.findings import Check, Finding
from oauthbroker.checkup.forecast import AppFacts, Forecast, GrantState, forecast
from oauthbroker.checkup.inspection import Inspection
from oauthbroker.checkup.probing import probing
from oauthbroker.cli.place_checks import MOST_NAMED, data_of, disk, guarded, locks, permissions, sentence
from oauthbroker.cli.text import counted
from oauthbroker.clock import Clock
from oauthbroker.config import ConfigRefused, Loaded, Problem, load, load_settings, resolve
from oauthbroker.config.problems import Problems
from oauthbroker.config.values import is_unread_secret
from oauthbroker.errors import BrokerError, Code
from oauthbroker.providers import presets
from oauthbroker.scope import NO_RIGHTS
from oauthbroker.settings import Settings
from oauthbroker.store.file import FileStore
from oauthbroker.store.keys import Keyring
from oauthbroker.wiring import KEY_ENV, key_origin, look_into, unlocked, with_keys


@dataclass(slots=True)
class Doctor:
    """One checkup. What a check learns is there for the next ones; what it could not learn is None."""

    config: Path
    env: Mapping[str, str]
    clock: Clock
    log: FilteringBoundLogger
    loaded: Loaded | None = None
    settings: Settings | None = None
    keyring: Keyring | None = None
    store: FileStore | None = None
    seen: Inspection | None = None
    grants: list[GrantState] = field(default_factory=list)
    apps: dict[str, OAuthApp] = field(default_factory=dict)
    login: OAuthApp | None = None
    forecast: Forecast = field(default_factory=lambda: Forecast((), {}))

    async def here(self) -> list[Finding]:
        """Everything that needs no network; without a Broker resource nobody knows where to look."""
        found = await guarded("configuration", self._configuration)
        if self.settings is None:
            return found
        root = self.settings.store_root
        steps: list[tuple[Check, Callable[[], Awaitable[list[Finding]]]]] = [
            ("keys", self._keys),
            ("permissions", lambda: permissions(root)),
            ("disk", lambda: disk(root)),
            ("locks", lambda: locks(root)),
            ("secrets", self._values),
            ("audit", self._audit),
            ("apiKeys", self._api_keys),
            ("work", self._work),
            ("grants", self._grants),
            ("forecast", self._forecast),
        ]
        return [*found, *[finding for check, step in steps for finding in await guarded(check, step)]]

    async def away(self) -> list[Finding]:
        """What takes the network: every provider, our own public address, and the clocks of those that answered."""
        if self.settings is None:
            return []
        async with probing(self.settings, self.clock) as probe:
            asked = [*self.apps.values(), *([self.login] if self.login is not None else [])]
            found = await guarded("providers", lambda: probe.providers(asked))
            clock = findings.of_clock(probe.skews)
            public = await guarded("address", lambda: probe.address(self._settings.public_base_url))
            return [*found, clock, *public]

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()

    @property
    def data(self) -> Path:
        return data_of(self._settings.store_root)

    @property
    def _settings(self) -> Settings:
        if self.settings is None:
            raise BrokerError(Code.CONFIG_INVALID, note="the Broker resource cannot be read")
        return self.settings

    async def _configuration(self) -> list[Finding]:
        """As `check`, with the doubts: an unverified fact counts until somebody has connected with it."""
        problems: tuple[Problem, ...] = ()
        try:
            self.loaded = load(self.config)
            self.settings = with_keys(self.loaded.settings, self.env)
        except ConfigRefused as refused:
            problems = refused.problems
        found = [
            Finding("configuration", "failure", sentence(problem.what), sentence(problem.todo), str(problem.place))
            for problem in problems[:MOST_NAMED]
        ]
        if len(problems) > MOST_NAMED:
            found.append(
                Finding(
                    "configuration", "failure", f"{len(problems) - MOST_NAMED} more.", "`oauthbroker check` has all."
                )
            )
        if self.loaded is None:
            with suppress(ConfigRefused):
                self.settings = with_keys(load_settings(self.config), self.env)
            return found
        todo = "Turn it on for real accounts."
        weaken = sorted(self.loaded.settings.weaken)
        found += [Finding("configuration", "warning", f"A check is off: {name}.", todo) for name in weaken]
        if self._settings.public_base_url.startswith("http:"):
            plain = "publicBaseUrl is http: links and pages go without TLS."
            found.append(Finding("configuration", "warning", plain, "Use https for real accounts."))
        found += self._keyless()
        apps, tools = len(self.loaded.apps), len(self.loaded.tools)
        return [*found, Finding("configuration", "ok", f"{counted(apps, 'app')}, {counted(tools, 'caller')}.")]

    def _keyless(self) -> list[Finding]:
        """Who is let in because of the machine they are on. Tools run there, too."""
        found = []
        if self._settings.admin_loopback:
            todo = "Remove `admin.loopback` where tools run on this machine, and behind any proxy."
            found.append(Finding("configuration", "warning", "Operators on this machine need no key.", todo))
        socket = self._settings.api_socket
        for caller in socket.callers if socket is not None else ():
            roles = " and ".join(sorted(caller.roles))
            what = f"Every process of uid {caller.uid} is {roles} over the Unix socket, without a key."
            found.append(Finding("configuration", "warning", what, "Run tools as another user, or use API keys."))
        return found

    async def _keys(self) -> list[Finding]:
        """The key is there, ours alone, outside the store, and opens the keyring."""
        settings = self._settings
        self.keyring = unlocked(settings, self.env, self.log)
        if self.env.get(KEY_ENV):
            todo = "Use a key file: a process's environment stays readable."
            return [Finding("keys", "warning", f"{KEY_ENV} opens the keyring.", todo)]
        return [
            Finding(
                "keys", "ok", "The key opens the keyring, and only you can read it.", "", key_origin(settings, self.env)
            )
        ]

    async def _values(self) -> list[Finding]:
        """Every value that the configuration names; the apps that have all of theirs."""
        self._look()
        if self.loaded is None:
            return []
        secrets = await self.seen.secrets() if self.seen is not None else {}
        found, doubts = self._unknown_secrets(), list[Finding]()
        for name, draft in self.loaded.apps.items():
            self.apps[name] = draft.app
            try:
                self.apps[name] = resolve(self.loaded, self.env, secrets, only={name}).apps[name]
            except ConfigRefused as refused:
                found += self._missing(name, refused.problems)
            doubts += [*_misplaced(draft.app), *self._doubts(name)]
        if self.loaded.login is not None:
            self.login, lacking = self.loaded.login.draft.app, Problems()
            for source in (self.loaded.login.draft.client_id, *self.loaded.login.draft.client_secrets):
                source.read(self.env, secrets, lacking)
            found += self._missing("login", lacking.found)
        for name, connector in self.loaded.connectors.items():
            lacking = Problems()
            if connector.token is not None:
                connector.token.read(self.env, secrets, lacking)
            found += self._missing(f"Connector/{name}", lacking.found)
        return [*(found or [Finding("secrets", "ok", "Every value of the configuration is at hand.")]), *doubts]

    def _unknown_secrets(self) -> list[Finding]:
        """While the key does not open the keyring, no secret can be called missing."""
        if self.keyring is not None or self.loaded is None or not self.loaded.secret_keys:
            return []
        count = counted(len(self.loaded.secret_keys), "secret")
        what = f"Not known for {count} of the configuration: the store could not be opened."
        return [Finding("secrets", "warning", what, "Mend what `keys` says, then run this again.")]

    def _missing(self, about: str, problems: Iterable[Problem]) -> list[Finding]:
        """A variable may be set where the broker runs; a secret of the store may not."""
        known = [it for it in problems if self.keyring is not None or not is_unread_secret(it)]
        return [
            Finding(
                "secrets",
                "warning" if "environment" in it.what else "failure",
                sentence(it.what),
                sentence(it.todo),
                about,
            )
            for it in known
        ]

    def _doubts(self, name: str) -> list[Finding]:
        draft = self.loaded.apps[name] if self.loaded is not None else None
        if draft is None or not (draft.doubts or draft.unusual_flow):
            return []
        see = f"`oauthbroker providers show {draft.app.provider}`"
        what = f"Relies on {counted(len(draft.doubts), 'unverified fact')} of its preset: {see}."
        if draft.unusual_flow:
            what = f"Its preset does not know whether {draft.app.flow} works there: {see}."
        return [Finding("configuration", "ok", what, "Connect once and see.", name)]

    def _look(self) -> None:
        """Opens the store to read, if it can be."""
        if self.keyring is None or self.store is not None:
            return
        opened = look_into(self._settings, self.keyring, self.clock)
        if opened is not None:
            self.store, self.seen = opened

    async def _audit(self) -> list[Finding]:
        """Whether a broker could write its next line, and whether the lines are as they were written."""
        if self.store is None:
            return []
        path = self.data / AUDIT_LOG
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC))
        except FileNotFoundError:
            return [Finding("audit", "ok", "No line was written yet.", "", str(path))]
        verdict = await FileTrail(self.data, AuditKeys(self.store.mac)).verify()
        if not verdict.sound:
            todo = "`oauthbroker audit verify` says where."
            return [
                Finding(
                    "audit", "failure", f"The log was changed: {counted(verdict.broken, 'break')}.", todo, str(path)
                )
            ]
        return [
            Finding("audit", "ok", f"Can be written; {counted(verdict.verified, 'line')} are genuine.", "", str(path))
        ]

    async def _api_keys(self) -> list[Finding]:
        return findings.of_api_keys(await self.seen.api_keys(), self.clock.now()) if self.seen is not None else []

    async def _work(self) -> list[Finding]:
        if self.seen is None:
            return []
        sessions, depth, due = await self.seen.sessions(), await self.seen.depth(), await self.seen.due()
        return findings.of_work(sessions, depth, self.clock.now(), due)

    async def _grants(self) -> list[Finding]:
        if self.seen is None:
            return []
        self.grants = await self.seen.grants()
        found = findings.of_grants(self.grants, self._facts())
        if damaged := len(self.seen.damaged):
            text = f"{counted(damaged, 'record')} cannot be read: {', '.join(self.seen.damaged[: findings.NAMED])}."
            found.append(Finding("grants", "failure", text, "Restore them from a backup; the others go on working."))
        return found

    async def _forecast(self) -> list[Finding]:
        if self.seen is None:
            return []
        self.forecast = forecast(self.grants, self._facts(), self.clock.now())
        return findings.of_forecast(self.forecast, self.clock.now())

    def _facts(self) -> dict[str, AppFacts]:
        known = presets()
        return {name: AppFacts.of(app, known.get(app.provider)) for name, app in self.apps.items()}


def _misplaced(app: OAuthApp) -> list[Finding]:
    """Scopes that stand among the app's and give no right."""
    todo = "Write it under `quirks.alwaysScopes`, where the preset does not have it already."
    return [
        Finding("configuration", "ok", f"{scope} stands in `scopes`: it asks for a refresh token only.", todo, app.name)
        for scope in sorted(NO_RIGHTS & app.scope_set)
    ]

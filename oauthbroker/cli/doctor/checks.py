"""Make the checks of `oauthbroker doctor` on this machine: configuration, key, disk, store, audit log.

The checks are independent: a failing one does not stop the others. They write nothing and take no lock of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from oauthbroker.cli.doctor import place
from oauthbroker.cli.doctor.audit_log import audit_log, refused_clients
from oauthbroker.cli.doctor.config_findings import keyless, misplaced, of_problem, of_proxies, unverified
from oauthbroker.cli.doctor.database import database_away
from oauthbroker.cli.doctor.values_outside import values_outside
from oauthbroker.cli.named_config import naming_config
from oauthbroker.cli.output.options import CONFIG
from oauthbroker.cli.output.tables import counted
from oauthbroker.config import ConfigInvalidError, ConfigProblem, Loaded, load, load_settings, resolve
from oauthbroker.config.problems.problems import Problems
from oauthbroker.config.reading.writers import open_to_all
from oauthbroker.config.values.value_sources import is_unread_secret
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.diagnostics import findings
from oauthbroker.diagnostics.findings import Check, Finding
from oauthbroker.diagnostics.forecast import AppFacts, Forecast, Forecaster
from oauthbroker.diagnostics.grant_findings import GrantFindings
from oauthbroker.diagnostics.inspection import Inspection
from oauthbroker.diagnostics.probing import probing
from oauthbroker.diagnostics.receivers import receivers
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.providers import presets
from oauthbroker.store.file.read_only import missing_in
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.wiring import KEY_ENV, key_origin, look_into, unlocked, with_keys


@dataclass(slots=True, kw_only=True)
class Doctor:
    """One run of the checks. Later checks use the results of earlier ones; a missing result is None."""

    config: Path
    env: Mapping[str, str]
    clock: Clock
    log: Log
    loaded: Loaded | None = None
    settings: Settings | None = None
    keyring: Keyring | None = None
    store: Store | None = None
    seen: Inspection | None = None
    apps: dict[str, App] = field(default_factory=dict)
    login: App | None = None
    progress: Progress = unseen
    lost: list[str] = field(default_factory=list)
    forecast: Forecast = field(default_factory=lambda: Forecast((), {}))

    async def here(self) -> list[Finding]:
        """Run all checks without network. Without a Broker resource the store's place is unknown."""
        found = await place.guarded("configuration", self._configuration)
        if self.settings is None:
            return found
        root = self.settings.store_root
        steps: dict[Check, place.Step] = {
            "keys": self._keys,
            "permissions": self._permissions,
            "disk": lambda: place.disk(root),
            "locks": lambda: place.locks(root),
            "secrets": self._values,
            "age": self._age,
            "audit": lambda: audit_log(root, self.store, self.progress),
            "database": self._database,
            "apiKeys": self._api_keys,
            "work": self._work,
            "grants": self._grants,
            "forecast": self._forecast,
        }
        others = {"disk", "locks"} if self.settings.store_url_env else {"database"}
        if self.settings.store_url_env and not place.is_there(root):  # a host of a database before its first start
            others.add("permissions")
        chosen = {check: step for check, step in steps.items() if check not in others}
        return [*found, *await self._all(chosen, "checks done")]

    async def away(self) -> list[Finding]:
        """Run the checks that need the network: providers and their clocks, our public address, receivers, plug-ins."""
        if self.settings is None:
            return []
        async with probing(self.settings, self.clock) as probe:
            asked = [*self.apps.values(), *([self.login] if self.login is not None else [])]
            steps: dict[Check, place.Step] = {
                "providers": lambda: probe.providers(asked),
                "clock": lambda: _clock(probe.skews),
                "address": lambda: probe.address(self._settings.public_base_url),
                "forwarders": self._forwarders,
                "secrets": lambda: values_outside(self._settings, self.apps.values()),
                "plugins": lambda: place.plugins(self._settings),
            }
            if self._is_for_one_machine:  # a login serves its pages itself
                del steps["address"]
            return await self._all(steps, "checks over the network done")

    async def _all(self, steps: Mapping[Check, place.Step], what: str) -> list[Finding]:
        found, count = list[Finding](), Count(what, len(steps), self.progress)
        for check, step in steps.items():
            found += await place.guarded(check, step)
            count.add()
        return found

    async def _forwarders(self) -> list[Finding]:
        """Check the receivers of forwarded events. Missing secrets are reported elsewhere."""
        secrets = await self.seen.repository.secrets.all() if self.seen is not None else {}
        drafts = self.loaded.forwarders if self.loaded is not None else ()
        return await receivers([each.resolved(self.env, secrets, Problems()) for each in drafts], self._settings)

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()

    @property
    def _settings(self) -> Settings:
        if self.settings is None:
            raise BrokerError(Code.CONFIG_INVALID, note="the Broker resource cannot be read")
        return self.settings

    @property
    def _is_readable(self) -> bool:
        return self.keyring is not None and not self.lost

    @property
    def _is_for_one_machine(self) -> bool:
        """Return whether every user is the person at this machine: their callbacks on loopback need no TLS."""
        apps = self.loaded.apps.values() if self.loaded is not None else ()
        return bool(apps) and all(each.app.owner.binding == "localOperator" for each in apps)

    async def _configuration(self) -> list[Finding]:
        """Check the configuration like `check`, with warnings. A fact is unverified until a user has connected."""
        problems: tuple[ConfigProblem, ...] = ()
        try:
            self.loaded = load(self.config, self.env)
            self.settings = with_keys(self.loaded.settings, self.env)
        except ConfigInvalidError as refused:
            problems = naming_config(refused, () if self.config == CONFIG else ("--config", str(self.config))).problems
        found = [of_problem("configuration", "failure", it, about=str(it.place)) for it in problems[: place.MOST_NAMED]]
        if len(problems) > place.MOST_NAMED:
            more = f"{len(problems) - place.MOST_NAMED} more."
            found.append(Finding("configuration", "failure", more, hint="`oauthbroker check` has all."))
        if self.loaded is None:
            with suppress(ConfigInvalidError):
                self.settings = with_keys(load_settings(self.config, self.env), self.env)
            return found
        hint = "Turn it on for real accounts."
        weaken = sorted(self.loaded.settings.weaken)
        found += [Finding("configuration", "warning", f"A check is off: {name}.", hint=hint) for name in weaken]
        if self._settings.public_base_url.startswith("http:") and not self._is_for_one_machine:
            plain = "publicBaseUrl is http: links and pages go without TLS."
            found.append(Finding("configuration", "warning", plain, hint="Use https for real accounts."))
        found += [of_problem("configuration", "warning", it, about=str(it.place)) for it in open_to_all(self.config)]
        found += [*keyless(self._settings), *of_proxies(self._settings, self.env)]
        apps, tools = len(self.loaded.apps), len(self.loaded.tools)
        return [*found, Finding("configuration", "ok", f"{counted(apps, 'app')}, {counted(tools, 'caller')}.")]

    async def _keys(self) -> list[Finding]:
        """Check that the key exists, is readable by us alone, lies outside the store, and opens the keyring."""
        settings = self._settings
        try:
            self.keyring = unlocked(settings, self.env, self.log)
        except BrokerError as refused:
            if away := await database_away(refused, settings, self.env):
                return away
            raise
        old = self.keyring.old_seeds
        found = findings.of_old_seeds(len(old), to_reseal=sum(not seed.resealed for seed in old))
        where = key_origin(settings, self.env)
        if where == KEY_ENV:
            hint = "Use a key file: a process's environment stays readable."
            return [Finding("keys", "warning", f"{KEY_ENV} opens the keyring.", hint=hint), *found]
        what = "The key opens the keyring" + ("." if settings.key_service else ", and only you can read it.")
        return [Finding("keys", "ok", what, about=where), *found]

    async def _permissions(self) -> list[Finding]:
        """Check the store's place, and that it has the folders of all kinds."""
        settings = self._settings
        found = await place.permissions(settings.store_root, settings.secret_files.values(), self.progress)
        if not settings.store_url_env:
            self.lost = missing_in(Path(settings.store_root))
        return [*found, *place.lost(self.lost)]

    async def _values(self) -> list[Finding]:
        """Check every value that the configuration names, and list the apps that have all of theirs."""
        self._look()
        if self.loaded is None:
            return []
        secrets = await self.seen.repository.secrets.all() if self.seen is not None else {}
        found, notices = self._unknown_secrets(), list[Finding]()
        loaded = replace(self.loaded, proxy_credentials=None)  # of no app, see below
        for name, draft in self.loaded.apps.items():
            self.apps[name] = draft.app
            try:
                self.apps[name] = resolve(loaded, self.env, secrets, only={name}).apps[name]
            except ConfigInvalidError as refused:
                found += self._missing(name, refused.problems)
            notices += [*misplaced(draft.app), *unverified(draft)]
            notices += [of_problem("configuration", "ok", notice, about=name) for notice in draft.notices]
        self.login = self.loaded.login.draft.app if self.loaded.login is not None else None
        for name, sources in self.loaded.sources_beside_apps:
            missing = Problems()
            for source in sources:
                source.read(self.env, secrets, missing)
            found += self._missing(name, missing.found)
        return [*(found or [Finding("secrets", "ok", "Every value of the configuration is at hand.")]), *notices]

    def _unknown_secrets(self) -> list[Finding]:
        """Report that secrets cannot be checked, because the store cannot be read."""
        if self._is_readable or self.loaded is None or not self.loaded.secret_keys:
            return []
        count = counted(len(self.loaded.secret_keys), "secret")
        what = f"Not known for {count} of the configuration: the store could not be opened."
        hint = "Fix what `keys`, `permissions` or `database` says, then run this again."
        return [Finding("secrets", "warning", what, hint=hint)]

    def _missing(self, about: str, problems: Iterable[ConfigProblem]) -> list[Finding]:
        """Report missing values: a variable may be set where the broker runs; a secret of the store may not."""
        known = [it for it in problems if self._is_readable or not is_unread_secret(it)]
        return [
            of_problem("secrets", "warning" if "environment" in it.what else "failure", it, about=about) for it in known
        ]

    def _look(self) -> None:
        """Open the store to read, if possible."""
        if self.keyring is None or self.store is not None or self.lost:
            return
        opened = look_into(self._settings, self.keyring, env=self.env, clock=self.clock)
        if opened is not None:
            self.store, self.seen = opened

    async def _age(self) -> list[Finding]:
        """Check that the store is not older than this host has seen it. Raises `storeRolledBack`."""
        if self.seen is None:
            return []
        await self.seen.age.check()
        return [Finding("age", "ok", "The store is not older than this host has seen it.")]

    async def _api_keys(self) -> list[Finding]:
        return findings.of_api_keys(await self.seen.api_keys(), self.clock.now()) if self.seen is not None else []

    async def _database(self) -> list[Finding]:
        seen = await self.seen.database() if self.seen is not None else None
        written = [] if seen is None else await place.guarded("database", self._writable)
        return [] if seen is None else [*written, *findings.of_database(seen, self._settings)]

    async def _writable(self) -> list[Finding]:
        """Raise `storeUnavailable` for a database that a broker cannot write to. Writes nothing."""
        if self.store is not None:
            await self.store.check_writable(self.store.key("grants", "probe"))
        return []

    async def _work(self) -> list[Finding]:
        if self.seen is None:
            return []
        sessions, depth, due = await self.seen.sessions(), await self.seen.depth(), await self.seen.repository.due()
        clients = findings.of_clients(await self.seen.clients(), self.clock.now())
        return [*findings.of_work(sessions, depth, self.clock.now(), len(due)), *clients]

    async def _grants(self) -> list[Finding]:
        if self.seen is None:
            return []
        facts = self._facts()
        found_in, forecaster = GrantFindings(facts), Forecaster(facts, self.clock.now())
        count = Count("grants checked", await self.seen.repository.count_grants(), self.progress)
        async for grant in self.seen.grants():
            count.add()
            found_in.add(grant)
            forecaster.add(grant)
        self.forecast, found = forecaster.result(), found_in.findings()
        if self.store is not None:
            found += await refused_clients(self._settings.store_root, self.store, found_in.tried_again)
        if damaged := len(self.seen.damaged):
            text = f"{counted(damaged, 'record')} cannot be read: {', '.join(self.seen.damaged[: findings.NAMED])}."
            hint = "Restore them from a backup; the others go on working."
            found.append(Finding("grants", "failure", text, hint=hint))
        return found

    async def _forecast(self) -> list[Finding]:
        if self.seen is None:
            return []
        return findings.of_forecast(self.forecast, self.clock.now())

    def _facts(self) -> dict[str, AppFacts]:
        known = presets()
        return {name: AppFacts.of(app, known.get(app.provider)) for name, app in self.apps.items()}


async def _clock(skews: list[float]) -> list[Finding]:
    return [findings.of_clock(skews)]

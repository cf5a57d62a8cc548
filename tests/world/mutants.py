"""Faults that are planted in the product, one line each. Each must break a law within `WORLDS` worlds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Final, NamedTuple

WORLDS: Final = 100


class Mutant(NamedTuple):
    """`before` stands in the module exactly once; `after` takes its place."""

    module: str
    before: str
    after: str


MUTANTS: Final = {
    "a refreshed grant keeps the refresh token that was sent": Mutant(
        "oauthbroker.protocol.refresh_call",
        "following = next_token_of(app, tokens, is_first=False) or (None if grant.renews_itself else sent)",
        "following = sent",
    ),
    "a refresh begins without an intent": Mutant(
        "oauthbroker.refresh.writeback",
        "refresh_state = refresh_state.begun(random_text(self.clock, 128), now)",
        "pass",
    ),
    "a refreshed token is tried to store once": Mutant(
        "oauthbroker.refresh.retry_store", "            if is_last:", "            if True:"
    ),
    "a grant is stored without an audit entry": Mutant(
        "oauthbroker.authorization.finish",
        "self.audit.write(entry, self.clock.now())  # no entry, no grant",
        "pass",
    ),
    "a revocation is answered and not stored": Mutant(
        "oauthbroker.revocation.revoke",
        "tombstone = versioned.record.tombstoned(now)",
        "tombstone = versioned.record",
    ),
    "a revocation is not told to the provider": Mutant(
        "oauthbroker.revocation.provider_requests",
        "took_note.append(await self._revoked(app, endpoints, token, hint))",
        "took_note.append(True)",
    ),
    "each version counts as current": Mutant(
        "oauthbroker.store.postgres.freshness", "        return confirmed\n", "        return True\n"
    ),
    "the subject is no part of a grant's name": Mutant(
        "oauthbroker.model.grant_key",
        "return tuple(self) if self.account else self[:2]",
        "return self[:1]",
    ),
    "a token leaves without an audit entry": Mutant(
        "oauthbroker.tokens.token_issuer",
        "            write=partial(self.audit.write, entry),",
        "            write=lambda _: None,",
    ),
    "an event is settled in its outbox and not queued": Mutant(
        "oauthbroker.events.outbox_relay",
        "await self._queues.enqueue(event)\n            except",
        "pass\n            except",
    ),
    "an acknowledged event stays in the queue": Mutant(
        "oauthbroker.events.postgres_queues",
        'if not await self._changed("ack", values):',
        "if False:",
    ),
    "the end of a grant is not in the audit log": Mutant(
        "oauthbroker.revocation.revoke",
        "await self.note(GrantEnded(app=tombstone.app, grant=tombstone.id))",
        "pass",
    ),
    "a record is sealed anew for another generation": Mutant(
        "oauthbroker.store.postgres.sealed_rows",
        "ring.seal(*place, generation, body)",
        "ring.seal(*place, generation + 1, body)",
    ),
    "a key is destroyed while records are sealed with it": Mutant(
        "oauthbroker.store.keys.rotation", "if old and not left:", "if old:"
    ),
    "a claim of a session is not stored": Mutant(
        "oauthbroker.authorization.finish",
        "return await self.repository.save_session(claimed, expect=versioned.generation)",
        "return versioned._replace(record=claimed)",
    ),
    "a claim of a session never lapses": Mutant(
        "oauthbroker.authorization.finish",
        "over = session.claim is None or not session.claim.holds(self.clock.now())",
        "over = session.claim is None",
    ),
}


class _Mutated(SourceFileLoader):
    """Loads a module with its fault."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()
        if text.count(self.mutant.before) != 1:
            raise ValueError(f"the line is not once in {self.path}: {self.mutant.before}")
        return compile(text.replace(self.mutant.before, self.mutant.after), self.path, "exec")


class _Finder(PathFinder):
    """Finds the module of a mutant, with its fault."""

    mutant: Mutant

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != cls.mutant.module:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Mutated(fullname, spec.origin)
            spec.loader.mutant = cls.mutant
        return spec


def plant(name: str) -> None:
    """Let the module be imported with its fault. Call it before anything of the product is imported."""
    _Finder.mutant = MUTANTS[name]
    if _Finder.mutant.module in sys.modules:
        raise RuntimeError("the module is imported already")
    sys.meta_path.insert(0, _Finder)

"""Faults that a person may make: `python -m tests.kit.mutants --planted` shows that the nearest tests find each of them.

Each row is a file, a text that stands in it once, and the text that is there instead.
"""

from __future__ import annotations

SEAL = "oauthbroker/store/format/seal.py"
DECISION = "oauthbroker/tokens/decision.py"
CALLBACK = "oauthbroker/protocol/callback_checks.py"
REFRESH = "oauthbroker/refresh/transaction.py"

PLANTED = (
    (SEAL, "os.urandom(32) if salt is None else salt", "bytes(32) if salt is None else salt"),
    (SEAL, "header, self.store_id.encode(), self.kind", "header, self.kind"),
    (SEAL, "self.kind.encode(), self.name.encode())", "self.kind.encode())"),
    (SEAL, "length_prefixed(header, self.store_id", 'length_prefixed(b"", self.store_id'),
    (SEAL, "if not hmac.compare_digest(keys.commit, header[COMMIT]):", "if False:"),
    (SEAL, "OneTimeKeys(okm[:32], okm[32:64], okm[64:])", "OneTimeKeys(okm[:32], okm[:32], okm[64:])"),
    (SEAL, 'header[SALT], f"oab/1/{kind}")', 'header[SALT], "oab/1/")'),
    (SEAL, "or len(record) > MAX_RECORD:", "or False:"),
    (SEAL, "if claimed is not None and claimed != place.name:", "if False:"),
    (SEAL, "if _open(keys, record, elsewhere) is not None:", "if True:"),
    (SEAL, "plain + bytes(-len(plain) % STEP)", "plain + bytes(STEP - len(plain) % STEP)"),
    (SEAL, " or plain[end:] != bytes(padding):", ":"),
    (SEAL, "if not plain.startswith(head) or", "if"),
    (SEAL, "return HEADER + plain + -plain % STEP + TAG", "return HEADER + plain + TAG"),
    (DECISION, "return min(self.default_ttl, ", "return max(self.default_ttl, "),
    (DECISION, "if grant is None or grant.registration != need.registration:", "if grant is None:"),
    (DECISION, "if grant.revoked or token is None or grant.refresh", "if token is None or grant.refresh"),
    (DECISION, 'or grant.refresh_state.ended == "quarantined"', ""),
    (DECISION, "need.scopes.isdisjoint(grant.declined)", "not grant.declined"),
    (DECISION, " and not (grant.refresh_tokens and not token.lives(0, now)):", ":"),
    (DECISION, "if grant.refresh_tokens and not grant.refresh_state.rests(now):", "if grant.refresh_tokens:"),
    (DECISION, " and token.lives(0, now) and not grant.refresh_state.ended:", " and token.lives(0, now):"),
    (DECISION, "if need.scopes.issubset(grant.refresh_state.asked)", "if grant.refresh_state.asked"),
    (DECISION, "need.ttl >= token.lifetime_seconds", "need.ttl > token.lifetime_seconds"),
    (DECISION, "max(need.default_ttl, token.lifetime_seconds / 2)", "token.lifetime_seconds / 2"),
    (DECISION, " or error.code is Code.SUBJECT_MISMATCH):", "):"),
    (DECISION, "if alive and need.ttl is None:", "if alive:"),
    (DECISION, 'grant is None or grant.revoked or reason == "noGrant"', 'grant is None or reason == "noGrant"'),
    (CALLBACK, "if not LOCATED.fullmatch(state):", "if not LOCATED.match(state):"),
    (CALLBACK, "session is None or not session.attempt.state.matches(params.state.reveal())", "session is None"),
    (CALLBACK, "if session.app != app.name:", "if False:"),
    (CALLBACK, "if not session.open or session.taken:", "if not session.open:"),
    (CALLBACK, "if session.is_past(now):", "if False:"),
    (CALLBACK, "needs_cookie(session) or app.owner.confirmation is not None", "needs_cookie(session)"),
    (CALLBACK, "params.issuer is not None and params.issuer != (issuer or None)", "False"),
    (CALLBACK, "params.issuer != (issuer or None)", "(issuer and params.issuer != issuer)"),
    (CALLBACK, "if params.issuer is None and promised:", "if False:"),
    (CALLBACK, "session.pending_code is None or session.is_past(now)", "session.pending_code is None"),
    (CALLBACK, 'session.link != "direct" or session.attempt.cookie is not None', 'session.link != "direct"'),
    (CALLBACK, "if name in values or value is None or", "if value is None or"),
    (CALLBACK, "if not code or len(code) > MAX_CODE or", "if not code or"),
    (CALLBACK, 'if error is None and not code and values.get("admin_consent"', 'if values.get("admin_consent"'),
    (REFRESH, "self.failures.check_pause(versioned.record, forced=job.forced)", "pass"),
    (REFRESH, "if not await lease.holds():  # nothing", "if False:  # nothing"),
    (REFRESH, "        if job.settled_by(versioned):\n            return Refreshed(_record(versioned))\n        if job.app", "        if job.app"),
    (REFRESH, "or not job.can_send(versioned.record, self.clock.now())", ""),
    (REFRESH, "or not overlapping_refreshes.is_attempted_as(versioned.record, begun)", ""),
    (REFRESH, "or secret not in versioned.record.refresh_tokens", ""),
    (REFRESH, "        return await lease.holds()\n", "        return True\n"),
    (REFRESH, "if redeemed is None:  # another attempt has come in between, or the lease is lost\n                        await self.writeback.withdraw(begun)", "if redeemed is None:"),
    (REFRESH, "except BrokerError:  # the store does not say whether it may be sent\n                    await self.writeback.withdraw(begun)", "except BrokerError:"),
    (REFRESH, "self._count_over(begun, redeemed.token)", "pass"),
    (REFRESH, "if error.code is not Code.STORE_LOCKED:", "if False:"),
    (REFRESH, '            self.failures.count(app.name, error, job.grant if own else "", own=own)\n', ""),
    (REFRESH, "self.writeback.retry_store.close()", "pass"),
    (REFRESH, "self.failures.not_fetched(app, job.grant, error)", "pass"),
)  # fmt: skip

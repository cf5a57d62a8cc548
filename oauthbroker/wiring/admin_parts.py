"""What the pages for operators stand on."""

from __future__ import annotations

from functools import cached_property

from oauthbroker.admin.admin_actions import Admin
from oauthbroker.admin.operator_login import OperatorLogin
from oauthbroker.admin.overview import Overview
from oauthbroker.wiring.parts import Parts


class AdminParts:
    """What operators see and do in a browser."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @cached_property
    def overview(self) -> Overview:
        return Overview(
            current=self._parts.config,
            repository=self._parts.repository,
            pages=self._parts.grants.pages,
            shared_circuits=self._parts.shared_circuits,
            uses=self._parts.uses,
            trail=self._parts.audit_trail,
            clock=self._parts.clock,
        )

    @cached_property
    def operator_login(self) -> OperatorLogin:
        return OperatorLogin(
            config=self._parts.config,
            discovery=self._parts.discovery,
            authorization_urls=self._parts.authorization_urls,
            claims=self._parts.pages.login_claims,
        )

    @cached_property
    def admin(self) -> Admin:
        return Admin(
            overview=self.overview,
            dead_letters=self._parts.dead_letters,
            grants=self._parts.grants,
            connect=self._parts.connect,
            browser_sessions=self._parts.browser_sessions,
            api_keys=self._parts.api_keys,
            login=self.operator_login,
            clock=self._parts.clock,
            audit=self._parts.audit,
        )

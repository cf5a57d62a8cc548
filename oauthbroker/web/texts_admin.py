"""Every word of the operators' pages, `/admin`, by language."""

from __future__ import annotations

from oauthbroker.errors import Locale
from oauthbroker.web.texts_admin_en import EN, AdminTexts
from oauthbroker.web.texts_admin_ko import KO

__all__ = ["ADMIN", "AdminTexts"]

ADMIN: dict[Locale, AdminTexts] = {"en": EN, "ko": KO}

"""Whether the browser that connected an account has shown to be its session's user: docs/pages.md lists when."""

from __future__ import annotations

from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import is_the_account
from oauthbroker.records import AuthSession


def proves_user(app: App, session: AuthSession) -> bool:
    """Tell whether a browser with the cookie of this completed session is its user's own: by the broker's login, or by
    an account that was compared with the subject.

    A channel code may have been sent for another person's browser, a key is known to others, and who connects a team's
    account is not the team.
    """
    unsure = app.subject_mode != "user" or app.owner.binding == "channelCode"
    if unsure or session.device is not None or session.config_digest != app.config_digest:
        return False
    if app.owner.confirmation == "brokerLogin":
        return True
    return app.credential is None and is_the_account(app, session.subject, session.account)

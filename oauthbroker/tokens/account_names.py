"""What a user calls each of the accounts that a call may name."""

from __future__ import annotations

from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.subject import allowed_accounts, resolve_subject
from oauthbroker.model.token_results import AccountName
from oauthbroker.model.turn import Turn
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import readable


async def names_of_accounts(repository: Repository, app: App, turn: Turn) -> tuple[AccountName, ...]:
    """Return the accounts that a call may name, with what its user calls each of them."""
    found = list[AccountName]()
    for account in allowed_accounts(app, turn):
        key = GrantKey(app.name, resolve_subject(app, turn), account)
        versioned = await readable(repository.grant(key))
        grant = versioned.record if versioned is not None and not versioned.record.revoked else None
        if grant is None:
            found.append(AccountName(account))
        else:
            found.append(AccountName(account, grant.label, grant.identity or "", grant.account_name))
    return tuple(found)

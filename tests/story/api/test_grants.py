"""Grants over HTTP, for operators: what there is, page by page, and ending one."""

from __future__ import annotations

import pytest

from oauthbroker.web.api.answers import GrantPage
from tests.house import ALICE, TEAM, House, turn
from tests.story.api.kit import Callers


async def three(house: House) -> None:
    for app in ("mail", "files", "team"):
        await house.connected(app, of=turn())


async def test_an_operator_sees_every_grant_and_no_token(house: House, api: Callers) -> None:
    await three(house)
    page = GrantPage.model_validate_json((await api.operator.get("/v1/grants")).body)
    assert {("mail", ALICE), ("files", ALICE), ("team", TEAM)} == {(each.app, each.subject) for each in page.grants}
    assert page.next is None
    assert [each.grantId for each in page.grants] == sorted(each.grantId for each in page.grants)


@pytest.mark.parametrize(
    "query, apps",
    [
        ("app=mail", {"mail"}),
        (f"subject={ALICE}", {"mail", "files"}),
        ("state=live", {"files", "team"}),
        ("state=revoked", {"mail"}),
        ("app=mail&state=live", set()),
        ("app=unknown", set()),
    ],
)
async def test_grants_are_chosen_by_app_subject_and_state(
    house: House, api: Callers, query: str, apps: set[str]
) -> None:
    await three(house)
    await house.broker.revoke("mail", subject=ALICE) if "state" in query else None
    found = (await api.operator.get(f"/v1/grants?{query}")).json()["grants"]
    assert apps == {each["app"] for each in found}


async def test_pages_follow_each_other_without_a_gap(house: House, api: Callers) -> None:
    await three(house)
    seen, after = list[str](), ""
    for _ in range(4):
        page = (await api.operator.get(f"/v1/grants?limit=1{after}")).json()
        seen += [each["app"] for each in page["grants"]]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert {"mail", "files", "team"} == set(seen)
    assert 3 == len(seen)


async def test_a_grant_is_ended_once_here_and_at_its_provider(house: House, api: Callers) -> None:
    ready = await house.connected()
    [grant] = (await api.operator.get("/v1/grants")).json()["grants"]
    path = f"/v1/grants/{grant['grantId']}"
    assert {"grantId": grant["grantId"], "provider": "done"} == (await api.operator.delete(path)).json()
    assert not house.idp.is_alive(ready.access_token.reveal())
    again = await api.operator.delete(path)
    unknown = await api.operator.delete(f"/v1/grants/sha256:{'0' * 64}")
    assert (404, "grantNotFound") == (again.status, again.code)
    assert again.body == unknown.body
    assert (400, "requestInvalid") == ((no := await api.operator.delete("/v1/grants/mail")).status, no.code)

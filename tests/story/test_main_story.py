"""The story in ten lines: from a missing token to a resumed agent."""

from __future__ import annotations

import pytest

from oauthbroker.model.token_results import Ready
from tests.kit.running_broker import Harness, turn


@pytest.mark.parametrize("app", ["mail", "team"])
@pytest.mark.rule("12.5.1-1", "12.5.1-5", "12.5.6-6", "12.5.6-7")
async def test_a_tool_gets_a_token_after_a_person_agreed(harness: Harness, app: str) -> None:
    asked = await harness.ask_link(app)
    page = await harness.connect(asked)
    assert 200 == page.status
    event = await harness.event()
    assert event is not None
    assert "auth.granted" == event["type"]
    assert asked.auth_session_id == event["payload"]["authSessionId"]
    assert turn().resume_target.to_json().items() <= event.items()
    ready = await harness.ask(app)
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token)
    assert await harness.event(wait=0) is None

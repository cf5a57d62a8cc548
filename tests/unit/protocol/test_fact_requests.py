"""Facts of an account that a provider is asked for: one that cannot be had is missing, and never an error."""

from __future__ import annotations

import io
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.connection_facts import ConnectionFacts, FactRequest
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import json_log
from oauthbroker.protocol.fact_requests import FactReader
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.records.open_facts import Learnt
from oauthbroker.testing import TestClock
from tests.kit.samples import app_with
from tests.unit.protocol.kit import answer

SITE = FactRequest(url="https://acme.example/sites", each={"site": "id"}, path="sites")


class Api:
    """Answers each request with this, or raises it."""

    def __init__(self, said: ProviderResponse | BrokerError) -> None:
        self.said, self.sent, self.log_text = said, list[str](), io.StringIO()

    async def send(self, request: Any, **_: Any) -> ProviderResponse:
        self.sent.append(request.url)
        if isinstance(self.said, BrokerError):
            raise self.said
        return self.said

    async def endpoints(self, app: App) -> Any:
        return app.endpoints

    async def learn(self, known: Any = None, **facts: Any) -> Learnt:
        api: Any = self
        log = json_log(self.log_text, TestClock())
        reader = FactReader(transport=api, discovery=api, limits=Limits(), log=log)
        return await reader.learn(app_with(facts=ConnectionFacts(**facts)), Secret("at-1"), known)


async def test_the_only_element_of_an_answer_has_the_facts() -> None:
    api = Api(answer({"sites": [{"id": "S1"}]}))
    assert {"site": "S1"} == (await api.learn(requests=(SITE,))).facts
    assert [SITE.url] == api.sent


async def test_of_several_elements_none_is_taken() -> None:
    learnt = await Api(answer({"sites": [{"id": "S1"}, {"id": "S2"}]})).learn(requests=(SITE,))
    assert ({}, ("site",), ()) == (learnt.facts, learnt.missing, learnt.candidates)


@pytest.mark.parametrize("said", [answer({}, 500), answer(b"<html>"), BrokerError(Code.PROVIDER_UNREACHABLE)], ids=str)
async def test_facts_of_a_request_that_fails_are_missing_and_the_operator_is_told(said: Any) -> None:
    api = Api(said)
    learnt = await api.learn(requests=(SITE,))
    assert ({}, ("site",), ()) == (learnt.facts, learnt.missing, learnt.candidates)
    assert "facts could not be read" in api.log_text.getvalue()


async def test_userinfo_that_is_known_already_is_not_asked_again() -> None:
    api = Api(answer({}, 500))
    assert {"team": "T1"} == (await api.learn({"org": {"id": "T1"}}, user_info={"team": "org.id"})).facts
    assert [] == api.sent

"""`serve --workers` and its figures: whoever is asked answers for all, and no count goes down when one of them dies."""

from __future__ import annotations

import time
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oauthbroker.testing import IdentityProvider
from tests.cli_kit import Desk, serving
from tests.service_kit import Service, children_of, kill, make_key, until, user_of
from tests.story.cli.test_serve_workers import all_serve, has_served

pytestmark = pytest.mark.slow

WORKERS = 3
NOWHERE = ("oauthbroker_http_requests_total", ("GET", "-", "4xx"))  # labels in the order of their names
READY = ("oauthbroker_token_call_seconds_count", ("ready",))
LIVING = ("oauthbroker_workers", ())


def get(desk: Desk, path: str) -> tuple[int, str]:
    line = HTTPConnection("127.0.0.1", desk.port, timeout=10)
    try:
        line.request("GET", path)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    finally:
        line.close()


def figures(desk: Desk) -> dict[tuple[str, tuple[str, ...]], float]:
    status, text = get(desk, "/metrics")
    assert 200 == status
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def settled(desk: Desk) -> dict[tuple[str, tuple[str, ...]], float]:
    """After every worker has had time to write down what it counted."""
    time.sleep(1.5)
    return figures(desk)


def test_whichever_worker_is_asked_the_figures_are_those_of_all(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    service = Service(desk.port, make_key(desk))
    with serving(desk, "--workers", str(WORKERS)) as process:
        all_serve(desk, WORKERS)
        for _ in range(30):
            assert 404 == get(desk, "/nowhere")[0]
        token = service.begin(user_of(idp))["turnToken"]
        for _ in range(12):
            assert 200 == service.token(token)[0]
        first = settled(desk)
        assert (30, 12, WORKERS) == (first[NOWHERE], first[READY], first[LIVING])
        assert {(30, 12)} == {(each[NOWHERE], each[READY]) for each in (figures(desk) for _ in range(12))}
        kill(children_of(process.pid)[0])
        until(lambda: has_served(desk, WORKERS + 1))
        again = settled(desk)
        assert (30, 12, WORKERS) == (again[NOWHERE], again[READY], again[LIVING])
        for _ in range(10):
            get(desk, "/nowhere")
        assert 40 == settled(desk)[NOWHERE]


def test_a_server_that_is_up_is_ready_and_says_so_to_any_host(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    with serving(desk):
        line = HTTPConnection("127.0.0.1", desk.port, timeout=10)
        line.request("GET", "/readyz", headers={"Host": "10.0.0.7:8420"})
        answer = line.getresponse()
        assert (200, b'{"status":"ready"}') == (answer.status, answer.read())
        line.close()

"""`serve --workers` and its figures: each worker answers for all, and no count goes down when one of them dies."""

from __future__ import annotations

from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk, log_lines, serving
from tests.kit.processes import children_of
from tests.kit.served_api import (
    Service,
    kill,
    make_key,
    serving_count_is,
    until,
    user_of,
    wait_until_all_serve,
)

pytestmark = pytest.mark.slow

WORKERS = 3
NOWHERE = ("oauthbroker_http_requests_total", ("GET", "-", "4xx"))  # labels in the order of their names
READY = ("oauthbroker_token_call_seconds_count", ("ready",))
LIVING = ("oauthbroker_workers", ())


def write_broker(desk: Desk, more: str) -> None:
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + more)


def get(desk: Desk, path: str) -> tuple[int, str]:
    line = HTTPConnection("127.0.0.1", desk.port, timeout=60)
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


def agree(desk: Desk, *expected: float) -> bool:
    """Tell whether each of 12 answers, by any worker, has these figures of all. A worker writes its own once a
    second."""
    told = [figures(desk) for _ in range(12)]
    return {expected} == {(each.get(NOWHERE), each.get(READY), each.get(LIVING)) for each in told}


@pytest.mark.case("79")
@pytest.mark.parametrize("loopback", [None, False, True])
def test_this_machine_is_an_operator_only_where_the_configuration_says_so(
    desk: Desk, idp: IdentityProvider, loopback: bool | None
) -> None:
    """A tool runs on this machine, too."""
    desk.ready_to_serve(idp)
    if loopback is not None:
        write_broker(desk, f"  admin: {{loopback: {str(loopback).lower()}}}\n")
    with serving(desk):
        assert (200 if loopback else 401) == get(desk, "/metrics")[0]
        _, page = get(desk, "/admin/login")
        assert ("/admin/enter" in page) is bool(loopback)
    said = [line for line in log_lines(desk) if line["event"] == "operators on this machine need no key"]
    assert (1 if loopback else 0) == len(said)


def test_every_user_that_the_socket_lets_in_without_a_key_is_named_at_start(
    desk: Desk, idp: IdentityProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk.ready_to_serve(idp)
    socket = tmp_path_factory.mktemp("s") / "api"
    write_broker(desk, f"  api: {{socket: {{path: {socket}, callers: [{{uid: 7}}, {{uid: 8, roles: [operator]}}]}}}}\n")
    with serving(desk):
        pass
    said = [line for line in log_lines(desk) if line["event"] == "a user of this machine needs no key"]
    assert [(7, ["runtime"]), (8, ["operator"])] == [(line["uid"], line["roles"]) for line in said]


def test_each_worker_answers_with_the_figures_of_all(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    write_broker(desk, "  admin: {loopback: true}\n")
    desk.connect("alice", idp)
    service = Service(desk.port, make_key(desk))
    with serving(desk, "--workers", str(WORKERS)) as process:
        wait_until_all_serve(desk, WORKERS)
        for _ in range(30):
            assert 404 == get(desk, "/nowhere")[0]
        token = service.begin(user_of(idp))["turnToken"]
        for _ in range(12):
            assert 200 == service.token(token)[0]
        until(lambda: agree(desk, 30, 12, WORKERS))
        kill(children_of(process.pid)[0])
        until(lambda: serving_count_is(desk, WORKERS + 1))
        until(lambda: agree(desk, 30, 12, WORKERS))
        for _ in range(10):
            get(desk, "/nowhere")
        until(lambda: agree(desk, 40, 12, WORKERS))


def test_a_server_that_is_up_is_ready_and_says_so_to_any_host(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    with serving(desk):
        line = HTTPConnection("127.0.0.1", desk.port, timeout=60)
        line.request("GET", "/readyz", headers={"Host": "10.0.0.7:8420"})
        answer = line.getresponse()
        assert (200, b'{"status":"ready"}') == (answer.status, answer.read())
        line.close()

"""What every test run here shares: choosing tests by number, and tests/e2e on machines that lack something."""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
import sys
from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import starlette.routing
from httpx2._config import create_ssl_context
from pydantic.json_schema import models_json_schema

import oauthbroker.cli
from oauthbroker.config.bundle import schema
from oauthbroker.protocol.network import api_transport, transport
from oauthbroker.protocol.network.tls_contexts import tls_context
from tests.kit import default_store, forms, installed, longest, postgres
from tests.kit.warm_python import warm_starts

os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"  # not the keychain of who runs the tests
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]  # httpx2 looks for it on every disk path at each request

pytest_plugins = [
    "oauthbroker.testing.pytest_plugin",  # no test may leak a secret, asked or not
    "tests.kit.hangs",
    "tests.kit.costs",
    "tests.kit.passed_output",
]

E2E = Path(__file__).parent / "e2e"

hypothesis.settings.register_profile("oauthbroker", deadline=None)  # a busy machine is slow, and no law is about time
hypothesis.settings.load_profile("oauthbroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oauthbroker")
    group.addoption("--case", action="append", default=[], metavar="N", help="only tests of case N (tests/CASES.md)")
    group.addoption("--rule", action="append", default=[], metavar="N", help="only tests of rule N (tests/CASES.md)")
    group.addoption(
        "--store", choices=["memory", "postgres"], default="memory", help="where stories keep their records"
    )
    group.addoption("--long", action="store_true", help="every row and example, as `make proof` runs them")


def pytest_configure(config: pytest.Config) -> None:
    """`tmp_path` lies in memory where it can: thousands of stores are written, and each of their writes is synced.
    What a machine does to a disk that it loses is played by `tests.kit.crashfs`, so that nothing is proven
    by a real one. PYTEST_DEBUG_TEMPROOT, pytest's own, names another place."""
    forms.use_long(config.getoption("--long"))
    hypothesis.settings.register_profile("form", max_examples=forms.examples(100))
    hypothesis.settings.load_profile("form")
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and (memory := installed.memory()):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts a background process
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the commands that we stop by Ctrl-C would inherit it


@pytest.fixture(scope="session", autouse=True)
def whole_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set up what all tests share. This is one fixture, since pytest looks for each one anew at each test."""
    with (
        chosen_store(in_postgres=request.config.getoption("--store") == "postgres"),
        data_folder(tmp_path_factory.mktemp("data")),
        warm_starts(),  # fresh interpreters took a quarter of a run
        one_trust_store(),
        compiled_paths(),
        built_schemas_and_commands(),
    ):
        yield


@contextmanager
def chosen_store(*, in_postgres: bool) -> Iterator[None]:
    """Open the store that `--store` names, for tests that name none."""
    if in_postgres:
        installed.demand([] if postgres.binaries() else [postgres.LACKS])
    with default_store.in_postgres() if in_postgres else nullcontext():
        yield


@contextmanager
def data_folder(empty: Path) -> Iterator[None]:
    """Let a test that names no data folder of the user find this one, never that of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(empty))
        yield


@contextmanager
def one_trust_store() -> Iterator[None]:
    """The machine's certificates are read once, not by each of thousands of brokers and clients: that took an eighth of
    a run."""
    shared = functools.cache(functools.partial(create_ssl_context, trust_env=False))

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None and not trust_env:
            return shared()
        return create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)

    with pytest.MonkeyPatch.context() as patch:
        for module in (transport, api_transport):
            patch.setattr(module, "tls_context", functools.cache(tls_context))
        patch.setattr("httpx2._transports.default.create_ssl_context", context)
        yield


@contextmanager
def compiled_paths() -> Iterator[None]:
    """The paths of the pages and the API are compiled once, not for each of thousands of brokers: that took a twelfth of
    a story."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("starlette.routing.compile_path", functools.cache(starlette.routing.compile_path))
        yield


@contextmanager
def built_schemas_and_commands() -> Iterator[None]:
    """The JSON Schema that `init` writes, and the parser of each command, are built once, not at each command line: that
    took a third of those stories."""
    built = functools.cache(models_json_schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "models_json_schema", lambda models, by_alias: built(tuple(models), by_alias=by_alias))
        patch.setattr(oauthbroker.cli, "command_of", functools.cache(oauthbroker.cli.command_of))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A private server. A test makes databases of its own in it."""
    installed.demand([] if postgres.binaries() else [postgres.LACKS])
    with postgres.server() as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests: they live as long as the run. It took a third of collecting, and a tenth of
    running."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)  # a story's objects outlive those of pytest that count as young
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    strangers = [item.nodeid for item in items if item.get_closest_marker("e2e") and E2E not in item.path.parents]
    if strangers:
        raise pytest.UsageError(f"`make test-e2e` collects {E2E.name}/ only, and would not see {strangers}")
    wanted = {("case", number) for number in config.getoption("--case")}
    wanted |= {("rule", number) for number in config.getoption("--rule")}
    if wanted:
        dropped = [item for item in items if not wanted & numbers_of(item)]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]

    if not forms.is_long() and not any("[" in each for each in config.args):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    longest.sort(items, workers=int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the rows that the short form leaves out. A test whose row is named on the command line is not sampled."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for name, table in tables.items() for item in _unsampled(name, table)}


def _unsampled(name: str, table: list[pytest.Item]) -> list[pytest.Item]:
    mark = table[0].get_closest_marker("sample")
    assert mark is not None
    kept = forms.chosen([_row(item) for item in table], int(mark.args[0]), name)
    return [item for place, item in enumerate(table) if place not in kept]


def _row(item: pytest.Item) -> list[Hashable]:
    """Return the values of a row, and the identity of those that are no words or numbers: pytest numbers them by row."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return []
    call = item.callspec
    plain = (str, int, type(None))
    return [value if isinstance(value, plain) else (id(value),) for value in call.params.values()]


def pytest_report_header(config: pytest.Config) -> str:
    return "form: long" if forms.is_long() else "form: short; `make proof` runs every row and example (--long)"


def numbers_of(item: pytest.Item) -> set[tuple[str, str]]:
    return {
        (mark.name, number) for mark in item.iter_markers() if mark.name in {"case", "rule"} for number in mark.args
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("e2e"):
        installed.demand(installed.missing())
    mark = item.get_closest_marker("embedded_only")
    if mark is not None and item.config.getoption("--store") != "memory":
        pytest.skip(f"for the embedded store only: {mark.args[0]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last word of a run that left something out."""
    reports = terminalreporter.stats.get("skipped", [])
    said = [report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple)]
    skips = [text.partition(installed.SKIPPED)[2] for text in said if installed.SKIPPED in text]
    if skips:
        terminalreporter.write_sep("!", f"{len(skips)} TESTS NOT RUN", red=True, bold=True)
        for lacks in sorted(set(skips)):
            terminalreporter.write_line(f"this machine lacks: {lacks}", red=True, bold=True)
        terminalreporter.write_line(
            "Install it and run `make test` again; E2E=required makes this a failure.", red=True
        )

"""`providerCa`: an authority of one's own, for all providers or for one app's; other certificates are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.testing import Authority
from tests.unit.config.bundles import APP, write

pytestmark = pytest.mark.case("35")

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec:
  publicBaseUrl: http://127.0.0.1:8420
  providerCa: ../ca/corp.pem
"""
LOGIN = """\
  login:
    client: {clientId: me, authMethod: none}
    endpoints: {issuer: "https://login.example"}
    subject: "corp:user:{sub}"
"""


@pytest.fixture
def corp(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca", "corp")


def with_ca(path: str) -> str:
    return APP.replace("spec:\n", f"spec:\n  providerCa: {path}\n", 1)


def test_the_brokers_authority_is_every_apps_and_the_logins(corp: Authority, tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "b", app=APP, broker=BROKER + LOGIN))
    pem = corp.file.read_text()
    assert loaded.login is not None
    assert [pem] * 2 == [loaded.login.draft.app.provider_ca, *(it.app.provider_ca for it in loaded.apps.values())]


def test_an_apps_own_comes_on_top_and_concerns_no_other(corp: Authority, tmp_path: Path) -> None:
    own = Authority(tmp_path / "ca", "own").file.read_text()
    other = APP.replace("name: ", "name: other-", 1).replace("redirect:", "# redirect:")
    loaded = load(write(tmp_path / "b", app=with_ca("../ca/own.pem"), other=other, broker=BROKER))
    found = {name: draft.app.provider_ca for name, draft in loaded.apps.items()}
    assert sorted(found.values(), key=len) == [corp.file.read_text(), corp.file.read_text() + own]


def test_what_stands_around_certificates_is_left_out(corp: Authority, tmp_path: Path) -> None:
    pem = corp.file.read_text()
    corp.file.write_text(f"# the authority of Acme Ü\n{pem}\nsubject=CN = acme\n{pem}")
    (draft,) = load(write(tmp_path / "b", app=with_ca("../ca/corp.pem"))).apps.values()
    assert pem == draft.app.provider_ca


BROKEN = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
WRONG: dict[str, tuple[bytes | None, str]] = {
    "no file": (None, "a file that cannot be read"),
    "empty": (b"", "a file without a certificate that can be read"),
    "DER": (b"0\x82\x01\x0a", "a file without a certificate that can be read"),
    "broken": (BROKEN.encode(), "a file without a certificate that can be read"),
    "a good and a broken one": (b"{pem}" + BROKEN.encode(), "a file without a certificate that can be read"),
    "a server's key": (b"{pem}-----BEGIN PRIVATE KEY-----\nMIIB\n", "a file with a private key in it"),
    "too large": (b"{pem}" + b"#" * (1024 * 1024), "a file that is too large"),
}


@pytest.mark.parametrize(("content", "what"), WRONG.values(), ids=WRONG)
def test_a_wrong_authority_is_refused_at_its_place(
    corp: Authority, tmp_path: Path, content: bytes | None, what: str
) -> None:
    pem = corp.file.read_bytes()
    corp.file.unlink() if content is None else corp.file.write_bytes(content.replace(b"{pem}", pem))
    folder = write(tmp_path / "b", app=with_ca("../ca/corp.pem"))
    with pytest.raises(ConfigInvalidError) as caught:
        load(folder)
    (problem,) = caught.value.problems
    assert ("spec.providerCa", what) == (problem.path, problem.what)
    line = with_ca("../ca/corp.pem").splitlines().index("  providerCa: ../ca/corp.pem") + 1
    assert str(problem.place).endswith(f"app.yaml:{line}:15")


@pytest.mark.parametrize("path", ['" "', '"\\0"', "../ca", "../ca/pipe"])
def test_a_special_file_is_refused_without_waiting(corp: Authority, tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "ca" / "pipe")
    with pytest.raises(ConfigInvalidError) as caught:
        load(write(tmp_path / "b", app=with_ca(path)))
    assert ["spec.providerCa"] == [problem.path for problem in caught.value.problems]

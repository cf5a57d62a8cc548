"""`keys` of the Broker resource: a key file, a key service, and further keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.model.settings import KeySource, Settings
from tests.unit.config.bundles import write

HEAD = "apiVersion: agents.example.io/v1alpha1\nkind: Broker\nmetadata: {name: broker}\nspec:\n"
ARN = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VAULT = "address: 'https://vault.example:8200', key: oauthbroker"


def settings(folder: Path, keys: str) -> Settings:
    return load(write(folder / "config", broker=f"{HEAD}  keys: {{{keys}}}\n")).settings


def test_a_transit_key_is_read_with_its_paths_from_the_file(tmp_path: Path):
    found = settings(tmp_path, f"vault: {{{VAULT}, mount: team/transit, namespace: a, tokenFile: ../token}}")
    options = {
        "address": "https://vault.example:8200",
        "mount": "team/transit",
        "namespace": "a",
        "tokenFile": str(tmp_path / "token"),
    }
    assert KeySource("vault", "oauthbroker", options) == found.key_service
    assert ("", ()) == (found.key_file, found.other_keys)


def test_a_token_is_named_and_not_read(tmp_path: Path):
    found = settings(tmp_path, f"vault: {{{VAULT}, token: {{valueFrom: {{env: VAULT_TOKEN}}}}}}")
    assert found.key_service is not None
    assert "VAULT_TOKEN" == found.key_service.options["tokenEnv"]


def test_further_keys_are_read_in_their_order(tmp_path: Path):
    found = settings(
        tmp_path,
        f"file: ../kek, also: [{{awsKms: {{keyArn: '{ARN}'}}}}, {{file: ../old.kek}}, {{plugin: {{name: hsm, settings: {{slot: 1}}}}}}]",
    )
    expected = (
        KeySource("awsKms", ARN),
        KeySource("file", str(tmp_path / "old.kek")),
        KeySource("plugin", "hsm", {"slot": 1}),
    )
    assert (None, str(tmp_path / "kek"), expected) == (found.key_service, found.key_file, found.other_keys)


REFUSED = {
    f"file: ../kek, awsKms: {{keyArn: '{ARN}'}}": "exactly one of file, vault, awsKms and plugin",
    "also: [{}]": "exactly one of file, vault, awsKms and plugin",
    "file: ' '": "Not a path",
    "vault: {key: a, tokenFile: ../t}": "Not the address of Vault",
    "vault: {address: 'http://vault.example:8200', key: a, tokenFile: ../t}": "Not the address of Vault",
    "vault: {address: 'https://vault.example', tokenFile: ../t}": "Not the name of a transit key",
    "vault: {address: 'https://vault.example', key: a/b, tokenFile: ../t}": "Not the name of a transit key",
    f"vault: {{{VAULT}}}": "exactly one of tokenFile and token",
    f"vault: {{{VAULT}, tokenFile: ../t, token: {{valueFrom: {{env: T}}}}}}": "exactly one of tokenFile and token",
    f"vault: {{{VAULT}, token: {{value: canary}}}}": "A secret in plain YAML",
    f"vault: {{{VAULT}, token: {{valueFrom: {{secretRef: {{ref: Secret/a, key: b}}}}}}}}": "lies in the store that it opens",
    f"vault: {{{VAULT}, tokenFile: ../t, ca: missing.pem}}": "A file that cannot be read",
    "awsKms: {keyArn: alias/oauthbroker}": "Not the ARN of a KMS key",
    f"awsKms: {{keyArn: '{ARN}', endpoint: 'http://kms.example'}}": "Not the address of AWS KMS",
    f"awsKms: {{keyArn: '{ARN}', ca: missing.pem}}": "A file that cannot be read",
    "plugin: {settings: {}}": "Not the name of a key provider",
    "also: [{vault: {key: a, tokenFile: ../t}}]": "spec.keys.also",
}  # fmt: skip


@pytest.mark.parametrize("keys", REFUSED)
def test_a_key_that_cannot_be_used_as_written_is_refused_at_its_place(tmp_path: Path, keys: str):
    with pytest.raises(ConfigInvalidError) as refused:
        settings(tmp_path, keys)
    reported = [str(problem) for problem in refused.value.problems]
    assert any(REFUSED[keys] in each and "keys" in each for each in reported), reported
    assert "canary" not in "".join(reported)


def test_an_agent_on_this_machine_may_answer_without_tls(tmp_path: Path):
    found = settings(tmp_path, "vault: {address: 'http://127.0.0.1:8100', key: a, tokenFile: ../t}")
    assert found.key_service is not None

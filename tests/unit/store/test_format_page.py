"""The worked example of the page on the format: each byte follows from the given ones, by the page's rules and by the code."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from oauthbroker.repository.repository import KINDS
from oauthbroker.store.format.entry_names import entry_names, label_macs, tag_of
from oauthbroker.store.format.seal import SealPlace, seal, unseal
from oauthbroker.store.keys.keyring_document import FORMAT
from oauthbroker.store.posix.folders import FIRST_KINDS
from tests.unit.store import second_reader as second

PAGE = (Path(__file__).parents[3] / "docs" / "store-format.md").read_text("utf-8")
GIVEN = ("nameKey", "storeId", "kid", "seed", "kind", "parts", "generation", "salt", "body")


def example() -> dict[str, str]:
    [block] = re.findall(r"### A worked example\n.*?```\n(.*?)```", PAGE, re.DOTALL)
    found, last = dict[str, str](), ""
    for line in block.splitlines():
        name, value = line[:18].strip(), line[18:]
        last = name or last
        found[last] = found.get(last, "") + value
    return found


def test_the_worked_example_is_what_the_code_and_the_second_reader_make() -> None:
    shown = example()
    assert [*GIVEN] == [*shown][: len(GIVEN)]
    name_key, kid, seed, salt = (bytes.fromhex(shown[each]) for each in ("nameKey", "kid", "seed", "salt"))
    kind, parts, body, store = shown["kind"], shown["parts"].split(), shown["body"].encode(), shown["storeId"]
    generation, name = int(shown["generation"]), second.entry_name(name_key, kind, *parts)
    key, commitment, nonce = second.hkdf(seed, salt, b"oab/1/" + kind.encode())
    header = b"OAB1\x01" + kid + generation.to_bytes(8, "big") + salt + commitment
    record = seal(kid, seed, SealPlace(store, kind, name), generation, body, salt=salt)
    made = {
        "name": name,
        "tag app mail": second.tag(name_key, kind, "app", "mail"),
        "key": key.hex(),
        "commitment": commitment.hex(),
        "nonce": nonce.hex(),
        "additional data": second.lp(header, store.encode(), kind.encode(), name.encode()).hex(),
        "record": record.hex(),
    }
    assert made == {each: value for each, value in shown.items() if each not in GIVEN}
    assert (name, made["tag app mail"]) == (
        entry_names(name_key)(kind, *parts),
        tag_of(label_macs(name_key), kind, "app", "mail").value,
    )
    assert (generation, body) == unseal({kid: seed}, SealPlace(store, kind, name), record)
    assert (generation, body) == second.open_record(
        {kid.hex(): base64.urlsafe_b64encode(seed).decode()}, store, kind, name, record
    )


def test_the_page_has_the_folders_of_all_kinds_of_the_first_version() -> None:
    [line] = [line for line in PAGE.splitlines() if "grants/ sessions/" in line]
    assert set(line.split()) == {f"{kind}/" for kind in FIRST_KINDS} <= {f"{kind}/" for kind in KINDS}


def test_the_page_names_the_format_that_the_code_writes() -> None:
    assert f"`{FORMAT}`" in PAGE
    assert f'"format": "{FORMAT}"' in PAGE

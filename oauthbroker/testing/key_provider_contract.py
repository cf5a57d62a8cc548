"""What every key provider (docs/keys.md) promises. Subclass it in your tests, with two fixtures:

class TestAcmeHsm(KeyProviderContract):  # pytest, and both names from this module
    @pytest.fixture
    def provider(self) -> KeyProvider:
        return AcmeHsm(slot=1)

    @pytest.fixture
    def stranger(self) -> KeyProvider:
        return AcmeHsm(slot=2)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import KeyProvider

__all__ = ["KeyProvider", "KeyProviderContract"]
_SECRET, _CONTEXT = bytes(range(32)), b"store 1, epoch 1, keyring"
_NOT_OPENED: frozenset[Code | None] = frozenset({Code.KEY_MISMATCH, Code.RECORD_CORRUPT, Code.KEY_UNKNOWN})


def code_of(call: Callable[[], object]) -> Code | None:
    """Return the code that a call raises; None if it returns."""
    try:
        call()
    except BrokerError as error:
        return error.code
    return None


class KeyProviderContract:
    """`provider` is the one under test, `stranger` has another key."""

    @pytest.fixture
    def provider(self) -> KeyProvider:
        raise NotImplementedError

    @pytest.fixture
    def stranger(self) -> KeyProvider:
        raise NotImplementedError

    def test_a_wrapped_secret_is_unwrapped_in_the_same_context(self, provider: KeyProvider) -> None:
        for context in (_CONTEXT, b"", bytes(range(256))):
            assert provider.unwrap(provider.wrap(_SECRET, context), context) == _SECRET

    def test_a_wrap_does_not_show_the_secret(self, provider: KeyProvider) -> None:
        wrapped = provider.wrap(_SECRET, _CONTEXT)
        assert _SECRET not in wrapped
        assert 0 < len(wrapped) <= 16 * 1024

    def test_it_does_not_open_in_another_context(self, provider: KeyProvider) -> None:
        wrapped = provider.wrap(_SECRET, _CONTEXT)
        assert code_of(lambda: provider.unwrap(wrapped, b"store 2, epoch 1, keyring")) in _NOT_OPENED

    def test_it_does_not_open_with_another_key(self, provider: KeyProvider, stranger: KeyProvider) -> None:
        wrapped = provider.wrap(_SECRET, _CONTEXT)
        assert code_of(lambda: stranger.unwrap(wrapped, _CONTEXT)) in _NOT_OPENED

    def test_damaged_bytes_do_not_open(self, provider: KeyProvider) -> None:
        wrapped = provider.wrap(_SECRET, _CONTEXT)
        damaged = (b"", wrapped[:-1], wrapped[:-4] + bytes(4), bytes([wrapped[0] ^ 1]) + wrapped[1:], b"\xff" * 40)
        for each in damaged:
            assert code_of(partial(provider.unwrap, each, _CONTEXT)) in _NOT_OPENED

    def test_its_id_is_printable_and_names_the_key(self, provider: KeyProvider, stranger: KeyProvider) -> None:
        assert provider.id().isprintable()
        assert provider.id() == provider.id() != stranger.id()

    def test_it_says_that_it_can_be_used(self, provider: KeyProvider) -> None:
        provider.health()

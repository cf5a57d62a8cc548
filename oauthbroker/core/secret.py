"""Secret: a string that does not leak.

Revealing is one searchable word, `reveal()`. Everything that prints, copies or stores objects behind
our back (repr, format, pickle, copy, json, pydantic) gets three stars or a TypeError.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, final

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


# A match for the name of a member that may hold a secret: then it is neither kept nor told.
is_named_like_a_secret: Callable[[str], object] = re.compile(
    r"token(?!_type$)|secret|password|assertion|^code$", re.IGNORECASE
).search


def digest_of(secret: str) -> str:
    """Return the hash under which a record keeps a secret. A fast one is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def has_digest(secret: str | None, kept: str | None) -> bool:
    """Return whether the secret has this hash, in constant time. False without either."""
    return secret is not None and kept is not None and hmac.compare_digest(kept, digest_of(secret))


@final
class Secret:
    """A secret text. Equality is constant-time and only ever true between two Secrets."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError("a Secret holds text")
        self._value = value

    def reveal(self) -> str:
        """Return the text itself. Call it where the text leaves the process on purpose, nowhere else."""
        return self._value

    def matches(self, text: str) -> bool:
        """Constant-time comparison with text that came from outside."""
        return hmac.compare_digest(self._value.encode(), text.encode("utf-8", "surrogatepass"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    __hash__ = None  # type: ignore[assignment]  # a hash of a secret would be an oracle in any dict that is dumped

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is neither pickled nor copied")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Let models take a Secret (or text to wrap) and can never dump one."""
        from pydantic_core import core_schema  # pydantic calls this, so it is installed; a client does not need it

        def refuse(value: Any) -> NoReturn:
            raise TypeError("a Secret is not serialised")

        return core_schema.union_schema(
            [
                core_schema.is_instance_schema(cls),
                core_schema.no_info_after_validator_function(cls, core_schema.str_schema()),
            ],
            serialization=core_schema.plain_serializer_function_ser_schema(refuse),
        )

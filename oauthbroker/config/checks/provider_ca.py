"""`providerCa`: a file with the certificates of an authority of one's own, read when the bundle is loaded."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.files import read_plain
from oauthbroker.config.reading.shape import Written

_MOST_BYTES: Final = 1024 * 1024
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_ADVICE: Final = "name a PEM file with the certificate of your authority"


def trusted_ca(written: Written[Any], path: str | None, at: Keys = ("providerCa",)) -> str:
    """Return the certificates in the file as PEM, and nothing else of it; empty where none is named or it is refused.

    `path` is relative to the file that names it, in the member `at`.
    """
    if path is None:
        return ""
    found, problem = _read(written.document.folder, path)
    if problem:
        written.refuse(at, problem, _ADVICE)
    return found


def _read(folder: Path, path: str) -> tuple[str, str]:
    if not path.strip() or "\x00" in path:
        return "", "not a path"
    try:
        data = read_plain(folder / Path(path).expanduser(), _MOST_BYTES)
    except RuntimeError:  # a home folder that is not known
        data = None
    if data is None:
        return "", "a file that cannot be read"
    if len(data) > _MOST_BYTES:
        return "", "a file that is too large"
    text = data.decode("ascii", "replace")
    if "PRIVATE KEY-----" in text:
        return "", "a file with a private key in it"
    blocks = [_BEGIN + block.partition(_END)[0] + _END for block in text.split(_BEGIN)[1:] if _END in block]
    certificates = "".join(f"{block}\n" for block in dict.fromkeys(blocks))
    return (certificates, "") if _is_usable(certificates) else ("", "a file without a certificate that can be read")


def _is_usable(certificates: str) -> bool:
    if not certificates:
        return False
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        return False
    return True

"""Smallest images that the configuration accepts."""

from __future__ import annotations

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"\x00" * 40

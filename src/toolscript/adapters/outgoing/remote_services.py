"""What adapters of remote services share: addresses for messages, waiting times, strict JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from toolscript.domain.errors import Invalid


def hide_credentials(url: str) -> str:
    """A URL without user, password and query, for messages and logs. Raises ValueError for an invalid URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_http_url(url: str) -> bool:
    """Whether this is an http(s) URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False


def require_http_url(url: str, setting: str, allowed: str) -> None:
    """Raises Invalid, naming the setting and what is allowed, unless this is an http(s) URL with a host."""
    if not is_http_url(url):
        raise Invalid(f"{setting} is not a valid URL: give {allowed}", details={"field": setting})


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a `Retry-After` header asks for; None without one, or where it is a date."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for `json.loads`. Raises ValueError when a key appears twice in an object."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key appears twice in an object")
    return unique

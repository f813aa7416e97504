"""Redaction of secrets: in log lines, and in what the audit keeps of a call."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

REDACTED = "[redacted]"
_NAMES = r"(?:[\w-]*(?:authorization|api[-_]?key|[-_]key|password|passwd|secret|credentials?|token)|(?:set-)?cookie)"
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:bearer +|basic +)?[^\s\"',;&`]+)"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_SECRETS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # https://user:password@host
        (r"(?<=://)[^\s/?#\"']*@", f"{REDACTED}@"),
        # ?token=...&
        (rf"([?&;](?:{_NAMES}|key|code|[\w-]*sig(?:nature)?)=)[^\s&#\"']+", rf"\1{REDACTED}"),
        # password=...
        (rf"(?<![\w-])({_NAMES}\s*=\s*)(?!\[redacted\]){_VALUE}", rf"\1{REDACTED}"),
        # "api_key": "..."
        (rf"([\"']{_NAMES}[\"']\s*:\s*){_VALUE}", rf"\1{REDACTED}"),
        # Authorization: Bearer ...
        (rf"(?<![\w-])((?:[\w-]*authorization|[\w-]*api-key|(?:set-)?cookie):\s*){_VALUE}", rf"\1{REDACTED}"),
        (r"\b(bearer)\s+(?!(?:key|tokens?|auth\w*)\b)[\w.~+/=-]+", rf"\1 {REDACTED}"),
        # signed tokens and API keys with a known prefix
        (r"\beyJ[\w-]{6,2000}\.[\w-]+\.[\w-]*", REDACTED),
        (r"\b(?:sk|pk|rk)-[\w-]{16,}", REDACTED),
        (r"\b(?:gh[pousr]|github_pat|glpat|hf|tsk|xox[abpr])[-_][\w-]{16,}", REDACTED),
        (r"\bA[KS]IA[0-9A-Z]{16}\b", REDACTED),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", REDACTED),
    )
)
# Most lines contain no secrets: one fast search avoids the patterns above.
_SUSPECT = re.compile(
    r"://|[?&;]\w|auth|key|pass|secret|credential|token|cookie|bearer|eyJ|[spr]k-|gh|gl|hf|tsk|xox|A[KS]IA",
    re.IGNORECASE,
)
# Names that are secret in arguments, and too common in logs.
_SECRET_ARGUMENT = re.compile(
    r"(?:[\w-]*[-_])?(?:auth|bearer|cvc|cvv|jwt|otp|pass|pin|pwd|ssn)|"
    r"[\w-]*(?:passphrase|passcode|[a-z]key|tokens|secrets)",
    re.IGNORECASE,
)
_PROXY_NAME = re.compile(r"(?:.*_)?proxy", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9_+-]{24,}")
# Of a text in the arguments, so many characters are kept; the margin is longer than the shortest secret of a pattern.
MAX_CHARACTERS, MARGIN = 1000, 100
MAX_DEPTH = 8


def redact_secrets(text: str) -> str:
    """Replaces everything in the text that looks like a secret: tokens, keys, passwords."""
    if not _SUSPECT.search(text):
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return bool(_SECRET_NAME.fullmatch(name))


def is_secret_argument(name: str) -> bool:
    """Whether an argument, a variable or a header of this name holds a secret."""
    return is_secret_name(name) or bool(_SECRET_ARGUMENT.fullmatch(name))


def list_proxy_secrets(environment: Mapping[str, str]) -> list[str]:
    """What reveals the password of a proxy in these variables: the password, also with its user in an address or in a
    `Proxy-Authorization` header, as it is written and decoded."""
    secrets: list[str] = []
    for name, value in environment.items():
        login, at, _ = value.rpartition("@")
        if not at or not _PROXY_NAME.fullmatch(name):
            continue
        user, _, password = login.rpartition("://")[2].partition(":")
        if not password:
            continue
        decoded = f"{unquote(user)}:{unquote(password)}"
        secrets += [password, unquote(password), f"{user}:{password}@", f"{decoded}@"]
        secrets.append(base64.b64encode(decoded.encode("utf-8", "replace")).decode())
    return secrets


def redact_arguments(value: Any, *, name: str = "", depth: int = MAX_DEPTH, secrets: Sequence[str] = ()) -> Any:
    """The arguments of a call without what looks like a secret, by the names of fields and by the looks of values,
    without known `secrets`, and with long texts cut. Stricter than logs are: a text without its secret is still an
    audit, the reverse is a leak."""
    if value is None or isinstance(value, bool):
        return value
    is_count = isinstance(value, int | float) and name.lower().endswith("tokens")
    if not is_count and is_secret_argument(name):
        return REDACTED
    if isinstance(value, int | float):
        return REDACTED if str(value) in secrets else value
    if not depth:
        return REDACTED
    if isinstance(value, Mapping):
        pairs = ((str(key), each) for key, each in value.items())
        return {
            redact_text(key, secrets): redact_arguments(each, name=key, depth=depth - 1, secrets=secrets)
            for key, each in pairs
        }
    if isinstance(value, list | tuple):
        # The words of a command line: --password hunter2
        flags = ["", *(each.lstrip("-") if isinstance(each, str) and each[:1] == "-" else "" for each in value)]
        return [
            redact_arguments(each, name=flag, depth=depth - 1, secrets=secrets)
            for flag, each in zip(flags, value, strict=False)
        ]
    return redact_text(value if isinstance(value, str) else str(value), secrets)


def redact_text(text: str, secrets: Sequence[str] = ()) -> str:
    """The beginning of a text without known `secrets`, the longest first, and without what looks like one."""
    max_secret = len(secrets[0]) if secrets else 0
    known = text[: MAX_CHARACTERS + MARGIN + max_secret]
    is_whole = len(known) == len(text)
    for secret in secrets:
        known = known.replace(secret, REDACTED)
    known = known if is_whole else known[: len(known) - max_secret]  # there may be the beginning of a secret
    is_whole = is_whole and len(known) <= MAX_CHARACTERS + MARGIN
    cleaned = _TOKEN.sub(_redact_random, redact_secrets(known[: MAX_CHARACTERS + MARGIN]))
    if is_whole:
        return cleaned
    # A secret that the window cuts in two may be too short to be recognized: the margin goes, with such a part of it.
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{cleaned[:-MARGIN]}… ({len(text)} characters, sha256 {digest})"


def _redact_random(match: re.Match[str]) -> str:
    """Replaces what looks random: long, with lower case, upper case and digits."""
    word = match[0]
    is_random = any(map(str.islower, word)) and any(map(str.isupper, word)) and any(map(str.isdigit, word))
    return REDACTED if is_random else word

"""The secrets of the servers' configuration and of the machine's proxies. The audit must not keep them, wherever a
caller passes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from urllib.parse import parse_qsl, unquote, urlsplit

from toolscript.domain.redaction import is_secret_argument, list_proxy_secrets
from toolscript.domain.servers import ServerSpec

# Shorter values are in many words.
MIN_CHARACTERS = 6


def list_configured_secrets(specs: Iterable[ServerSpec]) -> list[str]:
    """The values that have the name of a secret in these entries, and the passwords of proxies, the longest first."""
    values = {*list_proxy_secrets(os.environ), *(value for spec in specs for value in _list_values(spec))}
    return sorted((value for value in values if len(value) >= MIN_CHARACTERS), key=len, reverse=True)


def _list_values(spec: ServerSpec) -> Iterator[str]:
    yield spec.oauth.client_secret
    fixed = (argument for tool in spec.tools.values() for argument in tool.arguments.values())
    yield from (secret for argument in fixed for secret in argument.secrets)
    yield from list_proxy_secrets(spec.env)
    for name, value in [*spec.env.items(), *spec.headers.items()]:
        if is_secret_argument(name):
            yield value
            yield value.rpartition(" ")[2]  # without `Bearer`
    words = [word for each in spec.args for word in each.split("=", 1)]
    yield from (value for name, value in pairwise(words) if name[:1] == "-" and is_secret_argument(name.lstrip("-")))
    for address in (spec.url, spec.openapi, *spec.args):
        parts = urlsplit(address) if "://" in address else urlsplit("")
        yield unquote(parts.password or "")
        yield from (value for name, value in parse_qsl(parts.query) if is_secret_argument(name))

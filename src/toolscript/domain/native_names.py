"""The names of prompts and resources on our own MCP server. A name includes the server that it comes from.

A prompt is `server__name`. A resource is `toolscript:server/URI`, with the URI unchanged: so a URI template with that
prefix is a template too, and expands to the prefix and what the server's own template expands to. Names of servers have
no "__" and no "/", so both can be turned back exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

URI_SCHEME = "toolscript:"
PROMPT_SEPARATOR = "__"
MAX_MATCHED_LENGTH = 2_000
_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
# What an expression of a URI template may have been expanded to, by its operator.
_EXPANSIONS = {
    "+": ".*",
    "#": "(?:#.*)?",
    ".": r"(?:\.[^/?#]*)?",
    "/": "(?:/[^?#]*)?",
    ";": "(?:;[^/?#]*)?",
    "?": r"(?:\?[^#]*)?",
    "&": "(?:&[^#]*)?",
    "": "[^/?#]*",
}


def name_prompt(server: str, name: str) -> str:
    """The name of a server's prompt on our server."""
    return f"{server}{PROMPT_SEPARATOR}{name}"


def split_name(name: str) -> tuple[str, str]:
    """The server of a prompt or tool, and the name that it has there; an empty name where there is no separator.

    >>> split_name("github__review__twice")
    ('github', 'review__twice')
    """
    server, _, own = name.partition(PROMPT_SEPARATOR)
    return server, own


def wrap_uri(server: str, uri: str) -> str:
    """The URI, or URI template, on our server of a server's URI.

    >>> wrap_uri("my notes", "memo://{year}/{month}")
    'toolscript:my%20notes/memo://{year}/{month}'
    """
    return f"{URI_SCHEME}{quote(server, safe='')}/{uri}"


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    """The server and its own URI; None for a URI that is not one of ours.

    >>> unwrap_uri("toolscript:my%20notes/memo://2026/11")
    ('my notes', 'memo://2026/11')
    """
    server, slash, own = uri.removeprefix(URI_SCHEME).partition("/")
    return (unquote(server), own) if uri.startswith(URI_SCHEME) and server and slash and own else None


def matches_template(template: str, uri: str) -> bool:
    """Whether a URI can be an expansion of the URI template.

    >>> matches_template("memo://{year}/{month}", "memo://2026/11"), matches_template("memo://{year}", "memo://2026/11")
    (True, False)
    """
    if len(uri) > MAX_MATCHED_LENGTH:
        return False
    pattern, end = "", 0
    for found in _EXPRESSION.finditer(template):
        pattern += re.escape(template[end : found.start()]) + _EXPANSIONS[found[1]]
        end = found.end()
    return re.fullmatch(pattern + re.escape(template[end:]), uri, re.DOTALL) is not None


def wrap_block(server: str, block: Any) -> Any:
    """A content block with URIs of our server in its link or embedded resource. Web addresses stay: clients and people
    open web addresses themselves.

    >>> wrap_block("notes", {"type": "resource_link", "uri": "memo://welcome", "name": "welcome"})["uri"]
    'toolscript:notes/memo://welcome'
    """
    if not isinstance(block, Mapping):
        return block
    if block.get("type") == "resource_link":
        return _wrap_uri_of(server, block)
    resource = block.get("resource")
    if block.get("type") == "resource" and isinstance(resource, Mapping):
        return {**block, "resource": _wrap_uri_of(server, resource)}
    return block


def _wrap_uri_of(server: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    uri = entry.get("uri")
    is_wrapped = isinstance(uri, str) and not uri.startswith(("http:", "https:"))
    return {**entry, "uri": wrap_uri(server, str(uri))} if is_wrapped else dict(entry)

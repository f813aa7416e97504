"""What servers say of themselves, read leniently: keep what can be used, name what cannot.

Only an unusable name costs an item. Any other flaw costs the flawed part.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.servers import ServerListing, ServerSpec

LONGEST_NAME = 256
LONGEST_DESCRIPTION = 20_000
MOST_PROBLEMS = 20
SHORTEST_SECRET = 4
DEEPEST = 64

# What each kind of list is called in the protocol: the method, the key of its answer.
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_ANSWERS = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
_RESERVED = ("prompt:", "resource:")
_SECRETIVE = re.compile(r"(?i)token|secret|passw|pwd|api[-_]?key|credential|auth")
_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
_VARIABLE = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")


def acceptable(method: str, raw: dict[str, Any], known_versions: Sequence[str], *, modern: bool) -> dict[str, Any]:
    """The answer with whatever a strict reader could object to taken out; what it has no use for is not even shown
    (it wants tools only where `modern` servers have some of their arguments sent as headers)."""
    if method == "initialize":
        version = raw.get("protocolVersion")
        told = raw.get("serverInfo")
        info: dict[str, Any] = told if isinstance(told, dict) else {}
        return {
            "protocolVersion": version if version in known_versions else known_versions[-1],
            "capabilities": {k: {} for k in raw.get("capabilities") or {} if isinstance(k, str)},
            "serverInfo": {"name": str(info.get("name", "")), "version": str(info.get("version", ""))},
        }
    if method == "tools/list" and modern:
        return {**_page(raw), "tools": [_shown(t) for t in _dicts(raw.get("tools")) if isinstance(t.get("name"), str)]}
    if method in LISTS:
        return {**_page(raw), LISTS[method]: []}
    if method in _ANSWERS:
        return {**_kept(raw), _ANSWERS[method]: []}
    return raw


def read_items(server: str, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> ServerListing:
    """The items in a server's answers (by method, page by page), and what was wrong with them."""
    problems: list[str] = []
    items: dict[str, Item] = {}
    for method, pages in answers.items():
        for raw in (entry for page in pages for entry in _entries(page.get(LISTS[method]), problems, method)):
            item = _item(server, method, raw, problems)
            if item is None:
                continue
            if item.id in items:
                problems.append(f"{item.type} {item.name!r} is listed twice: the first one counts")
            items.setdefault(item.id, item)
    more = len(problems) - MOST_PROBLEMS
    return ServerListing(list(items.values()), [*problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


def expanded(template: str, arguments: Mapping[str, Any]) -> str:
    """A resource template's URI with its variables filled in."""

    def fill(found: re.Match[str]) -> str:
        operator, names = found[1], [name.strip().removesuffix("*") for name in found[2].split(",")]
        given = [(name, str(arguments[name])) for name in names if name in arguments]
        safe = "/:?#[]@!$&'()*+,;=" if operator in {"+", "#"} else ""
        if operator in {"?", "&"}:
            pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in given)
            return f"{operator}{pairs}" if pairs else ""
        lead = operator if operator not in {"", "+"} and given else ""
        return lead + (operator if operator in {"/", "."} else ",").join(quote(v, safe=safe) for _, v in given)

    return _VARIABLE.sub(fill, template)


def secrets_of(spec: ServerSpec) -> set[str]:
    """What of a server's configuration nobody else may read: values of variables and headers, passwords in addresses,
    arguments that say what they are."""
    values = [*spec.env.values(), *(part for value in spec.headers.values() for part in (value, *value.split()))]
    for name, value in zip(("", *spec.args), (*spec.args, ""), strict=True):
        flag, _, given = value.partition("=")
        values += [given] if _SECRETIVE.search(flag) else []
        values += [value] if name.startswith("-") and _SECRETIVE.search(name) else []
    for address in (spec.url, *spec.args):
        values += _PASSWORD.findall(address) + [value for _, value in parse_qsl(address.partition("?")[2])]
    return {value for value in values if len(value) >= SHORTEST_SECRET}


def _page(raw: Mapping[str, Any]) -> dict[str, Any]:
    cursor = raw.get("nextCursor")
    return {**_kept(raw), "nextCursor": cursor} if isinstance(cursor, str) and cursor else _kept(raw)


def _kept(raw: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: raw[k] for k in ("ttlMs", "cacheScope") if k in raw}
    return {**kept, "resultType": "complete"} if "resultType" in raw else kept


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    fine = (
        isinstance(schema, dict) and schema.get("type") == "object" and isinstance(schema.get("properties", {}), dict)
    )
    return {"name": tool["name"], "inputSchema": schema if fine else {"type": "object"}}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _entries(value: Any, problems: list[str], method: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        problems.append(f"its answer to {method} holds no list")
        return
    is_clean = _is_clean(value)
    for entry in value:
        if not isinstance(entry, dict):
            problems.append(f"its answer to {method} holds something that is no object")
        elif _depth(entry) > DEEPEST:
            problems.append(f"{str(entry.get('name'))[:40]!r} was left out: it is nested more than {DEEPEST} deep")
        else:
            yield entry if is_clean else clean(entry)


def _item(server: str, method: str, raw: Mapping[str, Any], problems: list[str]) -> Item | None:
    kind = {"tools/list": ItemType.TOOL, "prompts/list": ItemType.PROMPT}.get(method, ItemType.RESOURCE)
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        problems.append(f"a {kind} without a usable name was left out")
        return None
    if kind is ItemType.TOOL and name.startswith(_RESERVED):
        problems.append(f"tool {name!r} was left out: a name may not start with {' or '.join(_RESERVED)}")
        return None
    title = raw.get("title")
    description = _text(raw.get("description"), f"the description of {kind} {name!r}", problems)
    uri = raw.get("uri") or raw.get("uriTemplate")
    if kind is ItemType.RESOURCE and not isinstance(uri, str):
        problems.append(f"resource {name!r} has no URI and was left out")
        return None
    return Item(
        server=server,
        name=name,
        description=description or (str(uri) if kind is ItemType.RESOURCE else ""),
        type=kind,
        title=title if isinstance(title, str) and title else None,
        input_schema=_input_schema(method, raw, problems),
        output_schema=_schema(raw.get("outputSchema"), f"the output schema of {name!r}", problems),
        annotations=_annotations(method, raw),
    )


def _input_schema(method: str, raw: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    match method:
        case "tools/list":
            return _schema(raw.get("inputSchema"), f"the input schema of {raw['name']!r}", problems)
        case "prompts/list":
            named = {a["name"]: a for a in _dicts(raw.get("arguments")) if isinstance(a.get("name"), str)}
            properties = {
                n: {"type": "string", "description": str(a.get("description") or "")} for n, a in named.items()
            }
            required = [n for n, a in named.items() if a.get("required") is True]
        case "resources/templates/list":
            parts = _VARIABLE.findall(str(raw["uriTemplate"]))
            found = {name.strip().removesuffix("*"): operator for operator, names in parts for name in names.split(",")}
            properties = {name: {"type": "string"} for name in found}
            required = [name for name, operator in found.items() if operator not in {"?", "&"}]
        case _:
            return {"type": "object", "properties": {}}
    return {"type": "object", "properties": properties, "required": required}


def _annotations(method: str, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    told = raw.get("annotations")
    kept: dict[str, Any] = dict(told) if isinstance(told, dict) else {}
    if method.startswith("resources/"):
        kept |= {k: raw[k] for k in ("uri", "uriTemplate", "mimeType") if isinstance(raw.get(k), str)}
    return kept or None


def _schema(value: Any, what: str, problems: list[str]) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        problems.append(f"{what} is no object and is ignored")
    return value if isinstance(value, dict) else None


def _text(value: Any, what: str, problems: list[str]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        problems.append(f"{what} is no text and is ignored")
        return ""
    if len(value) > LONGEST_DESCRIPTION:
        problems.append(f"{what} has {len(value)} characters: the first {LONGEST_DESCRIPTION} are kept")
    return value[:LONGEST_DESCRIPTION]


def clean(value: Any) -> Any:
    """The value without what no database or reader takes: NUL, halves of surrogate pairs, numbers beyond all bounds.
    Raises RecursionError for what is nested too deep."""
    return value if _is_clean(value) else _cleaned(value)


def _is_clean(value: Any) -> bool:
    """Seen fast, because nearly everything is."""
    try:
        return b"\\u0000" not in json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_cleaned(k): _cleaned(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_cleaned(v) for v in value] if isinstance(value, list) else value


def _depth(value: Any) -> int:
    """How deep a value is nested, counted no further than it matters."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [c for v in level for c in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())]
        depth += 1
    return depth

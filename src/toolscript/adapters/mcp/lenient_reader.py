"""Reads the answers of servers leniently: keeps what is usable and reports the rest. An item is dropped only for an
unusable name; any other flaw costs the flawed part."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast
from urllib.parse import parse_qsl, quote

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.servers import ServerListing, ServerSpec

MAX_NAME_LENGTH = 256
MAX_DESCRIPTION_LENGTH = 20_000
MAX_DEFINITION_LENGTH = 100_000
MAX_PROBLEMS = 20
# Of one server: tools, prompts and resources together. A search over as many takes 10 ms, a server with 1,000 is rare.
MAX_ITEMS = 10_000
MIN_SECRET_LENGTH = 4
# They are checked in 5 ms.
MAX_VALUES_AT_ONCE = 10_000
MAX_DEPTH = 64

# Protocol methods that list items, and the key of each answer.
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
AGENT_SKILLS = "skills/list", "skills"
_RESULT_KEYS = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
_RESERVED = ("prompt:", "resource:", "agent_skill:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|pwd|api[-_]?key|credential|auth")
_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
_VARIABLE = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")


def make_acceptable(method: str, raw: dict[str, Any], known_versions: Sequence[str], *, modern: bool) -> dict[str, Any]:
    """Returns a version of the answer that the strict SDK accepts. Lists are emptied, except tools of `modern` servers:
    the SDK needs their schemas to send some arguments as headers."""
    if method == "initialize":
        version = raw.get("protocolVersion")
        server_info = raw.get("serverInfo")
        info: dict[str, Any] = server_info if isinstance(server_info, dict) else {}
        return {
            "protocolVersion": version if version in known_versions else known_versions[-1],
            "capabilities": _keep_capabilities(raw.get("capabilities") or {}),
            "serverInfo": {"name": str(info.get("name", "")), "version": str(info.get("version", ""))},
        }
    if method in LISTS:
        tools = _only_dicts(raw.get("tools"))[:MAX_ITEMS] if method == "tools/list" and modern else []
        kept = [_reduce_tool(tool) for tool in tools if isinstance(tool.get("name"), str)]
        cursor = raw.get("nextCursor")
        page = {"nextCursor": cursor} if isinstance(cursor, str) and cursor else {}
        return {**_keep_common_fields(raw), **page, LISTS[method]: kept}
    if method in _RESULT_KEYS:
        return {**_keep_common_fields(raw), _RESULT_KEYS[method]: []}
    return raw


def _keep_capabilities(raw: Any) -> dict[str, Any]:
    """The names of the capabilities and of the extensions."""
    extensions = raw.get("extensions") if isinstance(raw, Mapping) else None
    kept: dict[str, Any] = {name: {} for name in raw if isinstance(name, str)}
    return kept | ({"extensions": {name: {} for name in extensions}} if isinstance(extensions, dict) else {})


def keep_valid_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of a tool without fields of a type that no client would accept."""
    is_valid = {"content": list, "_meta": dict, "isError": bool}
    kept = {k: v for k, v in result.items() if isinstance(v, is_valid.get(k, object))}
    return {**kept, "content": _only_dicts(kept["content"])} if "content" in kept else kept


def read_items(server: str, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> ServerListing:
    """Reads the items of a server's answers (by method, page by page) and lists their problems."""
    problems: list[str] = []
    items: dict[str, Item] = {}
    for method, pages in answers.items():
        for raw in (entry for page in pages for entry in _iterate_entries(page.get(LISTS[method]), problems, method)):
            item = _read_item(server, method, raw, problems)
            if item is None:
                continue
            if item.id in items and item.type is ItemType.RESOURCE:
                item = _name_by_uri(item)  # names of resources need not be unique, their URIs are
            if item.id in items:
                problems.append(f"{item.type} {item.name!r} is listed twice: the first is used")
            items.setdefault(item.id, item)
    more = len(problems) - MAX_PROBLEMS
    return ServerListing(list(items.values()), [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


def _name_by_uri(item: Item) -> Item:
    about = item.annotations or {}
    uri = str(about.get("uri") or about.get("uriTemplate"))
    return replace(item, name=uri, title=item.title or item.name) if is_usable_name(uri) else item


def expand_template(template: str, arguments: Mapping[str, Any]) -> str:
    """Fills in the variables of a resource template's URI."""

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


def find_secrets(spec: ServerSpec) -> set[str]:
    """Finds the secrets of a configuration: values of variables and headers, passwords in URLs, arguments named like
    secrets."""
    values = [*spec.env.values(), *(part for value in spec.headers.values() for part in (value, *value.split()))]
    values.append(spec.oauth.client_secret)
    values += [secret for tool in spec.tools.values() for each in tool.arguments.values() for secret in each.secrets]
    for name, value in zip(("", *spec.args), (*spec.args, ""), strict=True):
        flag, _, given = value.partition("=")
        values += [given] if _SECRET_NAME.search(flag) else []
        values += [value] if name.startswith("-") and _SECRET_NAME.search(name) else []
    for address in (spec.url, spec.openapi, *spec.args):
        values += _PASSWORD.findall(address) + [value for _, value in parse_qsl(address.partition("?")[2])]
    # Logs have a value of several lines line by line, or as JSON.
    forms = (form for value in values for form in (value, json.dumps(value)[1:-1], *map(str.strip, value.splitlines())))
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _keep_common_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: raw[k] for k in ("ttlMs", "cacheScope") if k in raw}
    return {**kept, "resultType": "complete"} if "resultType" in raw else kept


def _reduce_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    is_valid = (
        isinstance(schema, dict) and schema.get("type") == "object" and isinstance(schema.get("properties", {}), dict)
    )
    return {"name": tool["name"], "inputSchema": schema if is_valid else {"type": "object"}}


def _only_dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _iterate_entries(value: Any, problems: list[str], method: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        problems.append(f"{method}: the answer has no list")
        return
    for entry in value:
        if not isinstance(entry, dict):
            problems.append(f"{method}: an entry is not an object")
        elif count_depth(entry) > MAX_DEPTH:
            problems.append(f"{str(entry.get('name'))[:40]!r} was left out: nested deeper than {MAX_DEPTH} levels")
        else:
            yield clean(entry)


def _read_item(server: str, method: str, raw: Mapping[str, Any], problems: list[str]) -> Item | None:
    kind = {"tools/list": ItemType.TOOL, "prompts/list": ItemType.PROMPT}.get(method, ItemType.RESOURCE)
    name = raw.get("name")
    if not isinstance(name, str) or not is_usable_name(name):
        problems.append(f"a {kind} without a usable name was left out")
        return None
    if kind is ItemType.TOOL and name.startswith(_RESERVED):
        problems.append(f"tool {name!r} was left out: a name may not start with {' or '.join(_RESERVED)}")
        return None
    title = raw.get("title")
    description = _check_text(raw.get("description"), f"the description of {kind} {name!r}", problems)
    uri = raw.get("uri") or raw.get("uriTemplate")
    if kind is ItemType.RESOURCE and not isinstance(uri, str):
        problems.append(f"resource {name!r} has no URI and was left out")
        return None
    annotations = raw.get("annotations")
    kept: dict[str, Any] = dict(annotations) if isinstance(annotations, dict) else {}
    if method.startswith("resources/"):
        kept |= {k: raw[k] for k in ("uri", "uriTemplate", "mimeType") if isinstance(raw.get(k), str)}
    return Item(
        server=server,
        name=name,
        description=description or (str(uri) if kind is ItemType.RESOURCE else ""),
        type=kind,
        title=title if isinstance(title, str) and title else None,
        input_schema=_read_input_schema(method, raw, problems),
        output_schema=_check_schema(raw.get("outputSchema"), f"the output schema of {name!r}", problems),
        annotations=kept or None,
        definition=None if kind is ItemType.TOOL else _read_definition(kind, raw, problems),
    )


def is_usable_name(name: str) -> bool:
    """Whether a name can be shown in a line."""
    return bool(name.strip()) and len(name) <= MAX_NAME_LENGTH and not _CONTROL.search(name)


def _read_definition(kind: ItemType, raw: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The entry as it came; without icons and metadata if they make the entry larger than a store should keep."""
    if len(json.dumps(raw, ensure_ascii=False)) <= MAX_DEFINITION_LENGTH:
        return dict(raw)
    problems.append(
        f"the definition of {kind} {raw['name']!r} has more than {MAX_DEFINITION_LENGTH} characters: icons and "
        "metadata are left out"
    )
    return {k: v for k, v in raw.items() if k not in {"icons", "_meta"}}


def _read_input_schema(method: str, raw: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    match method:
        case "tools/list":
            return _check_schema(raw.get("inputSchema"), f"the input schema of {raw['name']!r}", problems)
        case "prompts/list":
            named = {a["name"]: a for a in _only_dicts(raw.get("arguments")) if isinstance(a.get("name"), str)}
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


def _check_schema(value: Any, what: str, problems: list[str]) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        problems.append(f"{what} is not an object and is ignored")
    return value if isinstance(value, dict) else None


def _check_text(value: Any, what: str, problems: list[str]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        problems.append(f"{what} is not a string and is ignored")
        return ""
    if len(value) > MAX_DESCRIPTION_LENGTH:
        problems.append(f"{what} has {len(value)} characters: the first {MAX_DESCRIPTION_LENGTH} are kept")
    return value[:MAX_DESCRIPTION_LENGTH]


def clean(value: Any) -> Any:
    """Removes what databases reject: NUL, lone surrogates, infinite numbers. Raises RecursionError at deep nesting."""
    return value if _is_clean(value) else _remove_unstorable(value)


async def clean_result(value: dict[str, Any]) -> dict[str, Any]:
    """As `clean`, without holding up the event loop: a result with many values is cleaned in a thread, and not by
    `json`, because `json` keeps Python's lock for seconds."""
    result = await asyncio.to_thread(_remove_unstorable, value) if _has_many_values(value) else clean(value)
    return cast("dict[str, Any]", result)


def _has_many_values(value: Any) -> bool:
    level, values = [value], 0
    while level and values <= MAX_VALUES_AT_ONCE:
        inside = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level = list(chain.from_iterable(inside))
        values += len(level)
    return values > MAX_VALUES_AT_ONCE


def _is_clean(value: Any) -> bool:
    """A fast check, because nearly every value is clean."""
    try:
        return b"\\u0000" not in json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False


def _remove_unstorable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_remove_unstorable(k): _remove_unstorable(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_remove_unstorable(v) for v in value] if isinstance(value, list) else value


def count_depth(value: Any) -> int:
    """Returns the depth of nesting, counted up to the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        level = [c for v in level for c in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())]
        depth += 1
    return depth

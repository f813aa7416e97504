"""Generates the reference pages from the code. A test checks that they are current: run `make docs`. Also writes how
old the figures in docs/benchmarks.md are, which no test checks: it changes with every commit."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from benchmarks.builds import mark_builds
from toolscript.domain.search import SearchPart
from toolscript.settings import Settings, get_rule, get_variable
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.app import ROUTES, create_http_app
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.errors import STATUSES
from toolscript.surfaces.http.openapi import KEY, TOKEN
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import (
    CACHE_HINTS,
    MAY_BE_EMPTY,
    READ_SKILL,
    RUN_CODE,
    TOOLS,
    build_instructions,
)
from toolscript.surfaces.mcp.early_answers import VERSIONS, collect_default_answers, format_answers

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
# What `toolscript mcp` answers at its first start ever.
EARLY_ANSWERS = ROOT / "src" / "toolscript" / "data" / "early_answers"


def settings() -> str:
    """Every setting with its variable, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Settings are read from the environment. Flags override variables, and variables override defaults; empty",
        "variables are ignored. A file `.env` in the folder where a command is started, with lines `NAME=VALUE`, adds",
        "variables whose names begin with `TOOLSCRIPT_`; those that the environment has stay as they are.",
        "",
        "| variable | default | allowed | meaning |",
        "|---|---|---|---|",
    ]
    for each in fields(Settings):
        rule = get_rule(each)
        bounds = "{:g} to {:g}".format(*rule.bounds) if rule.bounds else ", ".join(rule.allowed)
        default = (
            ""
            if each.default in {None, "", ()}
            else f"`{str(each.default).lower() if each.default is False else each.default}`"
        )
        also = f" `{rule.also}` is read if this is not set." if rule.also else ""
        lines.append(f"| `{get_variable(each.name)}` | {default} | {bounds} | {rule.help.replace('|', '/')}{also} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """The help of every command."""
    parts = ["# Command line\n"]

    def add_help(command: click.Command, path: str) -> None:
        layout = {**run.context_settings, "max_content_width": 100, "terminal_width": 100}
        with click.Context(command, info_name=path, **layout) as context:
            parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if subcommand := command.get_command(context, name):
                    add_help(subcommand, f"{path} {name}")

    add_help(run, "toolscript")
    return "\n".join(parts)


def requirements() -> str:
    """Every requirement, and whether it is met or planned."""
    text = (ROOT / "tests" / "requirements.toml").read_text(encoding="utf-8")
    lines = [
        "# Requirements",
        "",
        "Every requirement that is not planned is cited by at least one test: `grep -r 'req(\"S-02\"' tests`.",
        "",
        "| id | requirement | |",
        "|---|---|---|",
    ]
    for name, requirement in tomllib.loads(text)["requirements"].items():
        lines.append(f"| {name} | {requirement['text']} | {'planned' if requirement.get('planned') else ''} |")
    return "\n".join(lines) + "\n"


def http() -> str:
    """Every route with its parameters, body and response."""
    settings = Settings()
    document = create_http_app(ServedApp(settings)).openapi()
    public = [f"`{method} {r.path_format}`" for r in ROUTES if not get_scope(r, settings) for method in r.methods or ()]
    lines = [
        "# HTTP",
        "",
        'What `GET /openapi.json` says, for people. Every error is `{"error": {"code", "message", "details"}}`. With',
        "`TOOLSCRIPT_API_KEY` set, or once `toolscript keys create` was used, requests must send `X-API-Key: KEY` or",
        "`Authorization: Bearer KEY` (the machine's [owner](../guide/security.md#who-may-do-what) need not), and the",
        "key must have the scope that the route names. Routes marked *tenant token* take `Authorization: Bearer TOKEN`",
        "too. No credentials are needed for",
        f"{', '.join(public)} (and knowledge with `TOOLSCRIPT_KNOWLEDGE_PUBLIC=true`). `/mcp` is the",
        "[MCP](mcp.md) endpoint. `GET /` is the [console](../guide/console.md) for browsers, and for programs a small",
        "JSON object that says where things are. A query parameter or a field that a route does not have is refused",
        "(422) with the name that was probably meant.",
        "",
        "| status | when |",
        "|---|---|",
        *(f"| {status} | {_first_line(kind.__doc__)} |" for kind, status in STATUSES.items()),
        "",
        "A search that had to do without one of its parts says so in `degraded` (of `metadata`, where there is one).",
        "The same words name the `adapter` in the details of a 503.",
        "",
        "| degraded | meaning |",
        "|---|---|",
        *(f"| `{part}` | {part.__doc__} |" for part in SearchPart),
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += ["", f"## {method.upper()} {path}", "", f"{operation['summary']}.{_describe_access(operation)}"]
            parameters = operation.get("parameters", [])
            if parameters:
                lines += ["", "| parameter | meaning | default |", "|---|---|---|"]
            for each in parameters:
                default = each["schema"].get("default", "")
                lines.append(f"| `{each['name']}` | {each.get('description', '')} | {default} |")
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body:
                lines += _describe_body(body, document)
            lines += _describe_response(operation["responses"], document)
    return "\n".join(lines) + "\n"


def _describe_access(operation: dict[str, Any]) -> str:
    scopes = [scope for accepted in operation["security"] for scope in accepted.get(KEY, ())]
    words = f" *Scope {scopes[0]}.*" if scopes else ""
    return f" *Tenant token, or scope {scopes[0]}.*" if {TOKEN: []} in operation["security"] else words


def _describe_body(body: dict[str, Any], document: dict[str, Any]) -> list[str]:
    properties = _resolve(body, document).get("properties", {})
    lines = ["", "| field of the body | meaning | type | default |", "|---|---|---|---|"] if properties else []
    for name, schema in properties.items():
        default = "" if "default" not in schema else json.dumps(schema["default"])
        lines.append(f"| `{name}` | {schema.get('description', '')} | {_describe_type(schema, document)} | {default} |")
    return lines


def _describe_response(responses: dict[str, Any], document: dict[str, Any]) -> list[str]:
    response: dict[str, Any] = next((each for status, each in responses.items() if status.startswith("2")), {})
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    is_list = schema.get("type") == "array"
    rows = list(_describe_fields(schema["items"] if is_list else schema, document, "[]." if is_list else ""))
    return ["", "| field of the response | meaning | type |", "|---|---|---|", *rows] if rows else []


def _describe_fields(schema: dict[str, Any], document: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, field in _resolve(schema, document).get("properties", {}).items():
        resolved, field_path = _resolve(field, document), f"{path}{name}"
        yield f"| `{field_path}` | {field.get('description', '')} | {_describe_type(field, document)} |"
        if resolved.get("type") == "array":
            yield from _describe_fields(resolved.get("items", {}), document, f"{field_path}[].")
        else:
            yield from _describe_fields(resolved, document, f"{field_path}.")


def _describe_type(schema: dict[str, Any], document: dict[str, Any]) -> str:
    """Describes the type of a field, or all of its types."""
    types = schema.get("anyOf") or [schema]
    return " or ".join(_describe_simple_type(_resolve(each, document)) for each in types)


def _resolve(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Replaces a reference by its schema, and several types by the first that is not null."""
    types = [each for each in schema.get("anyOf", schema.get("allOf", ())) if each.get("type") != "null"]
    if "$ref" in schema:
        return _resolve(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    return _resolve(types[0], document) if types else schema


def _describe_simple_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    minimum, maximum = (schema.get(key) for key in ("minimum", "maximum"))
    text = str(schema.get("type", ""))
    if minimum is not None or maximum is not None:
        text += f", {'' if minimum is None else f'{minimum:g}'} to {'' if maximum is None else f'{maximum:g}'}"
    for key, unit in (("maxLength", "characters"), ("maxItems", "items")):
        if key in schema:
            text += f", at most {schema[key]:,} {unit}"
    return text


def mcp() -> str:
    """The tools and instructions that agents read."""
    lines = [
        "# MCP",
        "",
        "One server: `/mcp` of a running gateway (streamable HTTP), or `toolscript mcp` (stdio). Agents read:",
        "",
        f"> {build_instructions([tool.name for tool in TOOLS])}",
    ]
    for tool in [*TOOLS, READ_SKILL, RUN_CODE]:
        lines += ["", f"## {tool.name}", "", f"{tool.description}", "", "| argument | | meaning |", "|---|---|---|"]
        for name, schema in tool.input_schema["properties"].items():
            needed = "required" if name in tool.input_schema["required"] else "optional"
            lines.append(f"| `{name}` ({schema['type']}) | {needed} | {schema['description']} |")
    lines += [
        "",
        f"{', '.join(f'`{name}`' for name in MAY_BE_EMPTY)}: listed, and mentioned in the instructions, as soon as",
        "there is something to find, for the caller's profile and tenant. Clients are notified. `run_code` is listed",
        "where [programs can be run](../guide/code-mode.md). There `search_tools` takes `output`: `types` for",
        "declarations instead of lines.",
        "",
        "After these, `tools/list` has the tools that the caller's [profile](../guide/profiles.md) pins, under their",
        "ids; the description of `search_tools` ends with the servers and skills that it shows.",
        "",
        "## Other requests",
        "",
        "Prompts and resources of all servers: `prompts/list`, `prompts/get`, `resources/list`, `resources/read`,",
        "`resources/templates/list`, `completion/complete`, `subscriptions/listen`, and over stdio",
        "`resources/subscribe` and `resources/unsubscribe` of older clients.",
        "[What passes through](../guide/passthrough.md) has their names, URIs and scopes. Clients may reuse answers:",
        "",
        "| request | milliseconds (`ttlMs`) | for (`cacheScope`) |",
        "|---|---|---|",
        *(f"| `{method}` | {hint.ttl_ms} | {hint.scope} |" for method, hint in CACHE_HINTS.items()),
    ]
    return "\n".join(lines) + "\n"


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0].rstrip(".")


PAGES = {
    "settings.md": settings,
    "command-line.md": command_line,
    "http.md": http,
    "mcp.md": mcp,
    "requirements.md": requirements,
}


def main() -> None:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    for version in VERSIONS:
        (EARLY_ANSWERS / version).write_bytes(format_answers(asyncio.run(collect_default_answers(version))))
    BENCHMARKS.write_text(mark_builds(BENCHMARKS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

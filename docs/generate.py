"""Writes the reference pages that could otherwise drift from the code. A test compares them: run `make docs`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from toolscript.domain.search import SearchPart
from toolscript.settings import Settings, get_rule, get_variable
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.errors import STATUSES
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import INSTRUCTIONS, TOOLS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def settings() -> str:
    """Every setting with its variable, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Read from the environment. A command's flag beats the variable, which beats the default; an empty variable",
        "counts as none.",
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
        also = f" `{rule.also}` is read where this is not set." if rule.also else ""
        lines.append(f"| `{get_variable(each.name)}` | {default} | {bounds} | {rule.help.replace('|', '/')}{also} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """The help of every command."""
    parts = ["# Command line\n"]

    def tell(command: click.Command, path: str) -> None:
        looks = {**run.context_settings, "max_content_width": 100, "terminal_width": 100}
        with click.Context(command, info_name=path, **looks) as context:
            parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name, sub in sorted(command.commands.items()):
                tell(sub, f"{path} {name}")

    tell(run, "toolscript")
    return "\n".join(parts)


def requirements() -> str:
    """Every requirement, and whether it is met or planned."""
    text = (ROOT / "tests" / "requirements.toml").read_text(encoding="utf-8")
    lines = [
        "# Requirements",
        "",
        "Each one that is not planned is cited by at least one test: `grep -r 'req(\"S-02\"' tests`.",
        "",
        "| id | requirement | |",
        "|---|---|---|",
    ]
    for name, told in tomllib.loads(text)["requirements"].items():
        lines.append(f"| {name} | {told['text']} | {'planned' if told.get('planned') else ''} |")
    return "\n".join(lines) + "\n"


def http() -> str:
    """Every route, with its parameters."""
    described = create_http_app(ServedApp(Settings())).openapi()
    lines = [
        "# HTTP",
        "",
        'The same as `GET /openapi.json`, for people. Every error is `{"error": {"code", "message", "details"}}`. With',
        "`TOOLSCRIPT_API_KEY` set, requests bring `X-API-Key: KEY` or `Authorization: Bearer KEY`; `GET /health`,",
        "`GET /search/health` and `POST /search_knowledge` need none, and routes of documents ask for a token instead.",
        "`/mcp` speaks [MCP](mcp.md).",
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
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            lines += ["", f"## {method.upper()} {path}", "", f"{about['summary']}."]
            parameters = about.get("parameters", [])
            if parameters:
                lines += ["", "| parameter | meaning | default |", "|---|---|---|"]
            for each in parameters:
                default = each["schema"].get("default", "")
                lines.append(f"| `{each['name']}` | {each.get('description', '')} | {default} |")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body:
                lines += _body_fields(body, described)
            lines += _answer_fields(about["responses"], described)
    return "\n".join(lines) + "\n"


def _body_fields(body: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """The fields of a body, each with what it means, what it may be and its default."""
    fields = _resolved(body, described).get("properties", {})
    lines = ["", "| field of the body | meaning | may be | default |", "|---|---|---|---|"] if fields else []
    for name, about in fields.items():
        default = "" if "default" not in about else json.dumps(about["default"])
        lines.append(f"| `{name}` | {about.get('description', '')} | {_choices(about, described)} | {default} |")
    return lines


def _answer_fields(responses: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """The fields of the answer when all goes well, where the route says what they are."""
    answer: dict[str, Any] = next((each for status, each in responses.items() if status.startswith("2")), {})
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    rows = list(_rows_of(schema, described))
    return ["", "| field of the answer | meaning | is |", "|---|---|---|", *rows] if rows else []


def _rows_of(schema: dict[str, Any], described: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, about in _resolved(schema, described).get("properties", {}).items():
        whole, place = _resolved(about, described), f"{path}{name}"
        yield f"| `{place}` | {about.get('description', '')} | {_choices(about, described)} |"
        if whole.get("type") == "array":
            yield from _rows_of(whole.get("items", {}), described, f"{place}[].")
        else:
            yield from _rows_of(whole, described, f"{place}.")


def _choices(about: dict[str, Any], described: dict[str, Any]) -> str:
    """What a field may be: one thing, or one of several."""
    several = about.get("anyOf") or [about]
    return " or ".join(_may_be(_resolved(each, described)) for each in several)


def _resolved(schema: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to in its place; of several, the one that is not null."""
    choices = [each for each in schema.get("anyOf", schema.get("allOf", ())) if each.get("type") != "null"]
    if "$ref" in schema:
        return _resolved(described["components"]["schemas"][schema["$ref"].rpartition("/")[2]], described)
    return _resolved(choices[0], described) if choices else schema


def _may_be(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    minimum, maximum = (schema.get(key) for key in ("minimum", "maximum"))
    told = str(schema.get("type", ""))
    if minimum is not None or maximum is not None:
        told += f", {minimum if minimum is not None else ''} to {maximum if maximum is not None else ''}"
    for key, what in (("maxLength", "characters"), ("maxItems", "items")):
        if key in schema:
            told += f", at most {schema[key]:,} {what}"
    return told


def mcp() -> str:
    """The tools that an agent gets, word for word."""
    lines = [
        "# MCP",
        "",
        "One server: `/mcp` of a running gateway (streamable HTTP), or `toolscript mcp` (stdio). What an agent reads:",
        "",
        f"> {INSTRUCTIONS}",
    ]
    for tool in TOOLS:
        lines += ["", f"## {tool.name}", "", f"{tool.description}", "", "| argument | | meaning |", "|---|---|---|"]
        for name, about in tool.input_schema["properties"].items():
            needed = "required" if name in tool.input_schema["required"] else "optional"
            lines.append(f"| `{name}` ({about['type']}) | {needed} | {about['description']} |")
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


if __name__ == "__main__":
    main()

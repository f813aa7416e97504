"""Overrides of tools: what callers see of a definition, and what a call sends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import InvalidArguments, NotFound
from toolscript.domain.servers import ServerListing
from toolscript.domain.tool_overrides import (
    ArgumentOverride,
    ToolOverride,
    apply_override,
    attach_override,
)
from toolscript.services.catalogue.tool_overrides import attach_overrides
from toolscript.services.support.fixed_arguments import fill_arguments

pytestmark = pytest.mark.req("O-03")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"repo": {"$ref": "#/$defs/Repo"}, "title": {"type": "string"}, "labels": {"type": "array"}},
    "required": ["repo", "title", "labels"],
    "allOf": [{"required": ["repo"]}, True],
    "anyOf": [{"properties": {"repo": {"const": 1}}, "required": ["repo", "title"]}],
    "dependentRequired": {"title": ["repo"], "repo": ["labels"]},
    "dependentSchemas": {"title": {"properties": {"repo": {}}}},
    "if": {"properties": {"repo": {}}},
    "default": {"repo": "x", "title": "y"},
    "examples": [{"repo": "secret/repo"}],
    "$defs": {"Repo": {"$ref": "#/$defs/Owner"}, "Owner": {"type": "string"}, "Other": {}},
}
ISSUE = Item("git", "create_issue", "Creates an issue.", title="Create issue", input_schema=SCHEMA,
             annotations={"title": "Create issue", "readOnlyHint": False})  # fmt: skip
FIXED = ArgumentOverride("acme/app", has_default=True, hidden=True)
OVERRIDE = ToolOverride(
    "new_ticket",
    "Opens a ticket.",
    arguments={"repo": FIXED, "labels": ArgumentOverride(["new"], has_default=True, description="Its labels.")},
)
TICKET = apply_override(attach_override(ISSUE, OVERRIDE))


def test_callers_see_the_new_name_and_nothing_of_a_hidden_argument() -> None:
    assert (TICKET.id, TICKET.description, TICKET.title) == ("git__new_ticket", "Opens a ticket.", None)
    assert (TICKET.listed_name, TICKET.annotations) == ("create_issue", {"readOnlyHint": False})
    assert TICKET.input_schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "labels": {"type": "array", "default": ["new"], "description": "Its labels."},
        },
        "required": ["title"],
        "allOf": [{}, True],
        "anyOf": [{"properties": {}, "required": ["title"]}],
        "dependentRequired": {"title": []},
        "dependentSchemas": {"title": {"properties": {}}},
        "default": {"title": "y"},
        "$defs": {"Other": {}},
    }
    assert "acme" not in str(TICKET)
    assert SCHEMA["required"] == ["repo", "title", "labels"]


KINDS = [
    {"properties": {"kind": {"const": kind}, "id": {"type": "string"}}, "required": ["kind", "id"]}
    for kind in ("user", "org")
]
IF_USER = {"if": {"properties": {"kind": {"const": "user"}}}, "then": {"required": ["id"]}}
IF_ORG = {"if": {"required": ["kind"]}, "then": {"required": ["url"]}, "else": {"required": ["path"]}}


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"oneOf": KINDS}, {"id": "a"}),
        ({"oneOf": KINDS, "anyOf": [{"required": ["id"]}, {"required": ["url"]}]}, {"id": "a"}),
        ({"oneOf": [{"anyOf": KINDS}, {"required": ["id"]}]}, {"id": "a"}),
        ({"allOf": [IF_USER, IF_ORG]}, {"url": "a"}),
        ({"oneOf": KINDS, "allOf": [True], **IF_ORG}, {"id": "a", "path": "b"}),
        ({"not": {"properties": {"kind": {"const": "team"}}}}, {}),
        ({"minProperties": 1}, {}),
    ],
)
@pytest.mark.parametrize("argument", [FIXED, ArgumentOverride("user", has_default=True)], ids=["hidden", "shown"])
def test_branches_that_a_filled_argument_decides_between_are_all_open(
    schema: dict[str, Any], accepted: dict[str, Any], argument: ArgumentOverride
) -> None:
    properties = {"properties": {"kind": {"type": "string"}, "id": {}, "url": {}, "path": {}}}
    item = replace(ISSUE, input_schema={**properties, **schema})
    changed = apply_override(attach_override(item, ToolOverride(arguments={"kind": argument}))).input_schema
    assert changed is not None
    Draft202012Validator(changed).validate(accepted)
    assert ("kind" in json.dumps(changed)) is not argument.hidden


def test_branches_that_other_arguments_decide_between_stay() -> None:
    schema = {"properties": {"kind": {}, "id": {}}, "oneOf": [{"required": ["id"]}, {"required": ["url"]}],
              "if": {"required": ["id"]}, "then": {"required": ["path"]}, "not": {"required": ["x"]}}  # fmt: skip
    described = ToolOverride(arguments={"id": ArgumentOverride(description="x"), "kind": FIXED})
    changed = apply_override(attach_override(replace(ISSUE, input_schema=schema), described)).input_schema
    same = ("oneOf", "if", "then", "not")
    assert changed is not None
    assert {key: changed.get(key) for key in same} == {key: schema[key] for key in same}


def test_fixed_values_are_sent_and_defaults_fill_in() -> None:
    tools = {"create_issue": OVERRIDE}
    assert fill_arguments(tools, TICKET, {"title": "t"}) == {"repo": "acme/app", "labels": ["new"], "title": "t"}
    assert fill_arguments(tools, TICKET, {"labels": []}) == {"repo": "acme/app", "labels": []}
    with pytest.raises(InvalidArguments, match="repo: the configuration sets this argument") as refused:
        fill_arguments(tools, TICKET, {"repo": "acme/app"})
    assert refused.value.details["field"] == "repo"
    untouched = {"title": "t"}
    assert fill_arguments(tools, Item("git", "other"), untouched) is untouched
    assert fill_arguments(tools, Item("git", "create_issue", type=ItemType.PROMPT), untouched) is untouched


@pytest.mark.parametrize(
    "tools",
    [
        {},
        {"create_issue": ToolOverride("newer")},
        {"create_issue": ToolOverride("new_ticket", hidden=True)},
        {"close_issue": ToolOverride("new_ticket")},
    ],
    ids=["no override", "another name", "hidden", "the name of another tool"],
)
def test_an_item_of_an_earlier_configuration_is_not_called(tools: dict[str, ToolOverride]) -> None:
    with pytest.raises(NotFound, match="no such tool: 'git__new_ticket'"):
        fill_arguments(tools, TICKET, {})


def test_a_tool_with_a_name_that_the_configuration_gave_away_is_not_called() -> None:
    with pytest.raises(NotFound):
        fill_arguments({"create_issue": OVERRIDE}, Item("git", "new_ticket"), {})
    with pytest.raises(NotFound):
        fill_arguments({"create_issue": OVERRIDE}, ISSUE, {})
    assert fill_arguments({"create_issue": ToolOverride("create_issue")}, ISSUE, {}) == {}


def test_what_does_not_fit_is_reported_and_what_would_be_open_is_left_out() -> None:
    listing = ServerListing(
        [ISSUE, Item("git", "new_ticket"), Item("git", "push", input_schema={"properties": {"branch": {}}}),
         Item("git", "free", input_schema={"type": "object"}), Item("git", "hide"),
         Item("git", "push", type=ItemType.PROMPT)],
        ["an earlier problem"],
    )  # fmt: skip
    made = attach_overrides(listing, {
        "create_issue": OVERRIDE,
        "creat_issue": ToolOverride(hidden=True),
        "push": ToolOverride(arguments={"branhc": FIXED}),
        "free": ToolOverride(arguments={"anything": FIXED}),
        "hide": ToolOverride(hidden=True),
    })  # fmt: skip
    assert [apply_override(item).id for item in made.items] == ["git__new_ticket", "git__free", "git__prompt:push"]
    assert made.problems == [
        "an earlier problem",
        "tools.creat_issue: the server has no such tool, or includeTools and excludeTools leave it out; did you mean "
        '"create_issue"?',
        "tools.create_issue.name: the server has a tool 'new_ticket' itself, which is left out: choose another name",
        "tools.push.arguments.branhc: the tool has no such argument and is left out, because callers must not set it; "
        'did you mean "branch"?',
    ]
    seen = attach_overrides(listing, {"push": ToolOverride(arguments={"brunch": ArgumentOverride(description="x")})})
    assert (len(seen.items), len(seen.problems)) == (6, 2)
    assert attach_overrides(listing, {}) is listing

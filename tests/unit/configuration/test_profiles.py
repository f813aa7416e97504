"""Profiles in configuration files: what they mean, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.files import FILE_NAME, load_configuration
from toolscript.domain.access import ApprovalPolicy, CallLimit
from toolscript.domain.errors import Invalid
from toolscript.domain.profiles import ItemRules, Profile

pytestmark = pytest.mark.req("G-13")


def load(folder: Path, profiles: Any, home: Any = None, key: str = "profiles") -> tuple[Profile, ...]:
    (folder / "home").mkdir(exist_ok=True)
    if home is not None:
        (folder / "home" / FILE_NAME).write_text(json.dumps({"mcpServers": {}, "profiles": home}))
    (folder / FILE_NAME).write_text(json.dumps({"mcpServers": {}, key: profiles}))
    return load_configuration(home=folder / "home", folder=folder, environment={}).profiles


def test_a_profile_has_rules_and_says_whom_it_is_for(tmp_path: Path) -> None:
    support = {
        "allow": {"servers": ["git*"], "tools": ["files__read_*"], "skills": ["mail"]},
        "deny": {"tools": ["*delete*"]},
        "readOnly": True,
        "approval": "writes",
        "limits": {"perMinute": 60, "concurrent": 4},
        "keys": ["ci"],
        "claims": {"groups": ["support", "sales"]},
        "pinned": ["git__log", "files__*", "git__log"],
    }
    assert load(tmp_path, {"support": support, "all": {}}) == (
        Profile(
            "support",
            ItemRules(("git*",), ("files__read_*",), ("mail",)),
            ItemRules(tools=("*delete*",)),
            read_only=True,
            approval=ApprovalPolicy.WRITES,
            limit=CallLimit(60, 4),
            keys=frozenset({"ci"}),
            claims=(("groups", frozenset({"support", "sales"})),),
            pinned=("git__log", "files__*"),
        ),
        Profile("all"),
    )


def test_the_profile_of_the_folder_replaces_that_of_the_home_folder(tmp_path: Path) -> None:
    found = load(tmp_path, {"a": {"readOnly": True}}, home={"a": {}, "b": {}})
    assert {profile.name: profile.read_only for profile in found} == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("profiles", "problem"),
    [
        ([], "profiles: must be an object of profiles by name"),
        ({"a": []}, "profiles.a: must be an object"),
        ({"a b": {}}, "invalid profile name"),
        ({"a": {"denny": {}}}, 'profiles.a.denny: unknown key, did you mean "deny"?'),
        ({"a": {"colour": {}}}, "profiles.a.colour: unknown key, allowed are allow, deny, readOnly"),
        ({"a": {"deny": {"tool": []}}}, 'profiles.a.deny.tool: unknown key, did you mean "tools"?'),
        ({"a": {"deny": {"tools": "x"}}}, "profiles.a.deny.tools: must be a list of strings"),
        ({"a": {"readOnly": "yes"}}, "profiles.a.readOnly: must be true or false"),
        ({"a": {"approval": "write"}}, 'profiles.a.approval: must be "never", "destructive" or "writes"; did you mean'),
        ({"a": {"approval": True}}, 'profiles.a.approval: must be "never", "destructive" or "writes"'),
        ({"a": {"approval": None}}, 'profiles.a.approval: must be "never", "destructive" or "writes"'),
        ({"a": {"limits": 60}}, 'profiles.a.limits: must be an object such as {"perMinute": 60, "concurrent": 4} '),
        ({"a": {"limits": {"tools": {}}}}, "limits.tools: unknown key: allowed are perMinute, concurrent"),
        ({"a": {"limits": {"perMinute": 0}}}, "limits.perMinute: must be a whole number from 1 to 1000000"),
        ({"a": {"claims": ["x"]}}, "profiles.a.claims: must be an object"),
        ({"a": {"pinned": "git__log"}}, "profiles.a.pinned: must be a list of strings"),
        ({"a": {"pinned": ["search_tools"]}}, "profiles.a.pinned: 'search_tools' is not the id of a tool"),
        (
            {"a": {"pinned": [f"git__{n}" for n in range(21)]}},
            "profiles.a.pinned: at most 20 tools may be pinned, not 21: agents find all others by searching",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, profiles: Any, problem: str) -> None:
    with pytest.raises(Invalid) as error:
        load(tmp_path, profiles)
    assert problem in error.value.message
    assert "(line 1)" in error.value.message


def test_a_misspelt_key_does_not_silently_show_everything(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match='profils: unknown key, did you mean "profiles"'):
        load(tmp_path, {}, key="profils")


def test_a_misspelt_key_is_found_in_the_file_of_another_client_where_only_profiles_can_be_meant(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"

    def load_file(**content: Any) -> None:
        file.write_text(json.dumps({"mcpServers": {"a": {"command": "a"}}, **content}))
        load_configuration(file, home=tmp_path, folder=tmp_path, environment={})

    load_file(profile={"name": "work"}, profils={"default": {"colour": "red"}}, profiel="x")
    with pytest.raises(Invalid, match='profils: unknown key, did you mean "profiles"'):
        load_file(profils={"default": {"deny": {"servers": ["a"]}}})

"""Limits in the entry of a server: read, or refused with the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.files import load_configuration
from toolscript.domain.access import NO_LIMIT, CallLimit
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec

pytestmark = pytest.mark.req("G-19")


def load(folder: Path, limits: Any) -> ServerSpec:
    entry = {"command": "run", "limits": limits}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": {"git": entry}}))
    (spec,) = load_configuration(home=folder, folder=folder, environment={}).servers
    return spec


def test_a_server_and_its_tools_have_limits(tmp_path: Path) -> None:
    tools = {"create_*": {"perMinute": 5}, "create_issue": {"concurrent": 9}}
    spec = load(tmp_path, {"perMinute": 60, "concurrent": 4, "tools": tools})
    assert spec.limit == CallLimit(60, 4)
    assert spec.find_tool_limit("create_issue") == CallLimit(5)
    assert spec.find_tool_limit("read") == NO_LIMIT
    assert load(tmp_path, None).limit == NO_LIMIT


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (60, "limits: must be an object such as"),
        ({"perMinute": 0}, "limits.perMinute: must be a whole number from 1 to 1000000"),
        ({"perMinute": "60"}, "limits.perMinute: must be a whole number"),
        ({"concurrent": True}, "limits.concurrent: must be a whole number"),
        ({"perminute": 6}, "limits.perminute: unknown key: allowed are perMinute, concurrent, tools"),
        ({"tools": []}, "limits.tools: must be an object such as"),
        ({"tools": {"a": 5}}, "limits.tools.a: must be an object such as"),
        ({"tools": {"a": {"tools": {}}}}, "limits.tools.a.tools: unknown key: allowed are perMinute, concurrent"),
    ],
)
def test_wrong_limits_are_refused_with_their_key(tmp_path: Path, limits: Any, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(tmp_path, limits)
    assert problem in refused.value.message

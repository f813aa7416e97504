"""The hook of Claude Code that runs `toolscript suggest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.client_hooks import plan_hook
from toolscript.configuration.jsonc import parse_jsonc
from toolscript.configuration.setup_plan import FileChange
from toolscript.domain.errors import Invalid

pytestmark = pytest.mark.req("G-21")

COMMAND = ["/opt/my tools/toolscript", "suggest"]
OWN = {"hooks": [{"type": "command", "command": "'/opt/my tools/toolscript' suggest", "timeout": 5}]}


def plan(home: Path, text: str | None) -> FileChange | None:
    (home / ".claude").mkdir()
    if text is not None:
        (home / ".claude" / "settings.json").write_text(text)
    return plan_hook(home=home, environment={}, command=COMMAND)


def read_hooks(change: FileChange | None) -> Any:
    assert change
    return parse_jsonc(change.after).root.to_python()["hooks"]


@pytest.mark.parametrize("text", [None, "", "{}", '{"hooks": {}}', '{"hooks": {"UserPromptSubmit": []}}'])
def test_a_hook_is_added_where_there_is_none(tmp_path: Path, text: str | None) -> None:
    change = plan(tmp_path, text)
    assert read_hooks(change) == {"UserPromptSubmit": [OWN]}
    assert change
    assert change.before == text


def test_other_hooks_and_comments_stay(tmp_path: Path) -> None:
    text = """{
  "hooks": { // mine
    "Stop": [],
    "UserPromptSubmit": [
      {"hooks": [{"type": "command", "command": "date"}]} // the time
    ]
  }
}
"""
    change = plan(tmp_path, text)
    assert [len(hooks) for hooks in read_hooks(change).values()] == [0, 2]
    assert change
    assert "// mine" in change.after
    assert "// the time" in change.after


def test_a_hook_is_not_added_twice(tmp_path: Path) -> None:
    change = plan(tmp_path, None)
    assert change
    change.file.write_text(change.after)
    assert plan_hook(home=tmp_path, environment={}, command=COMMAND) is None


def test_where_claude_code_is_not_used_nothing_is_written(tmp_path: Path) -> None:
    assert plan_hook(home=tmp_path, environment={}, command=COMMAND) is None


@pytest.mark.parametrize("text", ['{"hooks": {"UserPromptSubmit": {}}}', "{"])
def test_settings_that_cannot_be_read_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid, match=r"settings\.json"):
        plan(tmp_path, text)

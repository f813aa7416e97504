"""The guide follows `toolscript setup` word for word; only numbers and blanks may differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from docs.generate import ROOT
from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.mcp.definitions import READ_SKILL, RUN_CODE, TOOLS

pytestmark = pytest.mark.req("G-21")

PAGE = (ROOT / "docs" / "guide" / "five-minutes.md").read_text(encoding="utf-8")
_, LOOK, MOVE, BACK = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SERVERS = {"excel": 25, "filesystem": 14, "git": 12, "time": 2}


def normalise(text: str) -> list[str]:
    """The words of each line, with one sign for every number and time."""
    lines = (re.sub(r"\d[\d,]*(T\d+Z)?", "#", line).split() for line in text.splitlines())
    return [" ".join(line) for line in lines]


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str, answer: str | None = None) -> Result:
    monkeypatch.setattr("sys.argv", ["toolscript", "setup", *arguments])
    result = CliRunner().invoke(run, ["setup", *arguments], input=answer)
    assert result.exit_code == 0, result.output
    return result


def test_the_guide_shows_what_is_printed(tmp_path: Path, small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    entries = {}
    for name, count in SERVERS.items():
        listing = tmp_path / f"{name}.json"
        tools = [{"name": f"tool_{n}", "description": "does it " * 60, "inputSchema": {}} for n in range(count)]
        listing.write_text(json.dumps({"tools": tools}))
        entries[name] = make_scripted_spec(listing=str(listing))
    file.write_text(json.dumps({"mcpServers": entries}))

    assert normalise(invoke(monkeypatch, "--dry-run").stdout) == normalise(LOOK)
    moved = invoke(monkeypatch, answer="y\n")
    question, *done = normalise(MOVE)
    assert normalise(moved.stdout) == normalise(LOOK) + done
    assert question.removesuffix(": y") in normalise(moved.stderr)[-1]
    assert normalise(invoke(monkeypatch, "--undo").stdout) == normalise(BACK)


def test_the_guide_names_all_tools_of_the_mcp_server_and_their_number() -> None:
    tools = [*TOOLS, READ_SKILL, RUN_CODE]
    assert len(tools) == 9
    assert "one server with nine tools at most" in PAGE
    assert f"become at most {len(TOOLS)} tools of about" in LOOK
    assert [tool.name for tool in tools if f"`{tool.name}`" not in PAGE] == []

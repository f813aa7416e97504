"""The security guide cannot lie: every test that it names exists, and every scope is described."""

from __future__ import annotations

import re

import pytest

from docs.generate import ROOT
from toolscript.domain.access import Scope
from toolscript.surfaces.mcp.definitions import TOOL_SCOPES

pytestmark = pytest.mark.req("X-04")

PAGE = (ROOT / "docs" / "guide" / "security.md").read_text(encoding="utf-8")
CITED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), CITED)
def test_every_test_that_the_guide_names_exists(file: str, name: str) -> None:
    assert (ROOT / file).is_file()
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_promise_and_every_threat_names_a_test() -> None:
    promises, threats = (PAGE.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("Promises", "Threats"))
    rows = [line for part in (promises, threats) for line in part.splitlines() if line.startswith("| ")]
    assert [row for row in rows[1:] if "`tests/" not in row and "| tests" not in row and "| test |" not in row] == []
    assert len(rows) > 20


def test_every_scope_is_described_with_its_tools() -> None:
    rows = {row.split("`")[1]: row for row in PAGE.splitlines() if re.match(r"\| `\w+` \| ", row)}
    assert rows.keys() == set(Scope)
    for tool, scope in TOOL_SCOPES.items():
        assert f"`{tool}`" in rows[scope.value]

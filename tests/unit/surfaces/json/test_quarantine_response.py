"""What a person reads before a definition in quarantine is approved."""

from __future__ import annotations

import pytest

from toolscript.domain.agent_skills import AgentSkillFile, build_agent_skill, compute_digest
from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import Pin, QuarantineCause
from toolscript.surfaces.json.quarantine import build_quarantined_response

URI = "skill://notes/SKILL.md"


def agent_skill(body: str) -> Item:
    files = {"SKILL.md": AgentSkillFile(URI, compute_digest(body.encode()))}
    return build_agent_skill("ops", URI, {"name": "notes", "description": "Writes notes."}, files, body)


@pytest.mark.req("A-02", "G-15")
def test_a_changed_line_of_an_agent_skill_is_shown_as_one_line() -> None:
    approved, offered = agent_skill("# Notes\n\nBe short.\n"), agent_skill("# Notes\n\nBe long.\n")
    pin = Pin(offered.id, "ops", approved, offered, QuarantineCause.CHANGED)
    changes = {each["field"]: each["diff"].splitlines() for each in build_quarantined_response(pin)["changes"]}
    lines = [line for line in changes["definition"] if line[:1] in "+-" and "Be" in line]
    assert lines == ['-    "Be short."', '+    "Be long."']

"""The `read_skill` tool: reads agent skills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscript.app.app import App
from toolscript.domain.agent_skills import MAIN_FILE
from toolscript.domain.servers import CallRelay
from toolscript.surfaces.json.agent_skills import describe_agent_skill, read_agent_skill
from toolscript.surfaces.mcp.definitions import ReadSkillArguments


async def read_skill(app: App, arguments: ReadSkillArguments, relay: CallRelay) -> Mapping[str, Any]:
    """Returns a file of an agent skill; behind its `SKILL.md` the names of its other files, and which tools it names.
    Raises the errors of a call."""
    found = await read_agent_skill(app, arguments.agent_skill_id, arguments.path or MAIN_FILE, relay=relay)
    if "text" not in found:
        content = {"uri": found["uri"], "blob": found["blob"]}
        return {"content": [{"type": "resource", "resource": content}], "isError": False}
    notes = describe_agent_skill(found, "call_tool")
    texts = [found["text"], *(["\n".join(notes)] if notes else [])]
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": False}

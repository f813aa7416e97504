"""Agent skills both ways with fastmcp: its server behind the gateway, its client before it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.agent_skills import RELEASE_NOTES, TAXES, write_agent_skill
from tests.fixtures.serving import serve
from tests.servers.real import REFERENCE_PROGRAMS
from toolscript.app.app import open_app
from toolscript.domain.agent_skills import build_folder_server
from toolscript.domain.catalog import ItemType
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.settings import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.req("A-02")]

PYTHON, PROGRAM = str(REFERENCE_PROGRAMS / "python"), str(Path(__file__).parents[2] / "servers" / "agent_skills.py")


async def test_fastmcp_serves_agent_skills_to_us_and_reads_them_from_us(tmp_path: Path) -> None:
    files = {"references/a b.md": b"Short.", "logo.png": b"\x89\xff"}
    write_agent_skill(tmp_path / "theirs" / "ops", files=files)
    write_agent_skill(tmp_path / "ours", "taxes", TAXES, {"form.bin": b"\x00\xff"})
    theirs = ServerSpec("ops", Transport.STDIO, command=PYTHON, args=(PROGRAM, "serve", str(tmp_path / "theirs")))
    settings: dict[str, Any] = {
        "data_dir": tmp_path / "data",
        "search_model": "hashed-64",
        "index": "memory:",
        "port": 0,
    }
    async with open_app(load_settings(variables={}, **settings), serving=True) as app:
        await app.servers.gateway.apply([theirs, build_folder_server((str(tmp_path / "ours"),))])
        await app.servers.gateway.settle(60)
        assert [status.problems for status in app.servers.gateway.statuses] == [(), ()]
        items = {item.id: item.type for item in await app.tools.listing.matching(None)}
        assert items == {
            "agent-skills__agent_skill:taxes": ItemType.AGENT_SKILL,
            "ops__add": ItemType.TOOL,
            "ops__agent_skill:release-notes": ItemType.AGENT_SKILL,
        }
        found = await app.tools.search.search("walrus", threshold=0.0, alpha=0.0)
        assert found.hits[0].id == "ops__agent_skill:release-notes"
        result = await app.tools.call.call("ops__agent_skill:release-notes", {"path": "references/a b.md"})
        assert result.structured["contents"][0]["text"] == "Short."
        async with serve(app) as url:
            client = await asyncio.create_subprocess_exec(
                PYTHON, PROGRAM, "read", f"{url}/mcp", stdout=asyncio.subprocess.PIPE
            )
            output, _ = await client.communicate()
    read = json.loads(output)
    root = "toolscript:ops/skill://ops/release-notes/SKILL.md"
    assert read[root]["files"] == {
        path: content.hex() for path, content in {"SKILL.md": RELEASE_NOTES.encode(), **files}.items()
    }
    assert read[root]["frontmatter"]["name"] == "release-notes"
    own = "toolscript:agent-skills/skill://taxes/SKILL.md"
    assert read[own]["files"] == {"SKILL.md": TAXES.encode().hex(), "form.bin": "00ff"}
    assert all(each["is_as_listed"] for each in read.values())

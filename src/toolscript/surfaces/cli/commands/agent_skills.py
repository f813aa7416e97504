"""`toolscript read-agent-skill`: prints an agent skill, or one of its files."""

from __future__ import annotations

import base64
import sys
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.agent_skills import MAIN_FILE
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.tools import connect_server_of
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer, print_note, print_text

if TYPE_CHECKING:
    from toolscript.app.app import App


@click.command("read-agent-skill")
@click.argument("agent_skill_id", shell_complete=complete("tools"))
@click.argument("path", default=MAIN_FILE)
@options.catalogue
def read_agent_skill(agent_skill_id: str, path: str) -> None:
    """Print an agent skill, or one of its files.

    An agent skill is a folder with a SKILL.md. Searches and `toolscript list-tools` have their ids. PATH is relative to
    the folder; a binary file is printed as it is.

    \b
    toolscript read-agent-skill agent-skills__agent_skill:notes
    toolscript read-agent-skill agent-skills__agent_skill:notes style.md
    """

    def request(session: CommandSession) -> Awaitable[Any]:
        place = f"/agent-skills/{quote(agent_skill_id, safe='', errors='replace')}"
        return session.request(place, lambda app: _read(app, agent_skill_id, path), path=path)

    print_answer(run_in_session(read_settings(), request), _show)


async def _read(app: App, agent_skill_id: str, path: str) -> Any:
    from toolscript.domain.servers import CallRelay
    from toolscript.surfaces.json.agent_skills import read_agent_skill as read

    await connect_server_of(app, agent_skill_id)
    return await read(app, agent_skill_id, path, relay=CallRelay(user=""))


def _show(found: Mapping[str, Any]) -> None:
    if "text" not in found:
        sys.stdout.buffer.write(base64.b64decode(found["blob"]))
        return
    print_text(found["text"], nl=not found["text"].endswith("\n"))
    others = [path for path in found["files"] if path != MAIN_FILE]
    if found["path"] == MAIN_FILE and others:
        print_note(", ".join(others), label="other files:")
    for label, names in {"connected": found["connectedTools"], "missing": found["missingTools"]}.items():
        if found["path"] == MAIN_FILE and names:
            print_note(", ".join(names), label=f"{label} tools:")

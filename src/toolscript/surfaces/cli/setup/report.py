"""What `toolscript setup` prints: the plan with what it saves, what was done, and what was undone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from toolscript.configuration.client_files import ClientFile
from toolscript.configuration.setup_plan import FoundFile, FoundServer
from toolscript.surfaces.cli.setup.measure import ToolCost, add_costs
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_count, print_note, printable

Report = dict[str, Any]
UNKNOWN = "?"


def build_report(
    files: Sequence[FoundFile],
    left_out: Sequence[ClientFile],
    target: Path,
    own: ToolCost,
    costs: Mapping[str, ToolCost],
    *,
    measured: bool = True,
) -> Report:
    """The plan as JSON; `measured`: whether the servers were started. Values of `env`, headers and arguments are not
    part of it."""
    return {
        "config": str(target),
        "applied": False,
        "measured": measured,
        "toolscript": {"tools": own.tools, "tokens": own.tokens},
        "clients": [_build_client(each, costs) for each in files],
        "projectFiles": [str(source.file) for source in left_out],
        "hooks": [],
        "skillFolders": [],
    }


def _build_client(found: FoundFile, costs: Mapping[str, ToolCost]) -> Report:
    source = found.source
    unknown = [s for s in found.moving if s.target not in costs or costs[s.target].problem]
    before = _count_before(found, costs)
    return {
        "client": source.client,
        "title": source.title,
        "file": str(source.file),
        "scope": "project" if source.project else "user",
        "problem": found.problem,
        "servers": [_build_server(server, costs) for server in found.servers],
        "before": {"tools": before.tools, "tokens": before.tokens, "uncounted": len(unknown)},
        "backup": None,
    }


def _count_before(found: FoundFile, costs: Mapping[str, ToolCost]) -> ToolCost:
    """What a conversation has at the start: the servers for all projects, and the servers of the project with the
    highest cost."""
    sums: dict[tuple[str, ...], ToolCost] = {}
    for path in dict.fromkeys(server.path[:-1] for server in found.moving):
        names = [s.target for s in found.moving if s.path[:-1] == path]
        sums[path] = add_costs(costs[name] for name in names if name in costs)
    everywhere = sums.pop(found.source.servers, ToolCost())
    return add_costs([everywhere, max(sums.values(), key=lambda cost: cost.tokens, default=ToolCost())])


def _build_server(server: FoundServer, costs: Mapping[str, ToolCost]) -> Report:
    cost = costs.get(server.target)
    is_known = cost is not None and cost.problem is None
    return {
        "name": server.name,
        "project": server.path[1] if server.path[0] == "projects" else None,
        "action": "move" if server.target else "stay",
        "target": server.target or None,
        "reason": server.reason or None,
        "tools": cost.tools if cost and is_known else None,
        "tokens": cost.tokens if cost and is_known else None,
        "problem": cost.problem if cost else None,
    }


def add_backups(report: Report, backups: Mapping[str, str | None]) -> Report:
    """The report of a plan that was applied, with the backup of each file."""
    clients = [client | {"backup": backups.get(str(Path(client["file"]).resolve()))} for client in report["clients"]]
    return report | {"applied": True, "clients": clients}


def show_plan(report: Report) -> None:
    """Prints what was found, and what would change."""
    columns: Columns = {
        "Server": "name",
        "Tools": lambda server: _format_number(server, "tools"),
        "Tokens": lambda server: _format_number(server, "tokens"),
        "Plan": _format_plan,
    }
    for client in report["clients"]:
        click.echo(click.style(f"{client['title']}  ", bold=True) + format_path(client["file"]))
        if client["problem"]:
            click.echo(f"stays as it is: {printable(client['problem'])}")
        else:
            print_table(columns, client["servers"])
            if report["measured"]:
                _show_savings(client, report["toolscript"])
        click.echo()
    for file in report["projectFiles"]:
        print_note(f"{format_path(file)} belongs to the project here: --project includes it, and starts its servers")
    for file in report["hooks"]:
        click.echo(f"Claude Code runs `toolscript suggest` before each turn: {format_path(file)}")
    for folder in report["skillFolders"]:
        click.echo(f"Agent skills that are searched beside tools: {printable(folder)}")
    if not any(server["target"] for client in report["clients"] for server in client["servers"]):
        click.echo("Nothing to move: no client has a server that could be behind Toolscript and is not.")
    else:
        click.echo(
            f"The servers go to {format_path(report['config'])}. Each file that changes gets a backup beside it."
        )


def format_path(path: str) -> str:
    """The path with `~` for the home folder."""
    home = f"{Path.home()}{os.sep}"
    return printable(f"~{os.sep}{path.removeprefix(home)}" if path.startswith(home) else path)


def _format_number(server: Mapping[str, Any], key: str) -> str:
    if server[key] is None:
        return UNKNOWN if server["action"] == "move" else ""
    return f"{server[key]:,}"


def _format_plan(server: Mapping[str, Any]) -> str:
    project = f" (only in {server['project']} so far)" if server["project"] else ""
    if server["action"] == "stay":
        return f"stays: {server['reason']}{project}"
    name = f" as {server['target']}" if server["target"] != server["name"] else ""
    problem = f"; not counted: {server['problem']}" if server["problem"] else ""
    return f"moves{name}{project}{problem}"


def _show_savings(client: Mapping[str, Any], own: Mapping[str, int]) -> None:
    before = client["before"]
    if before["uncounted"]:
        click.echo(f"{format_count(before['uncounted'], 'server')} could not be counted.")
    if before["tools"]:
        saved = before["tokens"] - own["tokens"]
        effect = f"{saved:,} tokens less" if saved >= 0 else f"{-saved:,} tokens more: so few tools save nothing"
        click.echo(
            f"{format_count(before['tools'], 'tool')} of about {before['tokens']:,} tokens in every conversation "
            f"become at most {own['tools']} tools of about {own['tokens']:,} tokens: {effect}."
        )


def show_applied(report: Report) -> None:
    """Prints what was done, and how to take it back."""
    changed = [client for client in report["clients"] if client["backup"]]
    for client in changed:
        moved = sum(server["action"] == "move" for server in client["servers"])
        click.echo(f"{client['title']}: {format_count(moved, 'server')} moved. Backup: {format_path(client['backup'])}")
    for file in report["hooks"]:
        click.echo(f"Claude Code: hook added to {format_path(file)}")
    for folder in report["skillFolders"]:
        click.echo(f"Agent skills: {printable(folder)} added to {format_path(report['config'])}")
    titles = dict.fromkeys([*(client["title"] for client in changed), *["Claude Code"] * bool(report["hooks"])])
    restart = f"Restart {', '.join(titles)}. " if titles else ""
    click.echo(f"{restart}`toolscript setup --undo` restores everything.")


def show_undone(answer: Mapping[str, Any]) -> None:
    """Prints what was restored."""
    for file in answer["files"]:
        saved = f" (the newer content is in {format_path(file['saved'])})" if file["saved"] else ""
        click.echo(f"{file['action']:10}{format_path(file['file'])}{saved}")
    if answer["earlierSetups"]:
        click.echo(f"{format_count(answer['earlierSetups'], 'earlier setup')} can be undone, too: run it again.")

"""`toolscript setup`: shows what the MCP clients of a user have and what Toolscript would save; moves their servers."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from toolscript.configuration.agent_skill_folders import find_client_folders, list_missing
from toolscript.configuration.client_entries import CLIENTS
from toolscript.configuration.client_files import list_client_files
from toolscript.configuration.client_hooks import CLIENT as HOOK_CLIENT
from toolscript.configuration.client_hooks import plan_hook
from toolscript.configuration.files import FILE_NAME
from toolscript.configuration.jsonc import JsoncError, JsoncNode, parse_jsonc
from toolscript.configuration.setup_plan import (
    FileChange,
    FoundFile,
    FoundServer,
    assign_names,
    find_servers,
    plan_changes,
)
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import Invalid
from toolscript.pipe.place import HAS_PIPES
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import read_announcement
from toolscript.surfaces.cli.client.gateway import find_gateway_url
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.setup.changes import apply_changes, undo_changes
from toolscript.surfaces.cli.setup.measure import ToolCost, measure_own_tools, measure_servers
from toolscript.surfaces.cli.setup.report import add_backups, build_report, show_applied, show_plan, show_undone
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, format_count, print_answer, print_note

AGENT_SKILL_CLIENT = "claude-code"
NEEDS_LOGIN = ("HTTP status 401", "HTTP status 403")
NOTHING_CHANGED = "nothing was changed: use --yes to move the servers without confirmation"


@click.command()
@click.option(
    "--client",
    "clients",
    type=click.Choice(list(CLIENTS)),
    multiple=True,
    metavar="CLIENT",
    help=f"Only this client; repeatable. Default: all that are found. One of: {', '.join(CLIENTS)}.",
)
@click.option(
    "--project", is_flag=True, help="Also the files of the project in the current folder, which others may share."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--no-measure", is_flag=True, help="Do not start the servers to count their tools and tokens.")
@click.option("--hooks", is_flag=True, help="Also have Claude Code run `toolscript suggest` before each turn.")
@click.option("--undo", is_flag=True, help="Restore the files that the last setup has changed.")
@click.option("--force", is_flag=True, help="With --undo: also where servers have changed since. A copy is kept.")
@options.yes
@options.config
@options.data_dir
@options.as_json
def setup(
    clients: tuple[str, ...],
    project: bool,
    dry_run: bool,
    no_measure: bool,
    hooks: bool,
    undo: bool,
    force: bool,
    yes: bool,
) -> None:
    """Move the servers of your MCP clients behind Toolscript.

    Finds the configuration of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex, Gemini CLI, Copilot CLI,
    opencode, Zed, Cline, Goose, Continue, Kiro and JetBrains' Junie; starts their servers once to count tools and
    tokens; shows the plan and asks. Then the servers are in ~/.toolscript.json (or the file of
    --config), and each client has one server: Toolscript. Folders with agent skills (~/.claude/skills, and with
    --project .claude/skills and .agents/skills) are searched, too, and stay where they are. A backup is kept beside
    every file.

    Without a terminal nothing is changed unless --yes is given. With --json nobody is asked: without --yes the plan is
    printed.

    \b
    toolscript setup --dry-run
    toolscript setup --client cursor --yes
    toolscript setup --undo
    """
    settings = read_settings()
    if undo:
        restored, left = undo_changes(settings.data, force=force)
        print_answer({"files": [asdict(file) for file in restored], "earlierSetups": left}, show_undone)
        return
    if force:
        raise Invalid("--force needs --undo", details={"field": "--force"})
    if not HAS_PIPES:
        raise Invalid(
            "`toolscript mcp`, which clients would start, does not work on Windows: run Toolscript and this command in "
            "WSL, or run `toolscript gateway start` and give each client its address, http://127.0.0.1:3780/mcp"
        )
    plan = _make_plan(settings, clients, with_project=project, measures=not no_measure, with_hooks=hooks)
    if dry_run or not plan.changes or (options.is_json() and not yes):
        print_answer(plan.report, show_plan)
        plan.raise_problem()
        return
    if not options.is_json():
        show_plan(plan.report)
    if not yes:
        confirm_or_raise(plan.question, NOTHING_CHANGED)
    applied = apply_changes(settings.data, plan.changes)
    backups = {change.file: change.backup for change in applied}
    print_answer(add_backups(plan.report, backups), show_applied)
    announced = read_announcement(settings.data)
    if announced and announced.config and announced.config != plan.report["config"]:
        print_note(
            f"the gateway {announced.describe()} reads {announced.config}, and agents use it: stop it with `toolscript "
            "gateway stop`, or start it again without --config"
        )


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What a setup would do."""

    files: Sequence[FoundFile]
    changes: Sequence[FileChange]
    report: dict[str, Any]

    @property
    def question(self) -> str:
        """What to ask before it is applied."""
        count = sum(len(each.moving) for each in self.files)
        folders = format_count(len(self.report["skillFolders"]), "folder")
        rest = f"Search the agent skills of {folders}?" if self.report["skillFolders"] else "Add the hook?"
        return f"Move {format_count(count, 'server')} behind Toolscript?" if count else rest

    def raise_problem(self) -> None:
        """Raises Invalid if nothing moves because a file cannot be read."""
        problems = [f"{each.source.file}: {each.problem}" for each in self.files if each.problem]
        if problems and not self.changes:
            raise Invalid("\n".join(problems), details={"files": [str(f.source.file) for f in self.files if f.problem]})


def _make_plan(
    settings: Settings, clients: Sequence[str], *, with_project: bool, measures: bool, with_hooks: bool
) -> SetupPlan:
    own = _measure_own_tools()
    target = (settings.config.expanduser() if settings.config else Path.home() / FILE_NAME).absolute()
    text, root = _read_target(target)
    found = _find_files(settings, clients, target)
    files = assign_names([each for each in found if with_project or not each.source.project], root)
    costs = _measure(settings, files) if measures else {}
    files = [_keep_logins(each, costs) for each in files]
    left_out = [each.source for each in found if each.source.project and not with_project]
    folders: list[str] = []
    if not clients or AGENT_SKILL_CLIENT in clients:
        places = find_client_folders(Path.home()) + (find_client_folders(Path.cwd()) if with_project else [])
        folders = list_missing(
            text if text and root else "{}", list(dict.fromkeys(places)), file=target, home=Path.home()
        )
    changes = plan_changes(files, target, text, build_command(settings), folders)
    report = build_report(files, left_out, target, own, costs, measured=measures) | {"skillFolders": folders}
    if with_hooks and (not clients or HOOK_CLIENT in clients):
        command = build_command(settings, "suggest")
        if hook := plan_hook(home=Path.home(), environment=os.environ, command=command):
            changes.append(hook)
            report["hooks"] = [str(hook.file)]
    return SetupPlan(files, changes, report)


def _measure_own_tools() -> ToolCost:
    try:
        return measure_own_tools()
    except ImportError as error:
        raise Invalid("serving MCP needs an optional dependency: pip install 'toolscript[server]'") from error


def _read_target(target: Path) -> tuple[str | None, JsoncNode | None]:
    """Toolscript's configuration, as text and parsed; None if there is none. Raises Invalid."""
    try:
        text = read_text(target)
        root = parse_jsonc(text).root if text and text.strip() else None
    except JsoncError as error:
        raise Invalid(f"{target}: {error.message} (line {error.line}, column {error.column})") from error
    except ValueError as error:
        raise Invalid(f"{target}: {error}") from error
    servers = root.find("mcpServers") if root else None
    if root and (not isinstance(root.value, dict) or (servers and not isinstance(servers.value, dict))):
        raise Invalid(f"{target}: must be an object with mcpServers, an object of servers by name")
    return text, root


def _find_files(settings: Settings, clients: Sequence[str], target: Path) -> list[FoundFile]:
    home = Path.home()
    sources = list_client_files(home=home, folder=Path.cwd(), environment=os.environ, platform=sys.platform)
    if any(source.file.resolve() == target.resolve() for source in sources):
        raise Invalid(
            f"{target} is the file of a client: servers cannot be moved there. Name another with --config, or unset "
            "TOOLSCRIPT_CONFIG",
            details={"field": "--config"},
        )
    own_urls = list_own_urls(settings)
    chosen = [source for source in sources if not clients or source.client in clients]
    found = [find_servers(each, home=home, environment=os.environ, own_urls=own_urls) for each in chosen]
    return [each for each in found if each]


def list_own_urls(settings: Settings) -> frozenset[str]:
    """The addresses at which clients on this machine reach Toolscript."""
    hosts = [f"http://{host}:{settings.port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    return frozenset(f"{url}/mcp" for url in (*hosts, find_gateway_url(settings)) if url)


def _measure(settings: Settings, files: Sequence[FoundFile]) -> dict[str, ToolCost]:
    """What the tools of each server cost that would move, by its new name."""
    from rich.console import Console

    from toolscript.app.engines import open_servers

    specs = {server.target: server.spec for each in files for server in each.moving}
    chosen = [spec for spec in specs.values() if spec]
    if not chosen:
        return {}
    servers = open_servers(settings)
    with Console(stderr=True).status(f"Starting {format_count(len(chosen), 'server')} to count their tools"):
        return asyncio.run(measure_servers(servers, chosen, within=settings.connect_timeout))


def _keep_logins(found: FoundFile, costs: Mapping[str, ToolCost]) -> FoundFile:
    """Leaves servers where they are that only accept the login of their client."""

    def keep(server: FoundServer) -> FoundServer:
        problem = costs[server.target].problem if server.target in costs else None
        if not problem or not problem.startswith(NEEDS_LOGIN):
            return server
        return replace(server, target="", reason=f"needs a login, which {found.source.title} has ({problem})")

    return replace(found, servers=tuple(keep(server) for server in found.servers))


def build_command(settings: Settings, subcommand: str = "mcp") -> list[str]:
    """The command for a client to start Toolscript, by its absolute path: clients have another PATH than a shell."""
    program = shutil.which(sys.argv[0])
    is_program = program is not None and Path(program).stem == "toolscript"
    start = [os.path.abspath(program)] if program and is_program else [sys.executable, "-m", "toolscript"]  # noqa: PTH100, links stay
    config = ["--config", str(settings.config.expanduser().absolute())] if settings.config else []
    data = ["--data-dir", str(settings.data)] if settings.data_dir != Settings().data_dir else []
    return [*start, subcommand, *config, *data]

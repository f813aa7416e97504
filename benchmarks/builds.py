"""Says on the page of benchmarks how old each section is: how many commits ago it was measured, and whether the code
that it measures has changed since. Git knows both; without a checkout the page stays as it is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

_MODELS = ("adapters/onnx", "adapters/models", "data/models")
_ENCODER = ("adapters/onnx", "data/models/toolscript-small-2")
_INDEXES = ("adapters/qdrant", "adapters/pgvector")
_TOOLS = ("retrieval", "services/tools", "services/catalogue", "adapters/qdrant", *_MODELS)
_SERVERS = ("services/servers", "adapters/mcp")
_HTTP = ("surfaces/http", "surfaces/json")
_START = ("app", "configuration", "settings.py", "adapters/sql")
_PROGRAMS = ("services/code", "codegen", "adapters/sandbox", "adapters/monty", "adapters/deno")
_DOCUMENTS = ("retrieval", "services/documents", "adapters/sql", "adapters/qdrant", *_MODELS)
_KNOWLEDGE = ("retrieval", "services/knowledge", "adapters/mongo", "adapters/qdrant", *_MODELS)

# The code that each section of the page measures, below src/toolscript.
CODE: dict[str, tuple[str, ...]] = {
    "Quality": ("retrieval", "services/tools", "services/catalogue", "services/documents", "data/models"),
    "Words of other languages": ("retrieval/text",),
    "FastMCP's BM25 search": (),  # their code
    "The packaged encoder": _ENCODER,
    "Suggestions": ("retrieval", "services/tools", "services/catalogue", "pipe", "data/models"),
    "Agent skills": ("retrieval", "services/tools", "services/catalogue", "data/models"),
    "Feedback": ("retrieval", "services/tools", "services/catalogue", "data/models"),
    "Relevance": ("retrieval", "services/documents", "services/knowledge", "data/models"),
    "Through skills": ("retrieval", "services/tools", "services/catalogue", "services/skills", "data/models"),
    "A million texts on a GPU": _MODELS,
    "Embedding": _MODELS,
    "Index": _INDEXES,
    "Growth": ("retrieval", *_INDEXES),
    "Fusion": ("retrieval/fusion.py",),
    "Search": (*_TOOLS, "surfaces/cli", "app"),
    "Gateway": (*_TOOLS, *_SERVERS, *_HTTP, *_START, "surfaces/cli"),
    "Handshake": ("pipe", "surfaces/mcp", *_SERVERS, *_START),
    "Large results": ("services/results", "retrieval/text"),
    "Code mode": _PROGRAMS,
    "Hostile programs": (*_PROGRAMS, *_HTTP),
    "Tokens in code mode": ("services/code", "codegen", "surfaces/mcp", "services/tools", "retrieval"),
    "Lazy servers": (*_SERVERS, *_START, *_HTTP, "services/catalogue"),
    "Hierarchical search": (*_TOOLS, *_HTTP, *_START, "services/skills", "adapters/pgvector"),
    "Documents": (*_DOCUMENTS, *_HTTP),
    "Keywords": (*_DOCUMENTS, "adapters/pgvector"),
    "Ingest": (*_DOCUMENTS, *_HTTP, "services/ingest", "adapters/files"),
    "Knowledge": (*_KNOWLEDGE, *_HTTP),
    "Operations of APIs": (*_TOOLS, *_SERVERS, *_HTTP, *_START, "services/skills"),
    "Audit": ("adapters/sql", "services/support"),
}

# A line such as "*2026-11-19, commit d9e6a92b, 12 commits ago: 2 cores, …*", and the mark that may follow it.
DATED = re.compile(
    r"^(?P<before>\*\d{4}-\d\d-\d\d(?:, quick run)?, commit (?P<commit>[0-9a-f]{7,40})(?:-dirty)?)"
    r"(?:, \d+ commits? ago)?(?P<after>[:.].*)\n(?:\n\*\*Of an older build:\*\* .*\n)?",
    re.MULTILINE,
)
_HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)


def mark_builds(page: str, root: Path = ROOT) -> str:
    """The page with the age of each section that names its commit. A commit that the checkout's history does not have
    leaves its section as it is. Raises KeyError for a section that `CODE` does not have."""
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(page)]

    def renew(found: re.Match[str]) -> str:
        title = [title for start, title in headings if start < found.start()][-1]
        age = _count_commits(found["commit"], root)
        if age is None:
            return found[0]
        ago = f", {age} commit{'' if age == 1 else 's'} ago" if age else ""
        line = f"{found['before']}{ago}{found['after']}\n"
        paths = [f"src/toolscript/{path}" for path in CODE[title]]
        if not paths or not (changes := _count_commits(found["commit"], root, paths)):
            return line
        changed = f"{changes} of these commits have" if changes > 1 else "one of these commits has"
        return f"{line}\n**Of an older build:** {changed} changed the code that is measured here.\n"

    return DATED.sub(renew, page)


def _count_commits(since: str, root: Path, paths: Sequence[str] = ()) -> int | None:
    """How many commits came after one, or changed these paths after it; None where git does not know."""
    command = ["git", "rev-list", "--count", f"{since}..HEAD", "--", *paths]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return int(done.stdout) if done.returncode == 0 else None

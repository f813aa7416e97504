"""What to do about names that programs often use and that no sandbox has. Checkers only say that they are unknown."""

from __future__ import annotations

_NO_FILES = "there are no files and no environment here, use a tool"
_NO_NETWORK = "there is no network here, use a tool"
_HINTS = {
    "call_tool": "write `await tools.SERVER.NAME({…})`",
    "tools": "programs find the tools that they name, write `tools.SERVER.NAME`",
    "input": "nobody can be asked here",
    **dict.fromkeys(["open", "os", "pathlib", "shutil", "subprocess", "fs", "Deno", "process", "require"], _NO_FILES),
    **dict.fromkeys(["requests", "httpx", "aiohttp", "urllib", "socket", "fetch", "XMLHttpRequest"], _NO_NETWORK),
    **dict.fromkeys(["const", "let", "function"], "the program is read as Python, unless `language` names another"),
    **dict.fromkeys(["None", "True", "False", "print"], "the program is read as TypeScript"),
}


def find_hint(name: str) -> str:
    """What to do about an unknown name; empty if nothing is known about it."""
    return _HINTS.get(name, "")

"""The hook of a client that runs `toolscript suggest` before each turn. Of the clients that `setup` knows, Claude Code
can add what a hook prints to a prompt (UserPromptSubmit)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolscript.configuration.jsonc import JsoncError, JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import TextEdit, add_member, apply_edits
from toolscript.configuration.setup_plan import FileChange
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import Invalid

CLIENT = "claude-code"
PATH = ("hooks", "UserPromptSubmit")
# Claude Code waits for the hook: `suggest` itself gives up after 2 s.
TIMEOUT_SECONDS = 5


def plan_hook(*, home: Path, environment: Mapping[str, str], command: Sequence[str]) -> FileChange | None:
    """What to write into the settings of Claude Code; None if it is not used here, or has the hook. Raises Invalid if
    they cannot be read."""
    folder = _find_folder(home, environment)
    if not folder.is_dir() and not (home / ".claude.json").is_file():
        return None
    file = folder / "settings.json"
    before, text, hooks = _read_hooks(file)
    entry = {"hooks": [{"type": "command", "command": shlex.join(command), "timeout": TIMEOUT_SECONDS}]}
    source = json.dumps(entry, ensure_ascii=False)
    if hooks is None:
        after = add_member(text, PATH, f"[{source}]")
    elif not isinstance(hooks.value, list):
        raise Invalid(f"{file}: {hooks.key}: must be a list of hooks (line {hooks.line})")
    elif any(_is_own(hook) for hook in _list_commands(hooks.to_python())):
        return None
    else:
        at = hooks.value[-1].end if hooks.value else hooks.start + 1
        after = apply_edits(text, [TextEdit(at, at, f", {source}" if hooks.value else source)])
    return FileChange(file, before, after, (PATH,))


def find_hook_commands(*, home: Path, environment: Mapping[str, str]) -> list[str]:
    """The programs of the hooks that run `toolscript suggest`, where their path is named. Raises Invalid if the
    settings cannot be read."""
    _, _, hooks = _read_hooks(_find_folder(home, environment) / "settings.json")
    groups = hooks.to_python() if hooks else None
    commands = _list_commands(groups) if isinstance(groups, list) else []
    return [program for each in commands if _is_own(each) and (program := _find_program(each))]


def _find_folder(home: Path, environment: Mapping[str, str]) -> Path:
    own = environment.get("CLAUDE_CONFIG_DIR")
    return Path(own) if own else home / ".claude"


def _read_hooks(file: Path) -> tuple[str | None, str, JsoncNode | None]:
    """The text of the settings as it is and as it can be edited, and the hooks. Raises Invalid."""
    try:
        before = read_text(file)
        text = before if before and before.strip() else "{\n}\n"
        return before, text, parse_jsonc(text).root.find(*PATH)
    except JsoncError as error:
        raise Invalid(f"{file}: {error.message} (line {error.line}, column {error.column})") from error
    except ValueError as error:
        raise Invalid(f"{file}: {error}") from error


def _list_commands(groups: Sequence[object]) -> list[str]:
    hooks = (each for group in groups if isinstance(group, dict) for each in group.get("hooks") or ())
    return [str(hook.get("command")) for hook in hooks if isinstance(hook, dict)]


def _find_program(command: str) -> str | None:
    """The program of a command that begins with its path. Of another command only a shell knows what it runs."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    return words[0] if words and Path(words[0]).is_absolute() else None


def _is_own(command: str) -> bool:
    return "toolscript" in command and "suggest" in command.split()

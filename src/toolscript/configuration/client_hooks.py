"""The hook of a client that runs `toolscript suggest` before each turn. Of the clients that `setup` knows, Claude Code
can add what a hook prints to a prompt (UserPromptSubmit)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolscript.configuration.jsonc import JsoncError, parse_jsonc
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
    own = environment.get("CLAUDE_CONFIG_DIR")
    folder = Path(own) if own else home / ".claude"
    if not folder.is_dir() and not (home / ".claude.json").is_file():
        return None
    file = folder / "settings.json"
    try:
        before = read_text(file)
        text = before if before and before.strip() else "{\n}\n"
        root = parse_jsonc(text).root
    except JsoncError as error:
        raise Invalid(f"{file}: {error.message} (line {error.line}, column {error.column})") from error
    except ValueError as error:
        raise Invalid(f"{file}: {error}") from error
    hooks = root.find(*PATH)
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


def _list_commands(groups: Sequence[object]) -> list[str]:
    hooks = (each for group in groups if isinstance(group, dict) for each in group.get("hooks") or ())
    return [str(hook.get("command")) for hook in hooks if isinstance(hook, dict)]


def _is_own(command: str) -> bool:
    return "toolscript" in command and "suggest" in command.split()

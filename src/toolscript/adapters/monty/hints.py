"""What to do about mistakes that Python programs often have. The checker says only what is wrong."""

from __future__ import annotations

import ast
import re
from typing import Any

from toolscript.adapters.sandbox.program_hints import find_hint

NOT_AWAITED = (
    "the program's value is a call that was not awaited, so that it was not made: write `await` before it, or "
    "`await asyncio.gather(*calls)`"
)
_MODULES = (
    *("asyncio", "base64", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "functools"),
    *("hashlib", "itertools", "json", "math", "random", "re", "time", "typing"),
)
_UNKNOWN_NAME = re.compile(r"Name `(\w+)` used when not defined")
_UNKNOWN_MODULE = re.compile(r"Cannot resolve imported module `(\w+)")
_UNKNOWN_ATTRIBUTE = re.compile(r"Object of type `(\w+)` has no attribute `(\w+)`")
_UNKNOWN_KEY = re.compile(r'Unknown key "[^"]*" for TypedDict `(\w+)`')
# Monty writes objects that JSON does not have as text.
_COROUTINE = re.compile(r"<coroutine object \w+>")


def add_hint(message: str, types: str) -> str:
    """The message of the checker, and what to do. `types` are the declarations that it has checked against."""
    hint = _find_hint(message, types)
    return f"{message}: {hint}" if hint else message


def is_not_awaited(value: Any) -> bool:
    """Whether a program's value, or a part of it, is a call without `await`."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return any(isinstance(part, str) and _COROUTINE.fullmatch(part) for part in parts)


def _find_hint(message: str, types: str) -> str:
    if found := _UNKNOWN_NAME.match(message):
        return f"write `import {found[1]}` first" if found[1] in _MODULES else find_hint(found[1])
    if found := _UNKNOWN_MODULE.match(message):
        return find_hint(found[1]) or f"there are only {', '.join(_MODULES)}"
    if found := _UNKNOWN_ATTRIBUTE.match(message):
        return f'it is a dictionary, write ["{found[2]}"]' if f"class {found[1]}(TypedDict)" in types else ""
    if found := _UNKNOWN_KEY.match(message):
        keys = _list_keys(found[1], types)
        return f"it has {', '.join(keys)}" if keys else ""
    return ""


def _list_keys(name: str, types: str) -> list[str]:
    declared = re.search(rf"^class {name}\(TypedDict\):\n(?:(?: .*)?\n)+", f"{types}\n", re.MULTILINE)
    body = ast.parse(declared[0]).body[0] if declared else None
    fields = body.body if isinstance(body, ast.ClassDef) else []
    return [each.target.id for each in fields if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]

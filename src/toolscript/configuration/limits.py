"""Reads the limits of calls in the entry of a server, and in a profile."""

from __future__ import annotations

from collections.abc import Callable

from toolscript.configuration.jsonc import JsoncNode
from toolscript.domain.access import MAX_CALLS, NO_LIMIT, CallLimit

KEYS = ("perMinute", "concurrent")
TOOLS = "tools"
CALLER_RULE = 'must be an object such as {"perMinute": 60, "concurrent": 4}'
RULE = 'must be an object such as {"perMinute": 60, "concurrent": 4, "tools": {"create_*": {"perMinute": 5}}}'

Report = Callable[[JsoncNode, str], None]


def read_limits(node: JsoncNode | None, report: Report) -> tuple[CallLimit, tuple[tuple[str, CallLimit], ...]]:
    """The limit of all calls to the server, and the limits of its tools by pattern. Problems are reported."""
    if node is None:
        return NO_LIMIT, ()
    if not isinstance(node.value, dict):
        report(node, RULE)
        return NO_LIMIT, ()
    tools = node.value.get(TOOLS)
    if tools is None:
        return _read_limit(node, report, (*KEYS, TOOLS)), ()
    if not isinstance(tools.value, dict):
        report(tools, RULE)
        return NO_LIMIT, ()
    by_pattern = tuple((pattern, _read_limit(each, report, KEYS)) for pattern, each in tools.value.items())
    return _read_limit(node, report, (*KEYS, TOOLS)), by_pattern


def read_caller_limit(node: JsoncNode | None, report: Report) -> CallLimit:
    """The limit of each caller's calls. Problems are reported."""
    return NO_LIMIT if node is None else _read_limit(node, report, KEYS, CALLER_RULE)


def _read_limit(node: JsoncNode, report: Report, allowed: tuple[str, ...], rule: str = RULE) -> CallLimit:
    if not isinstance(node.value, dict):
        report(node, rule)
        return NO_LIMIT
    for name, each in node.value.items():
        if name not in allowed:
            report(each, f"unknown key: allowed are {', '.join(allowed)}")
    return CallLimit(*(_read_number(node.value.get(name), report) for name in KEYS))


def _read_number(node: JsoncNode | None, report: Report) -> int | None:
    if node is None or node.value is None:
        return None
    if isinstance(node.value, int) and not isinstance(node.value, bool) and 1 <= node.value <= MAX_CALLS:
        return node.value
    report(node, f"must be a whole number from 1 to {MAX_CALLS}; leave it out for no limit")
    return None

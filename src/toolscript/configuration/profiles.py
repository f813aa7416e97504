"""Reads the profiles of a configuration file: the tools that each caller sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from toolscript.configuration.jsonc import JsoncNode
from toolscript.configuration.limits import read_caller_limit
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.profiles import MAX_PINNED, ItemRules, Profile
from toolscript.domain.spelling import find_nearest, suggest

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_NAME_RULE = "invalid profile name: use 1 to 64 letters, digits, - and _, with a letter or digit first"
_KEYS = ("allow", "deny", "readOnly", "approval", "limits", "pinned", "keys", "claims")
APPROVAL_RULE = '"never", "destructive" or "writes"'
_RULE_KEYS = ("servers", "tools", "skills")

Report = Callable[[JsoncNode, str], None]


def resembles_profiles(node: JsoncNode) -> bool:
    """Whether this can only be meant as profiles: an object of objects with keys of profiles."""
    values = node.value.values() if isinstance(node.value, dict) else ()
    return any(isinstance(each.value, dict) and not each.value.keys().isdisjoint(_KEYS) for each in values)


class ProfileReader:
    """Reads profiles and reports what is wrong with them. An unknown key is an error: a misspelt `deny` would show what
    it should hide."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, node: JsoncNode) -> dict[str, Profile]:
        """The profiles of the object, by name."""
        profiles = {}
        for name, each in self._read_object(node, "an object of profiles by name").items():
            if not re.fullmatch(_NAME, name):
                self._report(each, _NAME_RULE)
            profiles[name] = self._read_profile(name, each)
        return profiles

    def _read_profile(self, name: str, node: JsoncNode) -> Profile:
        members = self._read_object(node, "an object")
        self._report_unknown(members, _KEYS)
        read_only = members.get("readOnly")
        if read_only is not None and not isinstance(read_only.value, bool):
            self._report(read_only, "must be true or false")
        claims = members.get("claims")
        values = self._read_object(claims, "an object of lists of values by claim") if claims else {}
        return Profile(
            name,
            allow=self._read_rules(members["allow"]) if "allow" in members else None,
            deny=self._read_rules(members["deny"]) if "deny" in members else ItemRules(),
            read_only=read_only is not None and read_only.value is True,
            approval=self._read_approval(members.get("approval")),
            limit=read_caller_limit(members.get("limits"), self._report),
            keys=frozenset(self._read_strings(members.get("keys"))),
            claims=tuple((claim, frozenset(self._read_strings(each))) for claim, each in values.items()),
            pinned=self._read_pinned(members.get("pinned")),
        )

    def _read_approval(self, node: JsoncNode | None) -> ApprovalPolicy:
        if node is None:
            return ApprovalPolicy.NEVER
        for policy in ApprovalPolicy:
            if node.value == policy:
                return policy
        hint = suggest(node.value, ApprovalPolicy) if isinstance(node.value, str) else ""
        self._report(node, f"must be {APPROVAL_RULE}{hint}")
        return ApprovalPolicy.NEVER

    def _read_rules(self, node: JsoncNode) -> ItemRules:
        members = self._read_object(node, "an object with servers, tools or skills")
        self._report_unknown(members, _RULE_KEYS)
        return ItemRules(*(self._read_strings(members.get(key)) for key in _RULE_KEYS))

    def _read_pinned(self, node: JsoncNode | None) -> tuple[str, ...]:
        pinned = tuple(dict.fromkeys(self._read_strings(node)))
        if node and len(pinned) > MAX_PINNED:
            self._report(
                node,
                f"at most {MAX_PINNED} tools may be pinned, not {len(pinned)}: agents find all others by searching",
            )
        for each in pinned:
            if node and "__" not in each and not {*each} & {*"*?["}:
                self._report(node, f'{each!r} is not the id of a tool: write "server__tool", or a pattern of ids')
        return pinned

    def _report_unknown(self, members: Mapping[str, JsoncNode], known: Sequence[str]) -> None:
        for key in [key for key in members if key not in known]:
            intended = find_nearest(key, known)
            hint = f'did you mean "{intended}"?' if intended else f"allowed are {', '.join(known)}"
            self._report(members[key], f"unknown key, {hint}")

    def _read_object(self, node: JsoncNode, expected: str) -> dict[str, JsoncNode]:
        if not isinstance(node.value, dict):
            self._report(node, f"must be {expected}")
            return {}
        return node.value

    def _read_strings(self, node: JsoncNode | None) -> tuple[str, ...]:
        if node is None:
            return ()
        if not isinstance(node.value, list) or not all(isinstance(each.value, str) for each in node.value):
            self._report(node, "must be a list of strings")
            return ()
        return tuple(str(each.value) for each in node.value)

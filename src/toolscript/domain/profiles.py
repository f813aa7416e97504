"""Profiles: the tools, prompts and resources that a caller may find, and so describe and call."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from toolscript.domain.access import NO_LIMIT, ApprovalPolicy, CallLimit
from toolscript.domain.catalog import Item

DEFAULT_PROFILE = "default"
"""The profile of callers that have no other."""
MAX_PINNED = 20
"""Tools that an agent sees without a search: each is part of its context, in every conversation."""


@dataclass(frozen=True, slots=True)
class ItemRules:
    """Chooses items by server, by tool or by skill: an item is chosen if one entry of any list fits. Patterns work as
    in file names: `read_*`. A tool's pattern is compared with its id and with its name."""

    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()

    def choose(self, item: Item, skill_ids: Collection[str]) -> bool:
        """Whether the item, with these skills, is chosen."""
        return (
            any(fnmatchcase(item.server, pattern) for pattern in self.servers)
            or any(fnmatchcase(item.id, pattern) or fnmatchcase(item.name, pattern) for pattern in self.tools)
            or any(skill in skill_ids for skill in self.skills)
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """What a group of callers may see. Profiles with keys or claims are for callers with these alone."""

    name: str
    allow: ItemRules | None = None
    """None allows everything."""
    deny: ItemRules = field(default_factory=ItemRules)
    """Overrides what is allowed."""
    read_only: bool = False
    approval: ApprovalPolicy = ApprovalPolicy.NEVER
    limit: CallLimit = NO_LIMIT
    """Of the calls of each of its callers."""
    keys: frozenset[str] = frozenset()
    claims: tuple[tuple[str, frozenset[str]], ...] = ()
    """Values of an access token's claims; one of them is enough."""
    pinned: tuple[str, ...] = ()
    """Ids of tools, or patterns of ids, that agents see beside the search, as far as the profile shows them."""

    @property
    def depends_on_skills(self) -> bool:
        return bool(self.deny.skills or (self.allow and self.allow.skills))

    def shows(self, item: Item, skill_ids: Collection[str] = ()) -> bool:
        """Whether its callers may see the item with these skills."""
        if self.read_only and not item.is_read_only:
            return False
        is_allowed = self.allow is None or self.allow.choose(item, skill_ids)
        return is_allowed and not self.deny.choose(item, skill_ids)


def name_owner(user: str, profile: Profile | None) -> str:
    """Who may read a result that was kept: the same user with the same profile."""
    return json.dumps([user, profile.name if profile else ""])

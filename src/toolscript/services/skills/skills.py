"""What people do with skills: define them, assign items to them, review suggestions.

The store is written first; then the index follows. If the index is not available, the change stays, and the next sync
updates the index.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
import unicodedata
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toolscript.domain.catalog import MAX_SKILLS, Assignment, Origin, Skill, StoredItem, Suggestion, SuggestionStatus
from toolscript.domain.errors import Conflict, Invalid, NotFound, Unavailable
from toolscript.domain.requests import current_request
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.visibility import CountBySkill, FindView, count_everything, see_everything

ID = re.compile(r"[a-z][a-z0-9_]*")
# Paths of the HTTP API that a skill of that id would hide.
RESERVED_IDS = frozenset({"suggestions"})
MAX_ID_LENGTH = 64
MAX_NAME_LENGTH = 255
MAX_DESCRIPTION_LENGTH = 4_000
MAX_WORD_LENGTH = 100
MAX_WORDS = 100
# Items of a suggested skill. More are a domain, not a skill.
MAX_CHOSEN = 200
NEAREST = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CountedSkill:
    """A skill and how many active items are in it."""

    skill: Skill
    tool_count: int


@dataclass(frozen=True, slots=True)
class DescribedSkill:
    """A skill, its active items with the most confident first, and when it was last changed."""

    counted: CountedSkill
    item_ids: tuple[str, ...]
    updated_at: datetime | None


class Skills:
    """The skills and their items, as people see and change them."""

    def __init__(
        self,
        item_store: ItemStore,
        skill_store: SkillStore,
        sync: Sync,
        *,
        find_view: FindView = see_everything,
        count_by_skill: CountBySkill = count_everything,
    ) -> None:
        """`find_view` and `count_by_skill` say what the caller may see."""
        self._find_view = find_view
        self._count_by_skill = count_by_skill
        self._item_store = item_store
        self._skill_store = skill_store
        self._sync = sync
        # What is read and then written must not change in between.
        self._lock = asyncio.Lock()

    async def all(self, *, active_only: bool = False) -> list[CountedSkill]:
        """Every skill, ordered by id; for a caller that may not see all items, the skills with items that it may
        see."""
        visible = await self._count_by_skill(current_request())
        counts = await self._skill_store.count_items() if visible is None else visible
        skills = await self._skill_store.list_skills(active_only=active_only)
        return [CountedSkill(s, counts.get(s.id, 0)) for s in skills if visible is None or s.id in visible]

    async def get(self, skill_id: str) -> CountedSkill:
        """One skill. Raises NotFound, naming the nearest ids."""
        known = {counted.skill.id: counted for counted in await self.all()}
        if skill_id in known:
            return known[skill_id]
        near = difflib.get_close_matches(skill_id[:MAX_ID_LENGTH], known, n=NEAREST)
        hint = f"did you mean {' or '.join(near)}?" if near else "see the list of skills"
        raise NotFound(f"no such skill: {skill_id!r}: {hint}", details={"skill_id": skill_id, "nearest": near})

    async def describe(self, skill_id: str) -> DescribedSkill:
        """One skill with its tools. Raises NotFound, naming the nearest ids."""
        skill, stored = await self.get(skill_id), await self.tools(skill_id)
        updated_at = await self._skill_store.get_update_time(skill_id)
        return DescribedSkill(skill, tuple(each.item.id for each in stored), updated_at)

    async def create(self, skill: Skill) -> CountedSkill:
        """Adds a skill and classifies the items without a skill again. Raises Invalid, naming the field, or Conflict
        when the id is taken."""
        skill = check_skill(skill)
        await self._skill_store.add_skill(skill)
        await self._reclassify(await self._waiting())
        return await self.get(skill.id)

    async def replace(self, skill_id: str, skill: Skill) -> CountedSkill:
        """Replaces a skill, and classifies the items without a skill again, and the items of a skill that becomes
        inactive. Raises Invalid or NotFound."""
        skill = check_skill(skill)
        if skill.id != skill_id:
            raise Invalid(
                f"the id of a skill cannot change: the request is for {skill_id!r}, the skill has {skill.id!r}",
                details={"field": "id", "allowed": skill_id},
            )
        async with self._lock:
            before = (await self.get(skill_id)).skill
            await self._skill_store.save_skills([skill])
        retired = before.is_active and not skill.is_active
        left = [s.item.id for s in await self._item_store.get_items_of_skill(skill_id)] if retired else []
        await self._reclassify([*await self._waiting(), *left])
        return await self.get(skill_id)

    async def remove(self, skill_id: str) -> None:
        """Removes a skill, and classifies its items again. Raises NotFound."""
        async with self._lock:
            await self.get(skill_id)
            left = [s.item.id for s in await self._item_store.get_items_of_skill(skill_id)]
            await self._skill_store.delete_skill(skill_id)
        await self._reclassify(left)

    async def tools(self, skill_id: str) -> list[StoredItem]:
        """The active items of a skill, ordered by falling confidence. Raises NotFound."""
        await self.get(skill_id)
        found = await self._item_store.get_items_of_skill(skill_id)
        view = await self._find_view(current_request())
        return [stored for stored in found if view.shows(stored.item.id)]

    async def assign(self, item_id: str, skill_ids: Sequence[str]) -> StoredItem:
        """Assigns an item to one to three skills for a person, the first one primary; no classifier changes that.
        Raises Invalid or NotFound."""
        if not 1 <= len(skill_ids) <= MAX_SKILLS or len(set(skill_ids)) < len(skill_ids):
            raise Invalid(
                f"an item has 1 to {MAX_SKILLS} different skills, the best one first: {len(skill_ids)} were given",
                details={"field": "skill_ids", "allowed": f"1 to {MAX_SKILLS} different ids of skills"},
            )
        await self._item(item_id)
        for skill_id in skill_ids:
            await self.get(skill_id)
        await self._skill_store.assign(
            item_id, [Assignment(s, 1.0, n == 0, Origin.HUMAN) for n, s in enumerate(skill_ids)]
        )
        await self._follow(self._sync.follow([item_id]))
        return await self._item(item_id)

    async def release(self, item_id: str) -> StoredItem:
        """Removes a person's assignment and classifies the item again. Raises NotFound."""
        await self._item(item_id)
        await self._skill_store.assign(item_id, [])
        await self._follow(self._sync.follow([item_id]))
        self._sync.refinement.start_soon()
        return await self._item(item_id)

    async def suggestions(self, status: SuggestionStatus | None = SuggestionStatus.PENDING) -> list[Suggestion]:
        """The suggested skills of that status (None: all), oldest first."""
        return await self._skill_store.list_suggestions(status)

    async def suggest(self, name: str, description: str, item_ids: Sequence[str]) -> Suggestion:
        """Queues a skill for these items for review. Raises Invalid, NotFound for an unknown item, or Conflict when
        there is such a skill or a pending suggestion of that name."""
        if not 1 <= len(item_ids) <= MAX_CHOSEN:
            raise Invalid(
                f"a suggestion has 1 to {MAX_CHOSEN} items: {len(item_ids)} were given",
                details={"field": "tool_ids", "allowed": f"1 to {MAX_CHOSEN} ids of items"},
            )
        name = _check_text("name", name, MAX_NAME_LENGTH, required=True)
        description = _check_text("description", description, MAX_DESCRIPTION_LENGTH, lines=True)
        items = [(await self._item(item_id)).item for item_id in dict.fromkeys(item_ids)]
        async with self._lock:
            known = {skill.name.casefold() for skill in await self._skill_store.list_skills(active_only=False)}
            known |= {each.name.casefold() for each in await self.suggestions()}
            if name.casefold() in known:
                raise Conflict(
                    f"there is a skill {name!r}, or a suggestion of that name, already: choose another name",
                    details={"field": "name"},
                )
            examples = _clean_words([item.name for item in items[:MAX_WORDS]])
            ids = tuple(item.id for item in items)
            return await self._skill_store.add_suggestion(
                Suggestion(name, description, examples=examples, item_ids=ids)
            )

    async def approve(
        self,
        number: int,
        *,
        skill_id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        reviewed_by: str | None = None,
    ) -> CountedSkill:
        """Makes a suggestion a skill, with another id, name or description where given, and assigns its items to it.

        Classifies the items without a skill again; for a suggestion that was proposed for a group of items, all items
        that neither a person nor a language model has classified.

        Raises NotFound, Invalid, or Conflict when the suggestion is decided already or the id is taken.
        """
        reviewed_by = _check_reviewer(reviewed_by)
        async with self._lock:
            suggested = await self._pending(number)
            named = _clean(suggested.name, MAX_NAME_LENGTH) if name is None else name
            taken = {skill.id for skill in await self._skill_store.list_skills(active_only=False)}
            skill = check_skill(
                Skill(
                    id=find_free_id(named, taken) if skill_id is None else skill_id,
                    name=named,
                    description=_clean(suggested.description, MAX_DESCRIPTION_LENGTH)
                    if description is None
                    else description,
                    keywords=_clean_words(suggested.keywords),
                    examples=_clean_words(suggested.examples),
                )
            )
            await self._skill_store.review_suggestion(number, SuggestionStatus.APPROVED, reviewed_by, into=skill)
        has_items = suggested.source_item_id or suggested.item_ids
        await self._reclassify([*await self._waiting(), *suggested.item_ids] if has_items else None)
        return await self.get(skill.id)

    async def reject(self, number: int, *, reviewed_by: str | None = None) -> Suggestion:
        """Rejects a suggestion: its item stays without a skill, and the same is not suggested for it again. Raises
        NotFound or Conflict."""
        reviewed_by = _check_reviewer(reviewed_by)
        await self._pending(number)
        return await self._skill_store.review_suggestion(number, SuggestionStatus.REJECTED, reviewed_by)

    async def merge(self, number: int, into: str, *, reviewed_by: str | None = None) -> Suggestion:
        """Assigns the items of a suggestion to an existing skill. Raises NotFound or Conflict."""
        reviewed_by = _check_reviewer(reviewed_by)
        await self._pending(number)
        await self.get(into)
        decided = await self._skill_store.review_suggestion(number, SuggestionStatus.MERGED, reviewed_by, into=into)
        items = [*decided.item_ids, *([decided.source_item_id] if decided.source_item_id else [])]
        if items:
            await self._follow(self._sync.follow(items))
        return decided

    async def _item(self, item_id: str) -> StoredItem:
        is_storable = "\0" not in item_id and not any(unicodedata.category(c) == "Cs" for c in item_id)
        found = await self._item_store.get_items([item_id], active_only=False) if is_storable else []
        if not found:
            raise NotFound(
                f"no such item: {item_id!r}: an id is the server's name, two underscores and the tool's name, as "
                "searches and lists of tools show it",
                details={"item_id": item_id},
            )
        return found[0]

    async def _pending(self, number: int) -> Suggestion:
        found = next((s for s in await self._skill_store.list_suggestions() if s.number == number), None)
        if found is None:
            raise NotFound(f"no such suggestion: {number}: see the list of suggestions", details={"suggestion": number})
        if found.status is not SuggestionStatus.PENDING:
            raise Conflict(
                f"suggestion {number} is {found.status} already: only pending ones can be reviewed",
                details={"suggestion": number, "status": found.status.value},
            )
        return found

    async def _waiting(self) -> list[str]:
        """The active items without a skill, including items with a rejected suggestion: a person who rejects a
        suggestion may define a better skill next."""
        items = await self._item_store.get_fingerprints()
        return [item.id for item in items if item.is_active and not item.assignments]

    async def _reclassify(self, item_ids: Collection[str] | None) -> None:
        """Classifies these items (None: all) again, updates the index, and refines in the background."""
        await self._follow(self._sync.reclassify(item_ids))
        self._sync.refinement.start_soon()

    async def _follow(self, work: Awaitable[object]) -> None:
        """Waits for the index to be updated; if it is not available, the next sync updates it."""
        try:
            await work
        except Unavailable as error:
            log.warning("the index has old skills until the next sync: %s", error.message)


def check_skill(skill: Skill) -> Skill:
    """The skill with its texts stripped. Raises Invalid, naming the invalid field."""
    if len(skill.id) > MAX_ID_LENGTH or not ID.fullmatch(skill.id):
        raise Invalid(
            f"invalid skill id {skill.id[:MAX_ID_LENGTH]!r}: expected a letter a-z, then a-z, 0-9 and _, at most "
            f"{MAX_ID_LENGTH} characters",
            details={"field": "id", "allowed": f"^{ID.pattern}$, at most {MAX_ID_LENGTH} characters"},
        )
    if skill.id in RESERVED_IDS:
        raise Invalid(
            f"invalid skill id {skill.id!r}: it is reserved. Choose another",
            details={"field": "id", "reserved": sorted(RESERVED_IDS)},
        )
    return replace(
        skill,
        name=_check_text("name", skill.name, MAX_NAME_LENGTH, required=True),
        description=_check_text("description", skill.description, MAX_DESCRIPTION_LENGTH, lines=True),
        parent_domain=_check_text("parent_domain", skill.parent_domain or "", MAX_ID_LENGTH) or None,
        keywords=_check_words("keywords", skill.keywords),
        examples=_check_words("examples", skill.examples),
    )


def find_free_id(name: str, taken: Collection[str]) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not ID.fullmatch(slug):
        slug = f"skill_{slug}".strip("_")
    tried, number = slug[:MAX_ID_LENGTH].rstrip("_"), 1
    while tried in taken or tried in RESERVED_IDS:
        number += 1
        tried = f"{slug[: MAX_ID_LENGTH - 1 - len(str(number))].rstrip('_')}_{number}"
    return tried


def _check_reviewer(reviewed_by: str | None) -> str | None:
    return _check_text("reviewed_by", reviewed_by or "", MAX_NAME_LENGTH) or None


def _check_words(field: str, words: Sequence[str]) -> tuple[str, ...]:
    if len(words) > MAX_WORDS:
        raise Invalid(
            f"{field} has {len(words)} entries: at most {MAX_WORDS} are allowed",
            details={"field": field, "allowed": f"at most {MAX_WORDS} entries"},
        )
    return tuple(_check_text(f"{field}[{n}]", word, MAX_WORD_LENGTH, required=True) for n, word in enumerate(words))


def _check_text(field: str, text: str, max_length: int, *, required: bool = False, lines: bool = False) -> str:
    text = text.strip()
    allowed = f"{1 if required else 0} to {max_length} characters, no control characters"
    problem = None
    if len(text) > max_length:
        problem = f"has {len(text)} characters"
    elif required and not text:
        problem = "is blank"
    elif any(unicodedata.category(c) in {"Cc", "Cs"} and not (lines and c in "\n\r\t") for c in text):
        problem = "contains a control character"
    if problem:
        raise Invalid(f"{field} {problem}: expected {allowed}", details={"field": field, "allowed": allowed})
    return text


def _clean(text: str, max_length: int) -> str:
    """A classifier's text made valid for a skill, because the classifier cannot correct it."""
    kept = "".join(" " if unicodedata.category(c) in {"Cc", "Cs"} else c for c in text)
    return kept.strip()[:max_length].strip()


def _clean_words(words: Sequence[str]) -> tuple[str, ...]:
    cleaned = dict.fromkeys(_clean(word, MAX_WORD_LENGTH) for word in words)
    return tuple(word for word in cleaned if word)[:MAX_WORDS]

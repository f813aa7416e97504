"""Who has sorted an item last, what it and the skills were like then, and whether that still holds.

A stamp is kept with the item: `embedding_auto:DIGEST`, or `llm_auto:DIGEST:SKILLS` where nothing was found to fit,
which holds only as long as the skills are the same. `embedding_auto+asked:…` says that the language model was asked,
too, and had nothing usable to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolscript.domain.catalog import (
    Classification,
    ClassificationRecord,
    Item,
    ItemFingerprint,
    Origin,
    Skill,
    StoredItem,
    Suggestion,
    compute_skills_digest,
)

ASKED = "+asked"


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills that items are sorted into, and what identifies that set of them."""

    all: Sequence[Skill] = ()
    digest: str = ""

    def now(self, skills: Sequence[Skill]) -> SkillSet:
        """The set of these skills: this one, if they are the same."""
        return self if self.digest and skills == self.all else SkillSet(skills, compute_skills_digest(skills)[:16])


def by_people(item: ItemFingerprint | StoredItem) -> bool:
    """Whether a person has put the item where it is."""
    return any(a.origin is Origin.HUMAN for a in item.assignments)


def is_sorted(mark: ItemFingerprint, skills: SkillSet) -> bool:
    """Whether the item as it is now has been sorted. What fits nowhere is sorted only as long as the skills are the
    same."""
    return _parts(mark)[1] == (mark.digest if mark.assignments else f"{mark.digest}:{skills.digest}")


def is_refined(mark: ItemFingerprint, skills: SkillSet) -> bool:
    """Whether the language model has been asked of the item as it is now."""
    by = _parts(mark)[0]
    return is_sorted(mark, skills) and (by == Origin.LLM or by.endswith(ASKED))


def by_model(mark: ItemFingerprint) -> bool:
    """Whether it was the language model that last sorted the item, be it as it is now or as it was."""
    return _parts(mark)[0] == Origin.LLM


def fits_nowhere(mark: ItemFingerprint) -> bool:
    """Whether no skill was found for the item as it is now, among whichever skills."""
    return not mark.assignments and _parts(mark)[1].startswith(f"{mark.digest}:")


def asked_in_vain(mark: ItemFingerprint) -> tuple[str, str]:
    """The item's stamp, and the one it has once the language model had nothing usable to say of it."""
    by, what = _parts(mark)
    return mark.classified, mark.classified if by == Origin.LLM else f"{by.removesuffix(ASKED)}{ASKED}:{what}"


def decisions(
    items: Mapping[str, Item],
    said: Mapping[str, Classification | None],
    by: Origin,
    skills: SkillSet,
    named: Mapping[str, Suggestion] | None = None,
) -> list[ClassificationRecord]:
    """What to record of what a classifier has said; nothing where it could not say. Where nothing fits, what is
    `named` for an item is suggested for it still."""
    decided = []
    for item_id, each in said.items():
        if each is not None and each.is_clear:
            what = items[item_id].digest if each.assignments else f"{items[item_id].digest}:{skills.digest}"
            missing = None if each.assignments else (named or {}).get(item_id, each.missing)
            decided.append(ClassificationRecord(item_id, f"{by}:{what}", each.assignments, missing))
    return decided


def _parts(mark: ItemFingerprint) -> tuple[str, str]:
    by, _, what = mark.classified.partition(":")
    return by, what

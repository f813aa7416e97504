"""Stamps of items. A stamp names the last classifier of an item, and digests of the content and skills that it saw.

A stamp is `ORIGIN:DIGEST` for an item with a skill, such as `llm_auto:DIGEST`. If no skill fitted it is
`ORIGIN:DIGEST:SKILLS`, and it is valid as long as the skills are the same. `embedding_auto+asked:…` means that the
language model gave no usable answer.
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

REFUSED = "+asked"


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills that items are classified into, and a digest of them."""

    all: Sequence[Skill] = ()
    digest: str = ""

    def update(self, skills: Sequence[Skill]) -> SkillSet:
        """The set of these skills: this one, if they are the same."""
        return self if self.digest and skills == self.all else SkillSet(skills, compute_skills_digest(skills)[:16])


def is_by_person(item: ItemFingerprint | StoredItem) -> bool:
    return any(a.origin is Origin.HUMAN for a in item.assignments)


def is_classified(item: ItemFingerprint, skills: SkillSet) -> bool:
    """Whether the item was classified with its present content and, if no skill fitted, with the same skills."""
    return _split(item)[1] == (item.digest if item.assignments else f"{item.digest}:{skills.digest}")


def is_refined(item: ItemFingerprint, skills: SkillSet) -> bool:
    """Whether the language model has answered about the item with its present content, usably or not."""
    by = _split(item)[0]
    return is_classified(item, skills) and (by == Origin.LLM or by.endswith(REFUSED))


def is_by_model(item: ItemFingerprint) -> bool:
    """Whether the language model was the last to classify the item, with its present content or an earlier one."""
    return _split(item)[0] == Origin.LLM


def fits_nowhere(item: ItemFingerprint) -> bool:
    """Whether no skill, of whichever set, fitted the item with its present content."""
    return not item.assignments and _split(item)[1].startswith(f"{item.digest}:")


def mark_refused(item: ItemFingerprint) -> tuple[str, str]:
    """The item's stamp, and its stamp after the language model gave no usable answer."""
    by, what = _split(item)
    return item.classified, item.classified if by == Origin.LLM else f"{by.removesuffix(REFUSED)}{REFUSED}:{what}"


def build_records(
    items: Mapping[str, Item],
    answers: Mapping[str, Classification | None],
    by: Origin,
    skills: SkillSet,
    suggestions: Mapping[str, Suggestion] | None = None,
) -> list[ClassificationRecord]:
    """What to store of a classifier's usable answers. Where no skill fits, the item keeps its earlier suggestion."""
    records = []
    for item_id, answer in answers.items():
        if answer is not None and answer.is_clear:
            what = items[item_id].digest if answer.assignments else f"{items[item_id].digest}:{skills.digest}"
            missing = None if answer.assignments else (suggestions or {}).get(item_id, answer.missing)
            records.append(ClassificationRecord(item_id, f"{by}:{what}", answer.assignments, missing))
    return records


def _split(item: ItemFingerprint) -> tuple[str, str]:
    by, _, what = item.classified.partition(":")
    return by, what

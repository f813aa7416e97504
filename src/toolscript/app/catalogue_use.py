"""What opening an application may do to the skills of the catalogue and to its index."""

from __future__ import annotations

from typing import Literal

from toolscript.domain.catalog import compute_skills_digest
from toolscript.domain.errors import Invalid
from toolscript.ports.stores import SkillStore
from toolscript.services.skills.skills_file import load_skills
from toolscript.settings import Settings

CatalogueUse = Literal["change", "read", "leave"]
"""change: they become those that the settings name. read: they are used as they are, and settings that name others are
refused. leave: they are not used."""


async def seed_skills(store: SkillStore, settings: Settings, catalogue: CatalogueUse) -> None:
    """Stores the skills that the settings name: with `change` in place of the skills of another file, deleting the
    classifications into them; otherwise only where no skills were stored. Raises Invalid for an unusable file, and with
    `read` when the stored skills are from another file."""
    skills = load_skills(settings.skills)
    digest, stored = compute_skills_digest(skills), await store.find_seed()
    if catalogue == "change" or stored is None:
        await store.seed_skills(digest, skills)
    elif catalogue == "read" and settings.skills and digest != stored:
        raise Invalid(
            f"the skills in this catalogue are not those of {settings.skills} (TOOLSCRIPT_SKILLS): run `toolscript "
            "sync` to classify its tools into them, unset the variable, or choose another folder with --data-dir",
            details={"field": "TOOLSCRIPT_SKILLS"},
        )

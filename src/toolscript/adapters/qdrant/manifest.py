"""The files of one collection of the embedded engine: a manifest and the generation folder that it names."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Collection, FieldType


@dataclass(frozen=True, slots=True)
class Manifest:
    """A collection, its current generation, and the number of points at that generation's optimisation."""

    collection: Collection
    generation: int
    optimised: int


def index_damage(folder: Path, error: Exception) -> Unavailable:
    """The error for a folder that cannot be read."""
    return Unavailable(
        f"the index in {folder} is damaged ({str(error).splitlines()[0] if str(error) else type(error).__name__}): "
        "run `toolscript index rebuild`, nothing is lost",
        details={"folder": str(folder)},
    )


def generation_folder(folder: Path, number: int) -> Path:
    """The folder of a generation."""
    return folder / f"generation-{number}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest, or None for a new collection. Raises Unavailable for a damaged one."""
    try:
        document = json.loads((folder / "collection.json").read_text(encoding="utf-8"))
        stored = document["collection"]
        fields = {name: FieldType(kind) for name, kind in stored["fields"].items()}
        collection = Collection(
            stored["name"], stored["model"], stored["dimensions"], fields, stored.get("exact", False)
        )
        return Manifest(collection, document["generation"], document["optimised"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise index_damage(folder, error) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest atomically: readers see the old one or the new one."""
    draft = folder / "collection.json.new"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "collection.json")


def remove_other_generations(folder: Path, keep: Path | None) -> None:
    """Removes the generations that the manifest does not name: leftovers of a crash."""
    for leftover in folder.glob("generation-*"):
        if leftover != keep:
            shutil.rmtree(leftover, ignore_errors=True)

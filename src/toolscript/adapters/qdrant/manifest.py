"""What the folder of a collection of the embedded engine holds: a manifest, and the generation that it names."""

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
    """What a collection is, which generation of its folder counts, and how many points were there when that one was
    optimised."""

    collection: Collection
    generation: int
    optimised: int


def damaged(folder: Path, error: Exception) -> Unavailable:
    """What to raise for a folder that cannot be read."""
    return Unavailable(
        f"the index in {folder} is damaged ({str(error).splitlines()[0] if str(error) else type(error).__name__}): "
        "run `toolscript index rebuild`, nothing is lost",
        details={"folder": str(folder)},
    )


def generation_folder(folder: Path, number: int) -> Path:
    """Where a generation lies."""
    return folder / f"generation-{number}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest, if there is one. Raises Unavailable for one that is damaged."""
    try:
        written = json.loads((folder / "collection.json").read_text(encoding="utf-8"))
        told = written["collection"]
        fields = {name: FieldType(kind) for name, kind in told["fields"].items()}
        collection = Collection(told["name"], told["model"], told["dimensions"], fields, told.get("exact", False))
        return Manifest(collection, written["generation"], written["optimised"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder, error) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest: whoever reads finds the old one or the new one."""
    draft = folder / "collection.json.new"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "collection.json")


def sweep(folder: Path, keep: Path | None) -> None:
    """Removes the generations that the manifest does not name."""
    for leftover in folder.glob("generation-*"):
        if leftover != keep:
            shutil.rmtree(leftover, ignore_errors=True)

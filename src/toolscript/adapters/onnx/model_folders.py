"""Finds the files of a model: in a folder, the local cache, this package, or the hub, in that order."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.search import SimilarityRange

# In the package: a model for every kind of text, and one for tools.
PACKAGED, PACKAGED_FOR_TOOLS = "all-MiniLM-L6-v2", "toolscript-small-2"
ONNX_FILES = (
    "onnx/model_quantized.onnx",
    "model_quantized.onnx",
    "onnx/model.onnx",
    "model.onnx",
    "onnx/model_fp16.onnx",
    "model_fp16.onnx",
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
DIGESTS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What Toolscript knows about a model; data/models.toml explains the fields. The first name is the canonical one.
    `similarity` is None for a model that has not been measured; `trained_for` is "tools" or empty."""

    names: tuple[str, ...]
    dimensions: int
    pooling: str
    window: int
    repository: str = ""
    prefix: str = ""
    files: tuple[str, ...] = ONNX_FILES
    similarity: SimilarityRange | None = None
    trained_for: str = ""

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The files of a model on this machine."""

    card: ModelCard
    onnx: Path
    tokenizer: Path


@cache
def read_registry() -> tuple[ModelCard, ...]:
    """The models that Toolscript knows."""
    text = resources.files("toolscript").joinpath("data/models.toml").read_text(encoding="utf-8")
    return tuple(
        ModelCard(
            **entry
            | {
                "names": tuple(entry["names"]),
                "files": tuple(entry["files"]),
                "similarity": SimilarityRange(**entry["similarity"]) if "similarity" in entry else None,
            }
        )
        for entry in tomllib.loads(text)["model"]
    )


def find_model_card(name: str) -> ModelCard | None:
    """The card of a model by any of its names, ignoring case."""
    return next((c for c in read_registry() if name.casefold() in map(str.casefold, c.names)), None)


def find_locally(name: str, cache_dir: Path) -> ModelFolder | None:
    """The model in a folder, in the cache or in this package; None when only the hub may have it.

    Raises Invalid for a folder without a usable model.
    """
    card = find_model_card(name)
    stored = [place / _folder_name(name) for place in (cache_dir, _package())]
    for place in stored if card else [Path(name), *stored]:
        if _is_folder(place):
            return _folder(place.expanduser(), card)
    return None


def download(name: str, cache_dir: Path, hub_url: str, token: str | None = None) -> ModelFolder:
    """Downloads a model from the hub into the cache, completely or not at all.

    Raises Invalid for a name that the hub does not know, and Unavailable, within three seconds, when the hub does
    not answer.
    """
    card = find_model_card(name)
    repository = card.repository if card else name
    if not _REPOSITORY.fullmatch(repository):
        raise unknown_model(name)
    _require_hub(name, hub_url)
    # Without it the library asks the public hub, whatever `hub_url` is, which programs may have started it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, errors  # slow to import, rarely needed

    hub = HfApi(endpoint=hub_url, token=token or False)
    target = cache_dir / _folder_name(name)
    partial = target.with_name(f".{target.name}.partial")
    try:
        files = set(hub.list_repo_files(repository))
        onnx = next((f for f in (*(card.files if card else ()), *ONNX_FILES) if f in files), ONNX_FILES[0])
        hub.snapshot_download(repository, local_dir=partial, allow_patterns=[onnx, "*.json", "1_Pooling/config.json"])
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise unknown_model(name) from error
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"model {name} could not be downloaded from {hub_url}: {error}", details={"model": name}
        ) from error
    _folder(partial, card)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return _folder(target, card)


def unknown_model(name: str) -> Invalid:
    names = [c.names[1] for c in read_registry()]
    return Invalid(
        f"unknown model {name!r}: use one of {', '.join(names)}, or the path of a folder with an ONNX model "
        "and its tokenizer.json",
        details={"model": name, "supported": names},
    )


def _require_hub(name: str, hub_url: str) -> None:
    import httpx

    try:
        httpx.head(hub_url, timeout=current_limits().model_hub, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Unavailable(
            f"model {name} is not on this machine and the hub {hub_url} cannot be reached ({type(error).__name__})",
            details={"model": name, "hub": hub_url},
        ) from error


def check_digests(folder: ModelFolder) -> None:
    """Raises Unavailable, naming the file, when a file of the model is not the file that was packaged. Models that come
    without digests are not checked."""
    place = folder.tokenizer.parent
    sums = place / DIGESTS
    for line in sums.read_text(encoding="ascii").splitlines() if sums.is_file() else ():
        expected, name = line.split()
        try:
            is_same = hashlib.sha256((place / name).read_bytes()).hexdigest() == expected
        except OSError:
            is_same = False
        if not is_same:
            raise Unavailable(
                f"{place / name} is not the file of the package: install Toolscript again",
                details={"model": folder.card.name, "file": str(place / name)},
            )


def _package() -> Path:
    return Path(str(resources.files("toolscript").joinpath("data/models")))


def _is_folder(place: Path) -> bool:
    try:
        return place.expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # a name may be no valid path
        return False


def _folder_name(name: str) -> str:
    card = find_model_card(name)
    return card.name if card else name.replace("/", "--")


def _folder(place: Path, card: ModelCard | None = None) -> ModelFolder:
    card = card or _describe(place)
    onnx = next((place / f for f in (*card.files, *ONNX_FILES) if (place / f).is_file()), None)
    tokenizer = place / "tokenizer.json"
    if onnx is None or not tokenizer.is_file():
        raise Invalid(
            f"{place} has no usable model: it needs tokenizer.json and one of {', '.join(ONNX_FILES)}",
            details={"model": card.name, "folder": str(place)},
        )
    return ModelFolder(card, onnx, tokenizer)


def _describe(place: Path) -> ModelCard:
    """A card for a folder of the user, read from the files that come with models."""
    own = find_model_card(place.name)
    if own:
        return own
    pooling_file = place / "1_Pooling" / "config.json"
    try:
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        dimensions = int(config.get("hidden_size") or config["dim"])
        window = min(int(config.get("max_position_embeddings", 512)), 512)
        pooling = json.loads(pooling_file.read_text(encoding="utf-8")) if pooling_file.is_file() else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            f"{place} has no usable model: config.json must be JSON with hidden_size",
            details={"folder": str(place)},
        ) from error
    names = (f"{place.name}-{_fingerprint(place, pooling)}", place.name)
    return ModelCard(
        names,
        dimensions,
        "cls" if pooling.get("pooling_mode_cls_token") else "mean",
        window,
        trained_for=str(config.get("trained_for", "")),
    )


def _fingerprint(place: Path, pooling: Any) -> str:
    """Distinguishes two models in folders of the same name: an index must not mix their vectors."""
    digest = hashlib.sha256(json.dumps(pooling, sort_keys=True).encode())
    for file in (place / f for f in ONNX_FILES if (place / f).is_file()):
        with file.open("rb") as opened:
            digest.update(opened.read(2**20))
            digest.update(str(file.stat().st_size).encode())
    return digest.hexdigest()[:8]

"""What `toolscript doctor` asks of the engines and of this machine. Nothing is written outside a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from toolscript.adapters.mcp.machine_environment import CERTIFICATES, select_network_variables
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.outgoing.remote_services import hide_credentials
from toolscript.app.engines import open_index
from toolscript.domain.errors import FolderInUse
from toolscript.domain.search import Collection, Point, Terms
from toolscript.settings import Settings

__all__ = ["check_index", "check_index_folder", "hide_credentials", "list_network_variables", "names_certificates"]

_COLLECTION = Collection("toolscript_doctor", "doctor", 2)


async def check_index(settings: Settings) -> str:
    """What the index engine is, after it has stored a point in a temporary folder, or answered at its address. Raises
    Invalid or Unavailable, and whatever the engine raises."""
    if settings.index:
        index = open_index(settings)
        try:
            await index.describe(_COLLECTION.name)
        finally:
            await index.close()
        return settings.index.partition(":")[0]
    vector = await HashedEmbedder(_COLLECTION.dimensions).embed_query("a point")
    with TemporaryDirectory(prefix="toolscript-") as folder:
        index = open_index(replace(settings, data_dir=Path(folder)))
        try:
            await index.open(_COLLECTION)
            await index.upsert(_COLLECTION.name, [Point("1", vector, Terms(), {})])
            await index.count(_COLLECTION.name)
        finally:
            await index.close()
    return f"qdrant-edge {version('qdrant-edge-py')}"


def check_index_folder(settings: Settings) -> list[str]:
    """Why collections in the data folder cannot be read. Raises FolderInUse while a process has them open."""
    from toolscript.adapters.qdrant.edge import find_damage, is_in_use

    folder = settings.data / "index"
    if settings.index or not folder.is_dir():
        return []
    if is_in_use(folder):
        raise FolderInUse(f"{folder} is open in another process", details={"folder": str(folder)})
    return find_damage(folder)


def list_network_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies and certificates of this machine that servers get, with passwords."""
    return {name: value for name, value in sorted(select_network_variables(environment, {}).items()) if value}


def names_certificates(variable: str) -> bool:
    """Whether the variable has the path of certificates."""
    paths = CERTIFICATES - {"DENO_TLS_CA_STORE", "NODE_USE_SYSTEM_CA"} | {"PIP_CERT", "NPM_CONFIG_CAFILE"}
    return variable.upper() in paths

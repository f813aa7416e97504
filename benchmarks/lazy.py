"""Times the start of a gateway with hundreds of lazy servers that it knows already, and measures its memory."""

from __future__ import annotations

import gzip
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.gateway import RunningGateway, fetch_json, start_gateway, write_tools
from benchmarks.timing import Table, format_duration
from tests.servers import make_scripted_spec
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import open_app
from toolscript.configuration.files import FILE_NAME, load_configuration
from toolscript.domain.catalog import Item
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.catalogue import FILE as RECORD
from toolscript.surfaces.cli.client.catalogue import compute_digests

TOOLS_PER_SERVER = 5
STARTS = 5
NOTE = (
    '`toolscript gateway start` with scripted servers, all with `"start": "lazy"`, whose tools are in the catalogue: '
    "from the start of the process until `GET /ready` says yes. No server is started. Memory is measured after ten "
    "searches: what is resident includes the pages of files that are mapped (the index, libraries), which the system "
    "takes back when it needs them; *anonymous* memory belongs to the process alone."
)


@dataclass(frozen=True, slots=True)
class _Start:
    ready_seconds: float
    resident: int
    anonymous: int
    processes: int


async def run(quick: bool) -> list[Table]:
    """Starts a gateway several times with a catalogue that is complete."""
    servers = 60 if quick else 300
    with TemporaryDirectory() as folder:
        place = Path(folder)
        tools = await _prepare(place, servers)
        starts = []
        for _ in range(STARTS):
            with start_gateway(place, tools) as gateway:
                starts.append(_measure(gateway))
    starts.sort(key=lambda start: start.ready_seconds)
    middle, slowest = starts[STARTS // 2], starts[-1]
    row = (
        f"{servers} servers, {tools:,} tools",
        format_duration(middle.ready_seconds),
        format_duration(slowest.ready_seconds),
        f"{max(start.resident for start in starts) / 2**20:.0f} MiB",
        f"{max(start.anonymous for start in starts) / 2**20:.0f} MiB",
        str(max(start.processes for start in starts)),
    )
    columns = ("Size", "Ready after (median)", "Slowest", "Resident", "Anonymous", "Servers running")
    return [Table("Starting with lazy servers", columns, [row], NOTE)]


async def _prepare(place: Path, servers: int) -> int:
    """Writes a configuration, and the catalogue as a gateway leaves it that has listed every server; returns the number
    of tools."""
    write_tools(place / "tools.jsonl.gz", servers * TOOLS_PER_SERVER, fill=True)
    rows = [json.loads(line) for line in gzip.decompress((place / "tools.jsonl.gz").read_bytes()).splitlines()]
    items = [
        Item(
            f"server{number % servers}", f"{row['name']}_{number}", row["description"], input_schema=row["input_schema"]
        )
        for number, row in enumerate(rows)
    ]
    entry = make_scripted_spec() | {"start": "lazy"}
    entries = {f"server{number}": entry for number in range(servers)}
    (place / FILE_NAME).write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    specs = load_configuration(place / FILE_NAME, home=place, folder=place, environment={}).servers
    data = place / ".toolscript"
    async with open_app(load_settings(variables={}, data_dir=data, search_model=PACKAGED)) as app:
        await app.catalogue.sync.configure([spec.name for spec in specs])
        await app.catalogue.sync.run(items)
    record = {"config": None, "folder": str(place), "servers": compute_digests(specs)}
    (data / RECORD).write_text(json.dumps(record), encoding="utf-8")
    return len(items)


def _measure(gateway: RunningGateway) -> _Start:
    for number in range(10):
        fetch_json(f"{gateway.url}/search?q=send+message+{number}")
    time.sleep(1)  # the catalogue is read in the background
    rollup = Path(f"/proc/{gateway.pid}/smaps_rollup").read_text(encoding="ascii")
    kilobytes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", rollup, re.MULTILINE)}
    children = psutil.Process(gateway.pid).children(recursive=True)
    running = sum(any("scripted.py" in word for word in child.cmdline()) for child in children)
    return _Start(gateway.ready_seconds, kilobytes["Rss"] * 1024, kilobytes["Anonymous"] * 1024, running)

"""The definitions of real servers are not suspicious, at their first listing and at the next ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.servers.real import real_servers
from toolscript.app.app import open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.servers import ServerState
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("G-15")

TIMEOUT_SECONDS = 300.0


@pytest.mark.extended
async def test_no_definition_of_a_real_server_goes_into_quarantine(tmp_path: Path) -> None:
    settings = load_settings(
        variables={}, data_dir=tmp_path / "data", search_model="hashed-64", connect_timeout=TIMEOUT_SECONDS
    )
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": real_servers(tmp_path / "work")}), encoding="utf-8")
    specs = load_configuration(file, home=tmp_path, folder=tmp_path, environment={}).servers
    for _ in range(2):  # the second time their processes are new, and their definitions are compared
        async with open_app(settings) as app:
            await app.servers.gateway.apply(specs)
            await app.servers.gateway.settle(TIMEOUT_SECONDS)
            assert {status.state for status in app.servers.gateway.statuses} == {ServerState.READY}
            assert await app.catalogue.quarantine.list_waiting() == []
            count = len(await app.stores.items.get_items())
    guide = (REPOSITORY / "docs" / "guide" / "trust.md").read_text(encoding="utf-8")
    stated = re.search(r"\| real, of thirteen servers that the tests start \| (\d+) \| 0 \|", guide)
    assert stated
    assert abs(int(stated[1]) - count) < 10  # servers offer more to clients that can do more

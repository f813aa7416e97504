"""Names in programs stand for the same tools, whoever runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.requests import as_request
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.programs import Language
from toolscript.domain.servers import ServerState, ServerStatus, Transport
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("C-01")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64", index="memory:", code="python")
    async with open_app(settings) as opened:
        opened.access.profiles.replace([Profile("few", allow=ItemRules(tools=("disk__get-env", "my disk__read")))])
        items = [Item("disk", "get_env"), Item("disk", "get-env"), Item("my_disk", "read"), Item("my disk", "read")]
        await opened.catalogue.sync.run(items)
        yield opened


async def test_what_a_caller_cannot_see_keeps_its_name(app: App) -> None:
    wanted = ["disk__get-env", "my disk__read"]
    calls = await app.code.toolsets.name_calls(Language.PYTHON, wanted)
    assert calls == {"disk__get-env": "tools.disk.get_env2", "my disk__read": "tools.my_disk2.read"}
    with as_request(profile="few"):
        assert await app.code.toolsets.name_calls(Language.PYTHON, wanted) == calls
        found = await app.code.toolsets.find(Language.PYTHON, "tools.disk.get_env()\ntools.my_disk.read()")
        assert found.tools.tools == []
        assert sorted(found.problems) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (ServerState.CONNECTING, None, "the server my-git is still starting: try again in a moment"),
        (ServerState.FAILED, "command not found: npx\nmore", "the server my-git has failed, and is tried again"),
        (ServerState.STOPPED, "stopped by ana", "the server my-git is stopped by ana: somebody has to start it"),
        (ServerState.READY, None, "the server my-git has no tools"),
    ],
)
async def test_a_server_without_tools_says_why(
    app: App, monkeypatch: pytest.MonkeyPatch, state: ServerState, reason: str | None, sentence: str
) -> None:
    status = ServerStatus("my-git", Transport.STDIO, state, reason)
    monkeypatch.setattr(app.code.toolsets, "_list_statuses", lambda: [status])
    found = await app.code.toolsets.find(Language.PYTHON, "await tools.my_git.log({})\nawait tools.you_git.log({})")
    assert found.problems[1].startswith(f"tools.my_git.log: {sentence}")
    assert "more" not in found.problems[1]
    assert found.problems[2].startswith("tools.you_git.log: no such server: ")


async def test_a_server_without_tools_stays_hidden_from_those_who_may_not_see_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = ServerStatus("git", Transport.STDIO, ServerState.CONNECTING)
    monkeypatch.setattr(app.code.toolsets, "_list_statuses", lambda: [status])
    with as_request(profile="few"):
        found = await app.code.toolsets.find(Language.PYTHON, "await tools.git.log({})")
    assert found.problems[1].startswith("tools.git.log: no such server: ")

"""Names in programs stand for the same tools, whoever runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.programs import Language
from toolscript.domain.requests import profile_name
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("C-01")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64", index="memory:", code="python")
    async with open_app(settings) as opened:
        opened.profiles.replace([Profile("few", allow=ItemRules(tools=("disk__get-env", "my disk__read")))])
        items = [Item("disk", "get_env"), Item("disk", "get-env"), Item("my_disk", "read"), Item("my disk", "read")]
        await opened.sync.run(items)
        yield opened


async def test_what_a_caller_cannot_see_keeps_its_name(app: App) -> None:
    wanted = ["disk__get-env", "my disk__read"]
    calls = await app.code.toolsets.name_calls(Language.PYTHON, wanted)
    assert calls == {"disk__get-env": "tools.disk.get_env2", "my disk__read": "tools.my_disk2.read"}
    token = profile_name.set("few")
    try:
        assert await app.code.toolsets.name_calls(Language.PYTHON, wanted) == calls
        found = await app.code.toolsets.find(Language.PYTHON, "tools.disk.get_env()\ntools.my_disk.read()")
        assert found.tools.tools == []
        assert sorted(found.problems) == [1, 2]
    finally:
        profile_name.reset(token)

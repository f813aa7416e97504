"""The kinds of sandboxes, and what hostile programs in every language try to reach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.sandbox.contract_host import SANDBOXES
from tests.contracts.sandbox.limited_host import SECRET, Outside, open_outside


@pytest.fixture
async def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outside]:
    monkeypatch.setenv("TOOLSCRIPT_SECRET", SECRET)
    async with open_outside(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module", params=SANDBOXES)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "deno":
        pytest.importorskip("deno", reason="Deno has no wheel for this platform")
    return str(request.param)

"""`toolscript mcp` where it cannot work."""

from __future__ import annotations

import pytest

from toolscript.domain.errors import Invalid
from toolscript.pipe import carrier
from toolscript.surfaces.cli.commands import mcp


@pytest.mark.req("A-06", "X-03")
def test_a_system_without_pipes_says_what_agents_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (carrier, mcp):
        monkeypatch.setattr(module, "HAS_PIPES", False)
    assert carrier.run([]) is None
    assert mcp.mcp.callback
    with pytest.raises(Invalid, match="give the agent its address, http://127"):
        mcp.mcp.callback(linger=0, serves=False)

"""`toolscript approvals` lists calls that wait, and decides, with and without a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.gateway import find_gateway_url
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("G-09", "G-13")

CALL = ("call", "notes__echo", '{"text": "a\u202eb", "password": "hunter2"}')


@pytest.fixture
def toolscript(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs commands on a folder with a server whose calls need approval."""
    servers = {"notes": make_scripted_spec(tools=["echo"]) | {"approval": "writes"}}
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    def invoke(*arguments: str, code: int = 0) -> Result:
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner().invoke(run, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return invoke


def read(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture(params=choose(["gateway", "alone"], "gateway"))
def _with_and_without_gateway(
    request: pytest.FixtureRequest, toolscript: Callable[..., Result], start_gateway: Callable[[], None]
) -> None:
    if request.param == "gateway":
        start_gateway()


@pytest.mark.usefixtures("_with_and_without_gateway")
def test_a_call_waits_until_it_is_approved_and_is_repeated_once(toolscript: Callable[..., Result]) -> None:
    assert toolscript("approvals").stdout == "No call waits for approval.\n"
    waits = toolscript(*CALL, code=6).stderr
    (call,) = read(toolscript("approvals", "--json"))["calls"]
    assert f"`toolscript approvals approve {call['id']}`" in waits
    listed = toolscript("approvals", "list").stdout
    for text in (call["id"], "notes__echo", r'"text": "a\u202eb"', "[redacted]"):
        assert text in listed
    assert "hunter2" not in listed
    approved = toolscript("approvals", "approve", call["id"].upper()).stdout
    assert approved == f"Approved {call['id']}: notes__echo can be repeated once, within 10 minutes.\n"
    assert "already" in toolscript("approvals", "decline", call["id"], code=7).stderr
    assert '"hunter2"' in toolscript(*CALL).stdout
    assert "`toolscript approvals` lists" in toolscript("approvals", "approve", call["id"], code=4).stderr
    toolscript(*CALL, code=6)
    (again,) = read(toolscript("approvals", "--json"))["calls"]
    assert read(toolscript("approvals", "decline", again["id"], "--json"))["state"] == "declined"
    assert "a person declined it" in toolscript(*CALL, code=6).stderr
    assert read(toolscript("approvals", "--json")) == {"calls": [], "total": 0}


@pytest.mark.extended
@pytest.mark.req("X-04")
def test_with_a_key_in_the_environment_the_owner_still_decides(
    toolscript: Callable[..., Result], start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where agents have the key of the operator, too, the data folder tells the person apart."""
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "the-key-of-the-operator")
    start_gateway()
    toolscript(*CALL, code=6)
    (call,) = read(toolscript("approvals", "--json"))["calls"]
    url = f"{find_gateway_url(load_settings())}/api/v1/approvals/{call['id']}/approve"
    assert httpx.post(url, headers={"X-API-Key": "the-key-of-the-operator"}).status_code == 403
    toolscript("approvals", "approve", call["id"])
    assert "hunter2" in toolscript(*CALL).stdout

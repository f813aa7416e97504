"""`toolscript workflows`: with a running gateway, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("C-03")

PROGRAM = 'said = await tools.box.echo({"text": params["word"]})\nreturn said["text"].upper()\n'
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
ABOUT = ("--description", "Says a word in capital letters.")


@pytest.fixture
def folder(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLSCRIPT_CODE", "python")
    servers = {"mcpServers": {"box": make_scripted_spec(tools=["echo", "fail"])}}
    Path(".toolscript.json").write_text(json.dumps(servers), encoding="utf-8")
    Path("shout.py").write_text(PROGRAM, encoding="utf-8")
    Path("parameters.json").write_text(json.dumps(PARAMETERS), encoding="utf-8")
    return small_folder


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(run, list(arguments))


def save(*more: str) -> Result:
    return invoke("workflows", "save", "shout", "shout.py", *more)


@pytest.mark.parametrize("with_gateway", choose([True, False], True))
def test_a_workflow_is_saved_called_replaced_and_removed(
    folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    if with_gateway:
        start_gateway()
    saved = save(*ABOUT, "--parameters", "parameters.json")
    assert saved.stdout == "Saved shout: the tool workflows__shout.\n", saved.output
    called = invoke("call", "workflows__shout", '{"word": "ho"}', "--json")
    assert called.exit_code == 0, called.output
    assert "HO" in called.stdout
    changed = 'return params["word"]\n'
    Path("shout.py").write_text(changed, encoding="utf-8")
    assert "Saved shout" in save().stdout  # with its parameters
    assert invoke("workflows", "show", "shout").stdout.strip() == changed.strip()
    assert "ho" in invoke("call", "workflows__shout", '{"word": "ho"}').stdout
    assert "shout" in invoke("workflows").stdout
    assert invoke("workflows", "remove", "shout").stdout == "Removed shout.\n"
    assert "There are no workflows" in invoke("workflows", "list").output


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_saved_is_named() -> None:
    assert "--description" in save().output
    Path("shout.py").write_text("await tools.box.ecko({})", encoding="utf-8")
    assert "line 1: tools.box.ecko: no such tool: did you mean tools.box.echo?" in save(*ABOUT).output
    Path("shout.py").write_text("return 1", encoding="utf-8")
    for option in ("--parameters", "--result"):
        for text in ('"words"', "[1]", "{"):
            Path("wrong.json").write_text(text, encoding="utf-8")
            wrong = save(*ABOUT, option, "wrong.json")
            assert wrong.exit_code == 2, wrong.output
            assert "must be" in wrong.output or "is not valid JSON" in wrong.output
    assert "must end in .py or .ts" in invoke("workflows", "save", "shout", "parameters.json").output
    unknown = invoke("workflows", "show", "shaut")
    assert unknown.exit_code != 0
    assert "no such workflow: 'shaut'" in unknown.output


@pytest.mark.usefixtures("folder")
def test_a_program_that_calls_a_workflow_has_the_servers_of_its_program_without_a_gateway() -> None:
    save(*ABOUT, "--parameters", "parameters.json")
    Path("again.py").write_text('return await tools.workflows.shout({"word": "hi"})', encoding="utf-8")
    saved = invoke("workflows", "save", "again", "again.py", "--description", "Shouts.")
    assert saved.exit_code == 0, saved.output
    Path("program.py").write_text("await tools.workflows.again({})", encoding="utf-8")
    ran = invoke("run", "program.py")
    assert (ran.exit_code, json.loads(ran.stdout)) == (0, {"result": "HI"}), ran.output


@pytest.mark.parametrize("with_gateway", choose([True, False], False))
def test_workflows_leave_the_tools_of_a_server_with_their_name_alone(
    folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    servers = {"mcpServers": {"workflows": make_scripted_spec(tools=["echo"])}}
    Path(".toolscript.json").write_text(json.dumps(servers), encoding="utf-8")
    Path("shout.py").write_text("return 1", encoding="utf-8")
    if with_gateway:
        start_gateway()
    saved = save(*ABOUT)
    assert saved.exit_code == 7
    assert (
        "a configured server is named workflows and takes the place of the workflows: rename its entry" in saved.output
    )
    called = invoke("call", "workflows__echo", '{"text": "a"}')
    assert called.exit_code == 0, called.output

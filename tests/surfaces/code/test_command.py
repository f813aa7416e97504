"""`toolscript run`: with a running gateway, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("C-01")

PROGRAM = 'said = await tools.box.echo({"text": "hi"})\nprint("called")\nsaid["text"]\n'


@pytest.fixture
def folder(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLSCRIPT_CODE", "python")
    servers = {"mcpServers": {"box": make_scripted_spec(tools=["echo", "fail"])}}
    Path(".toolscript.json").write_text(json.dumps(servers), encoding="utf-8")
    Path("program.py").write_text(PROGRAM, encoding="utf-8")
    return small_folder


def invoke(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(run, ["run", *arguments], input=given)


@pytest.mark.parametrize("with_gateway", choose([True, False], True))
def test_a_program_runs_with_and_without_a_gateway(
    folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    if with_gateway:
        start_gateway()
    result = invoke("program.py")
    assert (result.exit_code, result.stdout) == (0, 'called\n"hi"\n'), result.output
    wrong = invoke("-", given='await tools.box.echo({"txt": 1})')
    assert wrong.exit_code == 2
    assert "rejected line 1: " in wrong.stderr
    assert "expected await tools.box.echo({text: string" in wrong.stderr
    failed = invoke("-", "--language", "python", "--json", given='await tools.box.fail({"message": "no"})')
    assert failed.exit_code == 5
    assert json.loads(failed.stdout)["calls"][0]["outcome"] == "UPSTREAM_ERROR"


@pytest.mark.extended
@pytest.mark.usefixtures("folder")
def test_a_program_is_checked_without_its_servers() -> None:
    ran = invoke("program.py")
    assert (ran.exit_code, ran.stdout) == (0, 'called\n"hi"\n'), ran.output
    result = invoke("program.py", "--check")
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.usefixtures("folder")
def test_a_search_prints_the_types_that_a_program_needs() -> None:
    wanted = ["search", "echo", "--output", "types", "--language", "python", "--max-tokens", "200"]
    result = CliRunner().invoke(run, wanted)
    assert result.exit_code == 0, result.output
    assert "    async def echo(self, params: BoxEchoParams) -> BoxEchoResult:" in result.stdout
    wrong = CliRunner().invoke(run, ["search", "echo", "--language", "python"])
    assert wrong.exit_code == 2
    assert "--language needs --output types" in wrong.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["program.txt"], "the language of program.txt is not known: name it with --language"),
        (["missing.py"], "cannot read missing.py"),
        (["program.py", "--limit", "seconds=soon"], "--limit: not a number: soon"),
        (["program.py", "--limit", "speed=1"], "limits.speed"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr

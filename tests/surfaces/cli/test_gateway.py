"""The gateway's commands without a gateway: what they start and print, and their exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.command_line import read_json
from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run

Toolscript = Callable[..., Result]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, a data folder, and a tiny model."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def toolscript(monkeypatch: pytest.MonkeyPatch) -> Toolscript:
    def invoke(*arguments: str, code: int = 0, given: str | None = None) -> Result:
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner().invoke(run, list(arguments), input=given)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration of one server, and a data folder with its tools, for tests that only read."""
    folder = tmp_path_factory.mktemp("good")
    file = configure({"good": make_scripted_spec(resources=True)}, folder / ".toolscript.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
        synced = CliRunner().invoke(run, ["sync", "--config", str(file), "--data-dir", str(folder / "data")])
    assert synced.exit_code == 0, synced.output
    return folder


@pytest.fixture
def good(good_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with one server as current folder."""
    monkeypatch.chdir(good_folder)
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(good_folder / "data"))


def count_starts(entry: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The entry of a server that appends a line to the file whenever it is started."""
    script = 'echo started >> "$1"; shift; exec "$@"'
    return {"command": "/bin/sh", "args": ["-c", script, "sh", str(file), entry["command"], *entry["args"]]}


def starts(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def configure(servers: Mapping[str, Any], file: Path = Path(".toolscript.json")) -> Path:
    file.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return file


def refusal(result: Result) -> Any:
    """The envelope on standard error, with nothing on standard output."""
    assert result.stdout == ""
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error.keys() == {"code", "message", "details"}
    return error


# --- list-servers ---


@pytest.mark.req("G-09", "G-02")
def test_servers_are_listed_with_their_state_counts_and_reason(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(prompts=True, resources=True), "bad": make_scripted_spec(crash=True)})
    header, *rows = toolscript("list-servers").stdout.splitlines()
    assert header.split() == ["Server", "State", "Tools", "Prompts", "Resources", "Reason"]
    printed = {row.split()[0]: row for row in rows}
    assert printed["good"].split() == ["good", "ready", "8", "2", "3"]
    assert printed["bad"].split()[:5] == ["bad", "failed", "0", "0", "0"]
    assert "exited with code 3: It crashed at the start, as scripted." in printed["bad"]


@pytest.mark.req("G-09", "G-02")
def test_servers_are_listed_as_json(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(tools=["echo"]), "none": {"command": "no-such-command"}})
    printed = read_json(toolscript("list-servers", "--json"))
    assert printed["configurationError"] is None
    good, none = printed["servers"]
    assert (good["name"], good["state"], good["reason"], good["tools"]) == ("good", "ready", None, 1)
    assert (none["name"], none["state"], none["transport"]) == ("none", "failed", "stdio")
    assert "command not found: no-such-command" in none["reason"]


@pytest.mark.req("G-09", "G-02")
def test_lazy_servers_are_tried_once(toolscript: Toolscript, tmp_path: Path) -> None:
    configure({"rare": count_starts(make_scripted_spec(), tmp_path / "starts") | {"start": "lazy"}})
    (rare,) = read_json(toolscript("list-servers", "--json"))["servers"]
    assert rare["state"] in {"ready", "asleep"}  # listed, and perhaps stopped already
    assert (rare["reason"], rare["tools"]) == (None, 8)
    assert starts(tmp_path / "starts") == 1


@pytest.mark.req("G-09", "G-05")
def test_a_lazy_server_is_indexed_and_called_without_a_gateway(
    toolscript: Toolscript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SERVER_START", "lazy")
    configure({"rare": count_starts(make_scripted_spec(), tmp_path / "starts")})
    (synced,) = read_json(toolscript("sync", "--json"))["servers"]
    assert (synced["name"], synced["error"], synced["added"]) == ("rare", None, 8)
    assert read_json(toolscript("call", "rare__echo", "--arg", "text=x", "--json")) == {"text": "x"}
    assert starts(tmp_path / "starts") == 2


@pytest.mark.req("G-09")
def test_servers_are_connected_again_every_time(toolscript: Toolscript, tmp_path: Path) -> None:
    configure({"good": count_starts(make_scripted_spec(), tmp_path / "starts")})
    for times in (1, 2):
        assert [s["state"] for s in read_json(toolscript("list-servers", "--json"))["servers"]] == ["ready"]
        assert starts(tmp_path / "starts") == times


@pytest.mark.req("G-09")
def test_it_exits_with_3_when_no_server_is_ready(toolscript: Toolscript) -> None:
    configure({"bad": make_scripted_spec(crash=True), "none": {"command": "no-such-command"}})
    assert "failed" in toolscript("list-servers", code=3).stdout
    assert {s["state"] for s in read_json(toolscript("list-servers", "--json", code=3))["servers"]} == {"failed"}


@pytest.mark.req("G-09")
def test_without_a_configuration_it_exits_with_4_and_says_what_to_do(toolscript: Toolscript) -> None:
    result = toolscript("list-servers", code=4)
    assert result.stdout == ""
    assert ".toolscript.json" in result.stderr
    assert "--config" in result.stderr
    assert refusal(toolscript("list-servers", "--json", code=4))["code"] == "NOT_FOUND"


# --- list-tools ---


@pytest.mark.req("G-09")
def test_tools_are_listed_with_their_signatures(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(tools=["echo", "pid"], prompts=True)})
    assert toolscript("list-tools").stdout.splitlines() == [
        "good__echo  echo(text: string, times?: number) -> object",
        "good__pid  pid()",
        "good__prompt:greet  greet()",
        "good__prompt:summarise  summarise(text: string, words?: string)",
    ]


@pytest.mark.req("G-09")
def test_tools_can_be_filtered_and_printed_as_json(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(tools=["echo", "pid"]), "other": make_scripted_spec(tools=["pid"])})
    expected = {
        "other": ["other__pid"],
        "good__echo": ["good__echo"],
        "good__echo,other": ["good__echo", "other__pid"],
        "nobody": [],
    }
    for wanted, found in expected.items():
        printed = read_json(toolscript("list-tools", wanted, "--json"))
        assert [tool["toolId"] for tool in printed["tools"]] == found
        assert printed["totalTools"] == len(found)


@pytest.mark.req("G-09")
@pytest.mark.usefixtures("good")
def test_a_filter_without_matches_is_reported_on_standard_error(toolscript: Toolscript) -> None:
    result = toolscript("list-tools", "nobody")
    assert result.stdout == ""
    assert "No tools match nobody" in result.stderr


@pytest.mark.req("G-09")
def test_without_a_configuration_the_demo_catalogue_is_listed(toolscript: Toolscript) -> None:
    assert read_json(toolscript("list-tools", "--json"))["totalTools"] == 56


# --- get-types ---


@pytest.mark.req("G-09", "G-06")
def test_a_typescript_client_is_printed(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(tools=["echo", "pid"]), "other": make_scripted_spec(tools=["pid"])})
    everything = toolscript("get-types").stdout
    assert everything.startswith("// Auto-generated TypeScript client for MCP tools\n// DO NOT EDIT")
    assert all(f'callTool("{tool}"' in everything for tool in ("good__echo", "good__pid", "other__pid"))
    some = toolscript("get-types", "good__echo,other").stdout
    assert 'callTool("good__pid"' not in some
    assert all(f'callTool("{tool}"' in some for tool in ("good__echo", "other__pid"))


@pytest.mark.req("G-09", "G-06")
@pytest.mark.parametrize("language", ["typescript", "python"])
@pytest.mark.usefixtures("good")
def test_types_of_an_unknown_name_exit_with_4_and_the_nearest_names(toolscript: Toolscript, language: str) -> None:
    result = toolscript("get-types", "goood", "--language", language, code=4)
    assert result.stdout == ""
    assert "no such server or tool: goood; did you mean good" in result.stderr
    error = refusal(toolscript("get-types", "good,good__ecoh", "--language", language, "--json", code=4))
    assert (error["code"], error["details"]["unknown"]) == ("NOT_FOUND", ["good__ecoh"])
    assert error["details"]["nearest"][0] == "good__echo"
    assert "toolscript list-tools" in toolscript("get-types", "xyzzy", code=4).stderr


@pytest.mark.req("G-09", "G-07")
@pytest.mark.usefixtures("good")
def test_a_python_client_is_printed(toolscript: Toolscript) -> None:
    source = toolscript("get-types", "good__echo", "--language", "python").stdout
    compile(source, "tools.py", "exec")
    assert "class GoodEchoParams(TypedDict)" in source
    assert "good__pid" not in source


@pytest.mark.req("G-09")
@pytest.mark.usefixtures("good")
def test_a_client_can_be_printed_as_json(toolscript: Toolscript) -> None:
    for language in ("typescript", "python"):
        plain = toolscript("get-types", "--language", language).stdout
        assert read_json(toolscript("get-types", "--language", language, "--json")) == {
            "language": language,
            "source": plain,
        }


# --- call ---


@pytest.mark.req("G-09", "G-05")
@pytest.mark.parametrize(
    ("arguments", "given", "answer"),
    [
        (['{"text": "hi", "times": 2}'], None, {"text": "hi", "times": 2}),
        (["--arg", "text=a=b", "--arg", "times=2"], None, {"text": "a=b", "times": 2}),
        (["--arg", 'text="7"'], None, {"text": "7"}),
        (['{"text": "hi"}', "--arg", "text=ho"], None, {"text": "ho"}),
        (["-"], '{"text": "from\\nstdin"}', {"text": "from\nstdin"}),
    ],
)
@pytest.mark.usefixtures("good")
def test_a_tool_is_called_with_arguments_given_in_any_of_three_ways(
    toolscript: Toolscript, arguments: list[str], given: str | None, answer: dict[str, Any]
) -> None:
    assert read_json(toolscript("call", "good__echo", *arguments, "--json", given=given)) == answer


@pytest.mark.req("G-09", "G-05")
@pytest.mark.usefixtures("good")
def test_text_answers_are_printed_as_text_and_others_as_json(toolscript: Toolscript) -> None:
    assert toolscript("call", "good__slow", "--arg", "seconds=0").stdout == "It took 0 s.\n"
    assert json.loads(toolscript("call", "good__echo", "--arg", "text=Grüße").stdout) == {"text": "Grüße"}
    assert "What memo://welcome holds" in toolscript("call", "good__resource:welcome").stdout


@pytest.mark.req("G-09", "X-03")
@pytest.mark.parametrize(
    ("arguments", "given", "printed"),
    [
        (["{"], None, "ARGUMENTS is not valid JSON"),
        (["[1]"], None, "ARGUMENTS must be a JSON object"),
        (["-"], "nonsense", "ARGUMENTS is not valid JSON"),
        (["--arg", "text"], None, "invalid --arg text: expected NAME=VALUE"),
        (["--call-timeout", "soon"], None, "invalid value --call-timeout=soon"),
        (["{}"], None, "text: 'text' is a required property"),
        pytest.param(["--arg", "text=7"], None, "text: 7 is not of type 'string'", marks=pytest.mark.extended),
    ],
)
@pytest.mark.usefixtures("good")
def test_invalid_arguments_are_refused_with_a_reason(
    toolscript: Toolscript, arguments: list[str], given: str | None, printed: str
) -> None:
    result = toolscript("call", "good__echo", *arguments, code=2, given=given)
    assert printed in result.stderr
    assert result.stdout == ""


@pytest.mark.req("G-09", "X-03")
def test_an_invalid_command_starts_no_server(toolscript: Toolscript, tmp_path: Path) -> None:
    configure({"good": count_starts(make_scripted_spec(), tmp_path / "starts")})
    toolscript("call", "good__echo", "{", code=2)
    toolscript("call", "good__echo", "--call-timeout", "0", code=2)
    assert starts(tmp_path / "starts") == 0


@pytest.mark.req("G-09", "G-05")
@pytest.mark.usefixtures("good")
def test_an_unknown_tool_exits_with_4_and_the_nearest_names(toolscript: Toolscript) -> None:
    assert "did you mean good__echo" in toolscript("call", "good__ecoh", code=4).stderr
    error = refusal(toolscript("call", "good__ecoh", "--json", code=4))
    assert (error["code"], error["details"]["nearest"][0]) == ("NOT_FOUND", "good__echo")


@pytest.mark.req("G-09", "G-05")
@pytest.mark.usefixtures("good")
def test_a_tool_that_fails_or_times_out_exits_with_5(toolscript: Toolscript) -> None:
    assert (
        "good__fail failed: out of ink"
        in toolscript("call", "good__fail", "--arg", "message=out of ink", code=5).stderr
    )
    assert "no paper" in toolscript("call", "good__error", "--arg", "message=no paper", code=5).stderr
    assert "was lost during the call" in toolscript("call", "good__die", code=5).stderr
    late = toolscript("call", "good__slow", "--arg", "seconds=60", "--call-timeout", "1", "--json", code=5)
    assert refusal(late)["code"] == "TIMED_OUT"


@pytest.mark.req("G-09", "G-05")
def test_a_call_starts_only_the_server_of_its_tool(toolscript: Toolscript, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("good", "other")}
    configure({name: count_starts(make_scripted_spec(), file) for name, file in files.items()})
    toolscript("search", "echo")
    assert {name: starts(file) for name, file in files.items()} == {"good": 1, "other": 1}
    toolscript("call", "other__pid")
    assert {name: starts(file) for name, file in files.items()} == {"good": 1, "other": 2}
    assert read_json(toolscript("list-tools", "good", "--json"))["totalTools"] == 8
    assert {name: starts(file) for name, file in files.items()} == {"good": 1, "other": 2}


@pytest.mark.req("G-09", "G-01")
def test_a_tool_that_the_configuration_excludes_does_not_exist(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec() | {"includeTools": ["e*", "pid"], "excludeTools": ["env"]}})
    assert [t["toolName"] for t in read_json(toolscript("list-tools", "--json"))["tools"]] == ["echo", "error", "pid"]
    toolscript("call", "good__env", "--arg", "name=HOME", code=4)


# --- search ---


@pytest.mark.req("S-05", "G-09")
def test_the_first_search_connects_and_the_next_starts_nothing(toolscript: Toolscript, tmp_path: Path) -> None:
    configure({"good": count_starts(make_scripted_spec(), tmp_path / "starts")})
    assert "good__echo" in toolscript("search", "echo").stdout
    assert starts(tmp_path / "starts") == 1
    assert "good__slow" in toolscript("search", "slow").stdout
    toolscript("list-tools")
    toolscript("get-types")
    assert starts(tmp_path / "starts") == 1


@pytest.mark.extended
@pytest.mark.req("S-05", "G-09")
@pytest.mark.parametrize(
    "command", choose([["search", "second"], ["list-tools"], ["get-types"]], ["search", "second"], ["get-types"])
)
def test_a_sync_connects_again_and_finds_new_tools(toolscript: Toolscript, tmp_path: Path, command: list[str]) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "first"}]}))
    configure({"good": count_starts(make_scripted_spec(watch=str(lists)), tmp_path / "starts")})
    assert "good__second" not in toolscript(*command).stdout
    lists.write_text(json.dumps({"tools": [{"name": "first"}, {"name": "second"}]}))
    assert "good__second" not in toolscript(*command).stdout
    assert starts(tmp_path / "starts") == 1
    toolscript("sync")
    assert "good__second" in toolscript(*command).stdout
    assert starts(tmp_path / "starts") == 2


@pytest.mark.req("S-05", "G-02")
def test_a_server_that_fails_is_reported_and_the_others_are_searched(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(), "bad": make_scripted_spec(crash=True)})
    result = toolscript("search", "echo", "--json")
    assert read_json(result)["results"][0]["toolId"] == "good__echo"
    assert "server bad: exited with code 3" in result.stderr
    again = toolscript("search", "echo", "--json")
    assert read_json(again)["results"][0]["toolId"] == "good__echo"
    assert "not indexed yet: bad" in again.stderr


@pytest.mark.req("S-05", "G-03")
def test_an_edit_of_the_configuration_is_applied_by_a_sync(toolscript: Toolscript) -> None:
    configure({"good": make_scripted_spec(tools=["echo", "pid"]), "other": make_scripted_spec(tools=["pid"])})
    assert read_json(toolscript("list-tools", "--json"))["totalTools"] == 3
    configure({"good": make_scripted_spec(tools=["echo", "pid"]) | {"excludeTools": ["pid"]}})
    toolscript("sync")
    assert [t["toolId"] for t in read_json(toolscript("list-tools", "--json"))["tools"]] == ["good__echo"]
    configure({"good": make_scripted_spec(tools=["echo", "pid"]), "new": make_scripted_spec(tools=["env"])})
    toolscript("sync")
    assert read_json(toolscript("search", "env", "--json"))["results"][0]["toolId"] == "new__env"


@pytest.mark.req("G-01", "G-09")
def test_the_file_of_the_home_folder_is_read_too_and_that_of_this_folder_wins(
    toolscript: Toolscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path.home()
    home.mkdir(parents=True)
    configure(
        {"home": make_scripted_spec(tools=["pid"]), "both": make_scripted_spec(tools=["pid"])},
        home / ".toolscript.json",
    )
    configure({"both": make_scripted_spec(tools=["echo"])})
    printed = read_json(toolscript("list-tools", "--json"))["tools"]
    assert [t["toolId"] for t in printed] == ["both__echo", "home__pid"]


BAD = """{
  "mcpServers": {
    "good": %s,
    "bad": {
      "comand": "typo"
    },
    "worse": {"command": ["not", "a", "text"]}
  }
}"""


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    "command",
    [
        ["search", "echo"],
        ["list-tools"],
        ["list-servers"],
        ["get-types"],
        ["call", "good__echo", "{}"],
        ["gateway", "start", "--port", "0"],
    ],
)
def test_a_bad_file_is_one_error_with_file_key_and_line_and_nothing_is_started(
    toolscript: Toolscript, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(BAD % json.dumps(count_starts(make_scripted_spec(), tmp_path / "starts")))
    result = toolscript(*command, "--config", str(file), code=2)
    assert result.stdout == ""
    assert f'{file}: mcpServers.bad.comand: unknown key, did you mean "command"? (line 5)' in result.stderr
    assert f"{file}: mcpServers.worse.command: must be a string" in result.stderr
    assert starts(tmp_path / "starts") == 0


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("text", "printed"),
    [('{"mcpServers": {', "line 1, column 17"), ("[]", "line 1"), ("\n\n{'a': 1}", "line 3, column 2")],
)
def test_a_file_that_is_not_json_is_reported_with_the_position(
    toolscript: Toolscript, tmp_path: Path, text: str, printed: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    error = refusal(toolscript("list-tools", "--config", str(file), "--json", code=2))
    assert error["code"] == "VALIDATION_ERROR"
    assert error["message"].startswith(f"{file}: ")
    assert f"({printed})" in error["message"]
    assert error["details"]["file"] == str(file)


@pytest.mark.req("G-01", "X-03")
def test_a_missing_configuration_file_is_an_error(toolscript: Toolscript, tmp_path: Path) -> None:
    result = toolscript("list-servers", "--config", str(tmp_path / "nowhere.json"), code=2)
    assert "nowhere.json: no such file" in result.stderr


@pytest.mark.req("S-05", "G-09")
@pytest.mark.usefixtures("good")
def test_search_prints_json_and_a_table(toolscript: Toolscript) -> None:
    printed = read_json(toolscript("search", "good__echo", "--output", "json", "--limit", "1"))
    assert printed == read_json(toolscript("search", "good__echo", "--json", "--limit", "1"))
    assert printed["results"][0] == {
        "toolId": "good__echo",
        "serverName": "good",
        "toolName": "echo",
        "confidence": 1.0,
        "reason": "Exact name",
        "description": "Returns its arguments, as text and structured.",
    }
    table = toolscript("search", "good__echo", "--output", "table", "--limit", "1").stdout.splitlines()
    assert table[1].split() == ["good__echo", "1.00", "Exact", "name"]


@pytest.mark.req("S-06", "S-05")
@pytest.mark.usefixtures("good")
def test_types_without_hits_report_that_nothing_was_found(toolscript: Toolscript) -> None:
    shown = toolscript("search", "xylophone", "--threshold", "1", "--output", "types").stdout
    assert shown.startswith("No tools found matching query\n")
    assert "--threshold" in shown


@pytest.mark.req("S-06", "X-03")
def test_an_unknown_output_is_refused_with_the_allowed_ones(toolscript: Toolscript) -> None:
    result = toolscript("search", "x", "--output", "yaml", code=2)
    assert all(known in result.stderr for known in ("table", "types", "json"))


# --- help and completion ---


@pytest.mark.req("G-09")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(toolscript: Toolscript, shell: str) -> None:
    script = toolscript("completion", shell).stdout
    assert f"_TOOLSCRIPT_COMPLETE={shell}_complete" in script
    assert "toolscript" in script
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.mark.req("G-09", "X-03")
def test_an_unknown_shell_is_refused_with_the_allowed_ones(toolscript: Toolscript) -> None:
    result = toolscript("completion", "powershell", code=2)
    assert all(known in result.stderr for known in ("bash", "zsh", "fish"))


def commands(group: click.Group = run, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(context := click.Context(group)):
        command = group.get_command(context, name)
        assert command
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.req("G-09")
def test_the_required_commands_exist() -> None:
    names = {" ".join(path) for path, _ in commands()}
    assert {"gateway start", "search", "get-types", "list-servers", "list-tools", "call", "mcp", "sync"} <= names


@pytest.mark.req("G-09")
@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_every_command_explains_itself_and_each_of_its_options(toolscript: Toolscript, path: tuple[str, ...]) -> None:
    command = dict(commands())[path]
    shown = toolscript(*path, "--help").stdout
    assert shown == toolscript(*path, "-h").stdout
    assert "Usage: " in shown
    assert len((command.help or "").strip()) > 15
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"{path} {option.opts}"
            assert option.opts[0] in shown


@pytest.mark.req("G-09")
def test_every_command_that_prints_data_can_print_json() -> None:
    silent = {"gateway start", "mcp", "completion", "suggest"}  # the last two are read by shells and hooks of clients
    for path, command in commands():
        if not isinstance(command, click.Group) and " ".join(path) not in silent:
            assert any("--json" in option.opts for option in command.params), path


@pytest.mark.req("G-09")
def test_the_help_lists_the_exit_codes(toolscript: Toolscript) -> None:
    shown = " ".join(toolscript("--help").stdout.split())
    for printed in (
        "0 success",
        "2 invalid input",
        "3 something needed is unavailable",
        "4 not found",
        "5 a tool failed",
    ):
        assert printed in shown
    assert "7 already exists, or already decided" in shown

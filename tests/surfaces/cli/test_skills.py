"""Skills on the command line: with and without a gateway, as text and as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.fixtures.command_line import invoke, read_json
from tests.fixtures.examples import choose
from tests.servers.gateway import run_gateway
from tests.surfaces.cli.data_folders import copy_data
from toolscript.app.app import open_app
from toolscript.domain.catalog import Skill, Suggestion
from toolscript.services.skills.skills import CountedSkill
from toolscript.services.skills.skills_file import load_skills
from toolscript.settings import load_settings
from toolscript.surfaces.cli.commands.skills import to_toml
from toolscript.surfaces.json.skills import build_skills_response

Toolscript = Callable[..., Result]

BEES = ["bee_keeping", "--name", "Bee Keeping", "--description", "Hives.", "--keyword", "hive", "--keyword", "honey"]
BEES += ["--example", "inspect_hive", "--domain", "nature"]
EVENT, READ = "calendar__create_event", "filesystem__read_file"


@pytest.fixture(scope="module")
def prepared(synced_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder to copy: the demo's tools, and three suggestions, two for tools and one for no tool."""
    data = tmp_path_factory.mktemp("prepared") / "data"
    copy_data(synced_demo, data)

    async def fill() -> None:
        async with open_app(load_settings(data_dir=data, search_model="hashed-64", variables={}), demo=True) as app:
            for name, tool in (("Time Travel", EVENT), ("Reading Glasses", READ), ("Choirs", None)):
                await app.stores.skills.add_suggestion(Suggestion(name, f"All of {name}.", tool, keywords=("why",)))

    asyncio.run(fill())
    return data


@pytest.fixture(params=choose(["alone", "with a gateway"], "alone"))
def toolscript(request: pytest.FixtureRequest, alone: Toolscript) -> Toolscript:
    """The command on a prepared data folder, with and without a gateway that uses it."""
    if request.param != "alone":
        request.getfixturevalue("start_gateway")()
    return alone


@pytest.fixture(scope="module", params=["alone", "with a gateway"])
def unchanged(
    request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A data folder for tests that change nothing, with and without a gateway that uses it."""
    folder = tmp_path_factory.mktemp("unchanged")
    copy_data(prepared, folder / "data")
    with nullcontext() if request.param == "alone" else run_gateway(folder, "--data-dir", str(folder / "data")):
        yield folder / "data"


@pytest.fixture
def reading(unchanged: Path, monkeypatch: pytest.MonkeyPatch) -> Toolscript:
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(unchanged))
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(unchanged)
    return invoke


@pytest.fixture
def alone(prepared: Path, small_folder: Path) -> Toolscript:
    copy_data(prepared, small_folder)
    return invoke


def refusal(result: Result) -> Any:
    """The envelope on standard error, with nothing on standard output."""
    assert result.stdout == ""
    return json.loads(result.stderr.splitlines()[-1])["error"]


def numbers(toolscript: Toolscript, status: str = "pending") -> dict[str, int]:
    listed = read_json(toolscript("skills", "suggestions", "--status", status, "--json"))
    assert listed["total"] == len(listed["suggestions"])
    return {s["name"]: s["id"] for s in listed["suggestions"]}


@pytest.mark.req("H-09")
def test_a_change_of_the_demo_says_that_it_will_not_last(toolscript: Toolscript) -> None:
    note = "note: this changed the built-in demo: it will not be there once servers are configured\n"
    for change in (["add", *BEES], ["edit", "bee_keeping", "--inactive"], ["remove", "bee_keeping", "--yes"]):
        assert toolscript("skills", *change).stderr == note
    assert toolscript("skills", "list").stderr == ""


@pytest.mark.req("H-09")
def test_a_skill_is_added_changed_and_removed(toolscript: Toolscript) -> None:
    added = read_json(toolscript("skills", "add", *BEES, "--json"))
    assert added.pop("tool_count") == 0
    assert added == {
        "id": "bee_keeping",
        "name": "Bee Keeping",
        "description": "Hives.",
        "parent_domain": "nature",
        "keywords": ["hive", "honey"],
        "examples": ["inspect_hive"],
        "is_active": True,
    }
    changes = ["--description", "Bees.", "--keyword", "", "--domain", "", "--inactive"]
    changed = read_json(toolscript("skills", "edit", "bee_keeping", *changes, "--json"))
    assert changed == added | {
        "description": "Bees.",
        "keywords": [],
        "parent_domain": None,
        "is_active": False,
        "tool_count": 0,
    }
    assert read_json(toolscript("skills", "show", "bee_keeping", "--json")) == changed | {"tools": []}
    listed = read_json(toolscript("skills", "list", "--json"))
    assert [skill for skill in listed["skills"] if not skill["is_active"]] == [changed]
    assert read_json(toolscript("skills", "remove", "bee_keeping", "--yes", "--json")) == {"removed": "bee_keeping"}
    rest = [skill for skill in listed["skills"] if skill != changed]
    assert read_json(toolscript("skills", "list", "--json")) == {"skills": rest, "total": len(rest)}


@pytest.mark.req("H-09")
def test_a_skill_is_shown_with_its_tools(reading: Toolscript) -> None:
    shown = read_json(reading("skills", "show", "email", "--json"))
    assert shown["tool_count"] == len(shown["tools"]) > 0
    assert all(t["server"] == "email" for t in shown["tools"])
    assert {"id", "confidence", "origin", "is_primary", "description"} <= shown["tools"][0].keys()
    lines = reading("skills", "show", "email").stdout.splitlines()
    assert lines[0].split() == ["Skill", "email"]
    (header,) = (n for n, line in enumerate(lines) if line.startswith("Tool  "))
    assert [line.split()[0] for line in lines[header + 1 :]] == [t["id"] for t in shown["tools"]]
    assert "embedding model" in lines[header + 1]


@pytest.mark.req("H-08")
def test_skills_are_found_by_what_they_are_for(reading: Toolscript) -> None:
    search = ["skills", "search", "read a file", "--limit", "1", "--threshold", "0.1"]
    found = read_json(reading(*search, "--json"))
    assert [hit["id"] for hit in found] == ["file_operations"]
    header, first = reading(*search).stdout.splitlines()
    assert header.split() == ["Skill", "Score", "Tools", "Name"]
    assert first.split() == [
        "file_operations",
        f"{found[0]['score']:.2f}",
        str(found[0]["tool_count"]),
        "File",
        "Operations",
    ]
    nothing = reading("skills", "search", "read a file", "--threshold", "1").stdout
    assert nothing.startswith("No skills found")
    assert "--threshold" in nothing


@pytest.mark.req("H-10")
def test_a_person_assigns_a_tool_to_skills_and_releases_it(toolscript: Toolscript) -> None:
    assigned = read_json(toolscript("skills", "assign", READ, "email", "file_operations", "--json"))
    assert [(s["skill_id"], s["origin"], s["is_primary"]) for s in assigned["skills"]] == [
        ("email", "human", True),
        ("file_operations", "human", False),
    ]
    again = toolscript("skills", "assign", READ, "email", "file_operations").stdout
    assert again == f"{READ} is in email (a person), file_operations (a person, not first)\n"
    assert READ in [t["id"] for t in read_json(toolscript("skills", "show", "email", "--json"))["tools"]]
    released = read_json(toolscript("skills", "release", READ, "--json"))
    assert ("file_operations", "embedding_auto") in [(s["skill_id"], s["origin"]) for s in released["skills"]]
    assert "human" not in {s["origin"] for s in released["skills"]}


@pytest.mark.req("H-11")
def test_suggestions_are_approved_rejected_and_merged_once_each(toolscript: Toolscript) -> None:
    waiting = numbers(toolscript)
    assert list(waiting) == ["Time Travel", "Reading Glasses", "Choirs"]
    travel, glasses, choirs = map(str, waiting.values())

    renamed = ["--id", "time", "--name", "Time", "--description", "Clocks.", "--by", "ada"]
    made = read_json(toolscript("skills", "approve", travel, *renamed, "--json"))
    assert (made["id"], made["name"], made["description"], made["keywords"]) == ("time", "Time", "Clocks.", ["why"])
    assert EVENT in [t["id"] for t in read_json(toolscript("skills", "show", "time", "--json"))["tools"]]

    merged = read_json(toolscript("skills", "merge", glasses, "email", "--by", "bob", "--json"))
    assert (merged["status"], merged["reviewed_by"], merged["source_tool_id"]) == ("merged", "bob", READ)
    assert READ in [t["id"] for t in read_json(toolscript("skills", "show", "email", "--json"))["tools"]]

    assert toolscript("skills", "reject", choirs).stdout == f"Rejected {choirs}, Choirs.\n"
    assert numbers(toolscript) == {}
    assert numbers(toolscript, "rejected") == {"Choirs": int(choirs)}
    assert numbers(toolscript, "all") == waiting
    for decided in (["approve", travel], ["reject", travel], ["merge", choirs, "email"]):
        assert refusal(toolscript("skills", *decided, "--json", code=7))["code"] == "CONFLICT"


@pytest.mark.req("H-12")
def test_skills_are_proposed_and_queued_on_request(toolscript: Toolscript) -> None:
    before = numbers(toolscript)
    proposed = read_json(toolscript("skills", "propose", "--count", "4", "--json"))
    assert proposed["total"] == len(proposed["proposals"]) <= 4
    assert sum(p["tool_count"] for p in proposed["proposals"]) <= 56
    assert numbers(toolscript) == before
    shown = toolscript("skills", "propose", "--count", "4", "--queue").stdout
    assert "toolscript skills suggestions" in shown
    assert {p["name"] for p in proposed["proposals"]} <= numbers(toolscript).keys() - before.keys()
    assert read_json(toolscript("skills", "propose", "--waiting", "--json")) == {"proposals": [], "total": 0}


@pytest.mark.req("H-01")
@pytest.mark.parametrize("strategy", ["hierarchical", "direct", "hybrid"])
def test_a_search_uses_skills_with_a_strategy(reading: Toolscript, strategy: str) -> None:
    command = ["search", "read a file", "--strategy", strategy]
    answer = read_json(reading(*command, "--json"))
    assert answer.keys() - {"closest"} == {"query", "tools", "matched_skills", "metadata"}
    assert answer["metadata"]["strategy_used"] == strategy
    assert answer["tools"][0]["id"] == "filesystem__read_file"
    assert answer["tools"][0]["input_schema"]["type"] == "object"
    header, first, *_ = reading(*command).stdout.splitlines()
    assert header.split() == ["Tool", "Score", "Skills", "Server"]  # these are tools of the demo
    assert first.split()[:3] == ["filesystem__read_file", f"{answer['tools'][0]['score']:.2f}", "file_operations"]


@pytest.mark.req("H-01", "H-02")
def test_limit_and_threshold_have_their_own_defaults_with_a_strategy(
    reading: Toolscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_LIMIT", "1")
    command = ["search", "read a file", "--strategy", "hybrid"]
    assert len(read_json(reading(*command, "--threshold", "0", "--json"))["tools"]) == 5
    assert len(read_json(reading(*command, "--limit", "9", "--threshold", "0", "--json"))["tools"]) == 9
    assert reading(*command, "--threshold", "1").stdout.startswith("No tools found matching query")
    assert "50" in reading(*command, "--limit", "60", code=2).stderr
    assert refusal(reading("search", " ", "--strategy", "direct", "--json", code=2))["details"] == {"field": "query"}


@pytest.mark.req("H-01")
def test_types_are_printed_with_a_strategy_too(reading: Toolscript) -> None:
    shown = reading("search", "read a file", "--strategy", "direct", "--limit", "1", "--output", "types").stdout
    assert "| Tool | Score | Skills |" in shown
    assert "interface FilesystemReadFileParams" in shown
    assert "tools.filesystem.read_file(" in shown


@pytest.mark.req("H-09", "X-03")
@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["show", "emial"], 4, "NOT_FOUND"),
        (["show", "suggestions"], 4, "NOT_FOUND"),
        (["show", "../email"], 4, "NOT_FOUND"),
        (["edit", "emial", "--name", "x"], 4, "NOT_FOUND"),
        (["edit", "email"], 2, "VALIDATION_ERROR"),
        (["remove", "emial", "--yes"], 4, "NOT_FOUND"),
        (["add", "email", "--name", "Mail"], 7, "CONFLICT"),
        (["add", "E-Mail", "--name", "Mail"], 2, "VALIDATION_ERROR"),
        (["assign", "email__no_such", "email"], 4, "NOT_FOUND"),
        (["assign", READ, "emial"], 4, "NOT_FOUND"),
        (["release", ""], 4, "NOT_FOUND"),
        (["approve", "99"], 4, "NOT_FOUND"),
        (["approve", "1", "--id", "email"], 7, "CONFLICT"),
        (["reject", "99"], 4, "NOT_FOUND"),
        (["merge", "1", "emial"], 4, "NOT_FOUND"),
        (["propose", "--count", "0"], 2, "VALIDATION_ERROR"),
        (["search", " "], 2, "VALIDATION_ERROR"),
    ],
)
def test_an_error_is_an_envelope_and_an_exit_code(
    reading: Toolscript, arguments: list[str], code: int, kind: str
) -> None:
    error = refusal(reading("skills", *arguments, "--json", code=code))
    assert error["code"] == kind
    assert error["message"]


@pytest.mark.extended
@pytest.mark.req("H-09")
@pytest.mark.parametrize("unchanged", ["with a gateway"], indirect=True)
def test_with_and_without_a_gateway_the_answers_are_the_same(
    unchanged: Path, reading: Toolscript, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [
        ["skills", "list"],
        ["skills", "show", "file_operations"],
        ["skills", "search", "read a file"],
        ["skills", "suggestions", "--status", "all"],
        ["skills", "propose", "--count", "3"],
        ["skills", "export"],
    ]
    assert (unchanged / "gateway.json").exists()
    answers = [read_json(reading(*command, "--json")) for command in commands]
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(prepared))
    assert [read_json(invoke(*command, "--json")) for command in commands] == answers


@pytest.mark.req("H-09")
def test_removing_needs_a_confirmation(alone: Toolscript) -> None:
    for answer in ("n\n", ""):
        result = alone("skills", "remove", "email", code=2, given=answer)
        assert "Remove the skill email" in result.stderr
        assert "--yes" in result.stderr
        assert result.stdout == ""
    alone("skills", "show", "email")
    assert alone("skills", "remove", "email", given="y\n").stdout == "Removed email.\n"
    alone("skills", "show", "email", code=4)


@pytest.mark.req("H-09")
def test_skills_are_shown_as_a_table_with_inactive_ones_marked(alone: Toolscript) -> None:
    assert alone("skills", "add", *BEES).stdout == "Added bee_keeping: 0 tools.\n"
    alone("skills", "edit", "bee_keeping", "--inactive", "--name", "[red]Bees[/red] \\[b]")
    header, *rows = alone("skills", "list").stdout.splitlines()
    assert header.split() == ["Skill", "Name", "Tools", "Domain"]
    (bees,) = (row for row in rows if row.startswith("bee_keeping"))
    assert "[red]Bees[/red] \\[b]  (inactive)" in bees
    assert bees.split()[-2:] == ["0", "nature"]


@pytest.mark.req("H-11")
def test_suggestions_are_shown_as_a_table(alone: Toolscript) -> None:
    header, first, *_ = alone("skills", "suggestions").stdout.splitlines()
    assert header.split() == ["N", "Name", "Tool", "Status", "Decided", "by", "Description"]
    assert first.split() == ["1", "Time", "Travel", EVENT, "pending", "All", "of", "Time", "Travel."]
    assert alone("skills", "suggestions", "--status", "merged").stdout == "No merged suggestions.\n"
    assert alone("skills", "merge", "3", "email").stdout.startswith("Merged 3, Choirs.")
    assert alone("skills", "approve", "1").stdout == "Added time_travel: 1 tool.\n"


@pytest.mark.extended
@pytest.mark.req("H-09")
def test_exported_skills_can_be_used_by_another_installation(
    alone: Toolscript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone("skills", "add", *BEES)
    alone("skills", "remove", "email", "--yes")
    alone("skills", "edit", "databases", "--inactive")
    files = {"mine.toml": alone("skills", "export"), "mine.json": alone("skills", "export", "--json")}
    used = [skill for skill in read_json(alone("skills", "list", "--json"))["skills"] if skill["is_active"]]
    for name, exported in files.items():
        assert "databases" in exported.stderr
        file = tmp_path / name
        file.write_text(exported.stdout, encoding="utf-8")
        monkeypatch.setenv("TOOLSCRIPT_SKILLS", str(file))
        monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(tmp_path / f"elsewhere of {name}"))
        taken_over = read_json(alone("skills", "list", "--json"))["skills"]
        assert [s | {"tool_count": 0} for s in taken_over] == [s | {"tool_count": 0} for s in used], name


@pytest.mark.req("H-09")
def test_a_skills_file_can_represent_every_text(tmp_path: Path) -> None:
    skills = [
        Skill("plain", "Plain"),
        Skill(
            "odd", 'A "quoted" \\ name [x] # y', "Two\nlines\tand \u2028 more: 'é' 🐝", "d", ("a, b", "'''"), ("x = 1",)
        ),
        Skill("q", '"""', '"""\n[[skill]]\nid = "evil"', keywords=("\\", "\\u0041")),
    ]
    answer = build_skills_response([CountedSkill(skill, 0) for skill in skills])
    file = tmp_path / "skills.toml"
    file.write_text(to_toml(answer["skills"]), encoding="utf-8", newline="")
    assert load_skills(file) == skills
    file.write_text(to_toml([]), encoding="utf-8")
    assert load_skills(file) == []

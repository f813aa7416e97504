"""The packaged tables give the expected domains, and a user's file can change them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolscript.domain.errors import Invalid
from toolscript.retrieval.capabilities import Capabilities, Subjects, load_capabilities
from toolscript.retrieval.text.words import words

TABLES = load_capabilities()


def subjects(name: str, description: str = "", server: str = "s", tables: Capabilities = TABLES) -> Subjects:
    return tables.of_tool(words(name), words(server), words(description))


@pytest.mark.req("S-03")
@pytest.mark.parametrize(
    ("query", "domain"),
    [
        ("commit my changes to git", "git"),
        ("push the branch to the other repo", "git"),
        ("find files containing specific text", "files"),
        ("what does config.yaml say?", "files"),
        ("will I need an umbrella in Porto?", "weather"),
        ("which meetings do I have next week", "calendar"),
        ("how many rows does the orders table have", "databases"),
        ("find the latest news about elections", "information"),
        ("runTheUnit_tests with pytest", "software"),
    ],
)
def test_the_words_of_a_query_give_its_domain(query: str, domain: str) -> None:
    assert domain in TABLES.of_query(query)


@pytest.mark.req("S-03")
@pytest.mark.parametrize("query", ["branch", "quantum banana telescope", "the one containing it", "", "読む"])
def test_one_hint_or_a_similar_word_gives_no_domain(query: str) -> None:
    assert TABLES.of_query(query) == frozenset()


@pytest.mark.req("S-03")
@pytest.mark.parametrize(
    ("name", "description", "kind"),
    [
        ("run_command", "Run something on this machine.", "shell"),
        ("bash", "", "shell"),
        ("execute", "Execute shell commands.", "shell"),
        ("shell_execute", "", "shell"),
    ],
)
def test_a_tools_name_or_description_gives_its_capability(name: str, description: str, kind: str) -> None:
    assert kind in subjects(name, description).kinds


@pytest.mark.req("S-03")
@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("edit_file", "Make line-based edits to a text file. Returns a git-style diff showing the changes made."),
        ("get_config", "Get the complete server configuration as JSON, with the default shell and blocked commands."),
        ("list_directory", "List the contents of a directory, like a command line would."),
        ("openPage", "Load an address."),
        ("query", "Run one SQL statement against the database."),
    ],
)
def test_a_tool_that_runs_no_commands_can_do_no_other_work(name: str, description: str) -> None:
    found = subjects(name, description)
    assert found.kinds == frozenset()
    assert "git" not in found.domains


@pytest.mark.req("S-03")
def test_a_single_word_in_a_description_gives_no_capability() -> None:
    assert subjects("get_price", "Prices at Shell stations and at the terminal.").kinds == frozenset()


@pytest.mark.req("S-03")
def test_a_shell_can_do_the_work_of_git_and_a_git_tool_is_not_inferred() -> None:
    requests = TABLES.of_query("commit my changes to git")
    found = TABLES.infer(requests, subjects("run_command", "Run a command."))
    assert found is not None
    assert (found.domains, found.text) == (frozenset({"git"}), "shell → git")
    assert TABLES.infer(requests, subjects("git_commit", "Run a command that commits.")) is None
    assert TABLES.infer(requests, subjects("send_email")) is None
    assert TABLES.infer(frozenset(), subjects("run_command")) is None


@pytest.mark.req("S-03")
def test_every_shared_domain_is_named() -> None:
    requests = TABLES.of_query("commit the file to git")
    found = TABLES.infer(requests, subjects("bash"))
    assert found is not None
    assert found.text == "shell → file operations, git"
    both = subjects("git_add", "Add files.", server="files")
    assert TABLES.name_domains(requests & both.domains) == "file operations, git"


OWN = {
    "domain": {"brewing": {"marks": ["beer"], "hints": ["hops", "yeast"]}, "git": {"marks": ["jujutsu"]}},
    "capability": {"kettle": {"tools": ["boil"], "serves": ["brewing"]}},
}


@pytest.mark.req("S-03")
@pytest.mark.parametrize("form", ["json", "toml"])
def test_a_users_file_adds_domains_words_and_capabilities(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"own.{form}"
    toml = "\n".join(
        f"[{kind}.{key}]\n" + "\n".join(f"{field} = {json.dumps(value)}" for field, value in response.items())
        for kind, table in OWN.items()
        for key, response in table.items()
    )
    file.write_text(json.dumps(OWN) if form == "json" else toml, encoding="utf-8")
    own = load_capabilities(file)
    assert own.of_query("more hops and yeast") == own.of_query("beer") == {"brewing"}
    assert own.of_query("a jujutsu commit") == own.of_query("jujutsu") == {"git"}
    found = own.infer(own.of_query("beer"), subjects("boil_water", tables=own))
    assert found is not None
    assert found.text == "kettle → brewing"
    assert TABLES.of_query("beer") == frozenset()


@pytest.mark.req("S-03")
def test_a_users_file_can_replace_one_table_or_all(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"domain": {"git": {"replace": True, "marks": ["jujutsu"]}}}), encoding="utf-8")
    one = load_capabilities(file)
    assert [one.of_query("git commit"), one.of_query("jujutsu")] == [frozenset(), frozenset({"git"})]
    assert one.of_query("weather")
    file.write_text(json.dumps({"replace": True, **OWN, "capability": {}}), encoding="utf-8")
    every = load_capabilities(file)
    assert [every.of_query("weather"), every.of_query("beer")] == [frozenset(), frozenset({"brewing"})]


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("text", "response"),
    [
        ("{", "cannot be read"),
        ("[]", "has no tables"),
        ('{"domains": {}}', 'domains is an unknown key: use domain, capability, replace; did you mean "domain"?'),
        (
            '{"domain": {"git": {"mark": []}}}',
            "domain.git.mark is an unknown key: use name, marks, hints, replace; did",
        ),
        ('{"domain": []}', "domain is not a table"),
        ('{"domain": {"git": 5}}', "domain.git is not a table"),
        ('{"domain": {"git": {"words": []}}}', "domain.git.words is an unknown key: use name, marks, hints"),
        ('{"domain": {"git": {"marks": "git"}}}', "domain.git.marks is not a list"),
        ('{"domain": {"git": {"marks": ["?"]}}}', "domain.git.marks contains something other than words"),
        ('{"domain": {"git": {"name": 5}}}', "domain.git.name is not text"),
        ('{"capability": {"oven": {"tools": ["bake"], "serves": ["bread"]}}}', "capability.oven.serves names a domain"),
        ('{"replace": true, "capability": {"oven": {"serves": ["git"]}}}', "capability.oven.serves names a domain"),
    ],
)
def test_a_malformed_file_is_refused_naming_file_and_key(tmp_path: Path, text: str, response: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid) as refused:
        load_capabilities(file)
    assert str(file) in refused.value.message
    assert response in refused.value.message


@pytest.mark.req("X-03")
def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere\.toml cannot be read"):
        load_capabilities(tmp_path / "nowhere.toml")


@pytest.mark.req("S-03")
def test_the_domains_that_a_shell_serves_are_not_its_own() -> None:
    shell = subjects("run_command", "Run a shell command, for example git commit, docker ps or npm install.")
    assert shell.domains == frozenset()
    assert TABLES.infer(TABLES.of_query("commit my changes to git"), shell) is not None
    assert "git" in subjects("commit", "Run a shell command.", server="git").domains

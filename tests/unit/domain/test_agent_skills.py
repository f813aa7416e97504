"""Paths, addresses and digests of agent skills."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscript.domain.agent_skills import (
    MAIN_FILE,
    MAX_FILES,
    AgentSkillFile,
    build_agent_skill,
    check_frontmatter,
    compute_digest,
    find_file,
    find_path,
    get_item_id,
    is_inside,
    list_files,
    locate,
    name_passage,
    require_digest,
)
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, UpstreamFailed

pytestmark = pytest.mark.req("A-02")

URI = "skill://ops/release-notes/SKILL.md"
segments = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=20)
paths = st.lists(segments | st.sampled_from(["..", ".", ""]), min_size=1, max_size=5).map("/".join)


def build(*names: str, size: int | None = None) -> Item:
    files = {name: AgentSkillFile(locate(URI, name), compute_digest(name.encode()), size) for name in names}
    return build_agent_skill("ops", URI, {"name": "release-notes", "description": "Writes\n notes."}, files, "text")


@given(paths)
def test_a_path_that_counts_as_inside_leads_nowhere_else(path: str) -> None:
    if is_inside(path):
        assert posixpath.normpath(posixpath.join("/skills/one", path)) == f"/skills/one/{path}"


@given(st.lists(segments.filter(is_inside), min_size=1, max_size=4).map("/".join))
def test_a_file_is_found_at_the_address_that_it_was_given(path: str) -> None:
    item = build(MAIN_FILE, path)
    address = locate(URI, path)
    assert find_path(item, address) == path
    assert list_files(item)[path].uri == address


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "c:\\x", "a\\..\\b", "a\0b", "x" * 501]
)
def test_a_path_out_of_the_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidArguments, match="path: must be a file of"):
        find_file(build(MAIN_FILE), {"path": path})
    with pytest.raises(Invalid, match="not inside of its folder"):
        build(MAIN_FILE, path)


def test_a_file_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(NotFound, match=r"has no file 'b\.md'.*SKILL\.md, a\.md"):
        find_file(build(MAIN_FILE, "a.md"), {"path": "b.md"})


def test_content_with_another_digest_is_refused() -> None:
    item = build(MAIN_FILE)
    path, file = find_file(item, {})
    require_digest(item, path, file, b"SKILL.md")
    with pytest.raises(UpstreamFailed, match="is not the file that was listed"):
        require_digest(item, path, file, b"other")


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ({"description": "x"}, "name 'None' is not allowed"),
        ({"name": "Release Notes", "description": "x"}, "is not allowed: use 1 to 64"),
        ({"name": "a--b", "description": "x"}, "is not allowed"),
        ({"name": "a" * 65, "description": "x"}, "is not allowed"),
        ({"name": "a"}, "description is missing"),
        ({"name": "a", "description": "  "}, "description is missing"),
        ({"name": "a", "description": "x" * 1025}, "description has 1025 characters: at most 1024"),
    ],
)
def test_names_and_descriptions_have_the_limits_of_the_specification(about: dict[str, object], problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        check_frontmatter(about)


def test_too_many_and_too_large_files_are_refused() -> None:
    with pytest.raises(Invalid, match="more than 512 files"):
        build(MAIN_FILE, *(f"{number}.md" for number in range(MAX_FILES)))
    with pytest.raises(Invalid, match=r"its SKILL\.md has more than 256 KiB"):
        build(MAIN_FILE, size=300_000)
    with pytest.raises(Invalid, match=r"has no SKILL\.md"):
        build("a.md")


def test_the_digest_of_an_item_changes_with_each_of_its_files() -> None:
    assert len({build(MAIN_FILE).digest, build(MAIN_FILE, "a.md").digest, build(MAIN_FILE, "b.md").digest}) == 3


@given(st.integers(0, 10_000))
def test_a_passage_belongs_to_its_agent_skill_and_to_no_tool(number: int) -> None:
    item = Item("ops", "release-notes", type=ItemType.AGENT_SKILL)
    assert get_item_id(name_passage(item.id, number)) == item.id
    for tool in ("ops__tool", "ops__a__agent_skill:b", "ops__prompt:a__agent_skill:b"):
        assert get_item_id(name_passage(tool, number)) != tool

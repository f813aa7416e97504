"""Agent skills of folders: what is listed, what is left out and why, and what can be read."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from tests.fixtures.agent_skills import RELEASE_NOTES, TAXES, write_agent_skill
from toolscript.adapters.agent_skills.folders import AgentSkillFolders
from toolscript.adapters.agent_skills.main_file import parse_main_file
from toolscript.domain.agent_skills import list_files
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import Invalid, NotFound, UpstreamFailed

pytestmark = pytest.mark.req("A-02", "X-11", "X-12")


def hostile(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: Something.\n{more}---\nText.\n"


async def list_problems(folder: Path) -> list[str]:
    """Why agent skills are left out beside one that is listed."""
    write_agent_skill(folder, "taxes", TAXES)
    listing = await AgentSkillFolders([str(folder)]).list_items()
    assert [item.name for item in listing.items] == ["taxes"]
    return list(listing.problems)


async def test_each_subfolder_with_a_main_file_is_an_agent_skill(tmp_path: Path) -> None:
    write_agent_skill(
        tmp_path, files={"references/style.md": b"Short.", ".git/config": b"", "logo.png": b"\x89PNG\xff"}
    )
    (tmp_path / "other").mkdir()
    server = AgentSkillFolders([str(tmp_path)])
    (item,) = (await server.list_items()).items
    assert (item.id, item.type) == ("agent-skills__agent_skill:release-notes", ItemType.AGENT_SKILL)
    assert item.description == "Write release notes from merged pull requests."
    assert sorted(list_files(item)) == ["SKILL.md", "logo.png", "references/style.md"]
    text = (await server.call(item, {}, within=1)).structured["contents"][0]
    assert text == {"uri": "skill://release-notes/SKILL.md", "mimeType": "text/markdown", "text": RELEASE_NOTES}
    logo = (await server.call(item, {"path": "logo.png"}, within=1)).structured["contents"][0]
    assert base64.b64decode(logo["blob"]) == b"\x89PNG\xff"


async def test_links_are_never_followed(tmp_path: Path) -> None:
    folder, secrets = tmp_path / "skills", tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("secret")
    own = write_agent_skill(folder)
    (own / "key").symlink_to(secrets / "key")
    (own / "all").symlink_to(secrets)
    write_agent_skill(tmp_path / "elsewhere", "linked", hostile("linked"))
    (folder / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    main = folder / "main"
    main.mkdir()
    (main / "SKILL.md").symlink_to(secrets / "key")
    server = AgentSkillFolders([str(folder)])
    listing = await server.list_items()
    (item,) = listing.items
    assert list(list_files(item)) == ["SKILL.md"]
    with pytest.raises(NotFound):
        await server.call(item, {"path": "key"}, within=1)
    text = "\n".join(listing.problems)
    assert "key is left out of its agent skill: it is a link" in text
    assert "main is left out: its SKILL.md is not a regular file" in text
    assert f"linked is left out: it is a link to {tmp_path / 'elsewhere' / 'linked'}. Add" in text


async def test_a_link_within_the_configured_folders_is_no_second_agent_skill(tmp_path: Path) -> None:
    write_agent_skill(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "release-notes").symlink_to(tmp_path / "a" / "release-notes")
    listing = await AgentSkillFolders([str(tmp_path / "a"), str(tmp_path / "b")]).list_items()
    assert (len(listing.items), listing.problems) == (1, [])


async def test_a_file_that_is_swapped_for_another_after_listing_is_not_read(tmp_path: Path) -> None:
    own = write_agent_skill(tmp_path, files={"a.md": b"a"})
    server = AgentSkillFolders([str(tmp_path)])
    (item,) = (await server.list_items()).items
    (tmp_path / "secret").write_text("secret")
    (own / "a.md").unlink()
    (own / "a.md").symlink_to(tmp_path / "secret")
    with pytest.raises(UpstreamFailed, match="cannot be read"):
        await server.call(item, {"path": "a.md"}, within=1)
    (own / "SKILL.md").write_text("other")
    with pytest.raises(UpstreamFailed, match="is not the file that was listed"):
        await server.call(item, {}, within=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"No frontmatter.", "does not begin with frontmatter"),
        (b"---\nname: [\n---\n", r"frontmatter is not valid YAML: .* \(line \d+\)"),
        (b"---\n- a\n---\n", "must be names with texts"),
        (b"---\nname: &a x\ndescription: *a\n---\n", "has aliases"),
        (b"---\nname: x\ndescription: " + b"[" * 5000 + b"\n---\n", "not valid YAML"),
        (b"---\nname: x\ndescription: .inf\n---\n", "must be names with texts"),
        (b"---\nname: x\n? [1]\n: y\n---\n", "frontmatter"),
        (b"---\nname: x\nmore: 0x" + b"f" * 6000 + b"\n---\n", "must be names with texts"),
        (b'---\nname: x\nmore: "a \\0 b"\n---\n', "must be names with texts"),
        (b'---\nname: x\n"a \\0 b": more\n---\n', "must be names with texts"),
        (b'---\nname: x\ndescription: "a \\ud800 b"\n---\n', "frontmatter"),
        (b"---\nname: x\nmore: !!bool maybe\n---\n", "not valid YAML"),
        (b'---\nname: x\nmore: !!int ""\n---\n', "not valid YAML"),
        (b"---\nname: x\nmore: !!timestamp zz\n---\n", "not valid YAML"),
        (b"---\nname: x\nmore: " + b"9:" * 400 + b"9.5\n---\n", "not valid YAML"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"---\nname: x\n---\n\x00", "is a binary file"),
        (b"---\nname: x\nmore: " + b"y" * 70_000 + b"\n---\n", "more than 64 KiB"),
        (hostile("../../etc").encode(), "is not allowed: use 1 to 64 lowercase"),
        (hostile("x", "metadata: {a: 2024-01-01}\n").encode().replace(b"Something.", b"y" * 2000), "2000 characters"),
    ],
)
async def test_a_broken_main_file_costs_its_own_agent_skill_only(tmp_path: Path, text: bytes, problem: str) -> None:
    write_agent_skill(tmp_path, "broken", files={"SKILL.md": text})
    (found,) = await list_problems(tmp_path)
    assert found.startswith(f"agent skill {tmp_path / 'broken'} is left out: ")
    assert re.search(problem, found)


async def test_links_in_a_circle_and_odd_names_cost_no_other_agent_skill(tmp_path: Path) -> None:
    for link in ("circle", "more"):
        (tmp_path / link).symlink_to(tmp_path / link)
    own = write_agent_skill(tmp_path, files={"a\\b.md": b"", "a\nb.md": b""})
    with contextlib.suppress(OSError):  # file systems of macOS refuse it
        (own / os.fsdecode(b"\xff.md")).write_bytes(b"")
    listing = await AgentSkillFolders([str(tmp_path), str(tmp_path / "more")]).list_items()
    (item,) = listing.items
    assert list(list_files(item)) == ["SKILL.md"]
    assert (
        "\n".join(listing.problems).count("is left out of its agent skill: its path is too long, or has characters")
        >= 2
    )


async def test_huge_agent_skills_are_left_out_without_being_read(tmp_path: Path) -> None:
    large = write_agent_skill(tmp_path, "large", hostile("large"))
    with (large / "SKILL.md").open("r+b") as opened:
        opened.truncate(100 * 2**20)
    many = write_agent_skill(tmp_path, "many", hostile("many"))
    for number in range(1_100):
        (many / f"{number}.md").touch()
    deep = write_agent_skill(tmp_path, "deep", hostile("deep"))
    deep.joinpath(*["d"] * 20).mkdir(parents=True)
    pipe = write_agent_skill(tmp_path, "pipe", hostile("pipe"))
    (pipe / "SKILL.md").unlink()
    os.mkfifo(pipe / "SKILL.md")
    text = "\n".join(await list_problems(tmp_path))
    assert "large is left out: its files have more than 16 MiB" in text
    assert "many is left out: has more than 512 files" in text
    assert "deep is left out: its folders are nested deeper than 16 levels" in text
    assert "pipe is left out: its SKILL.md is not a regular file" in text


async def test_of_two_agent_skills_with_one_name_the_first_is_listed_and_the_other_named(tmp_path: Path) -> None:
    first, second = write_agent_skill(tmp_path / "a"), write_agent_skill(tmp_path / "b")
    folders = [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")]
    listing = await AgentSkillFolders(folders).list_items()
    assert len(listing.items) == 1
    assert listing.problems == [
        f"{tmp_path / 'none'}: no such folder",
        f"agent skill {second} is left out: {first} has its name, 'release-notes'",
    ]


@pytest.mark.parametrize("change", ["text", "file", "new", "gone", "old time"])
async def test_a_change_of_a_folder_is_noticed(tmp_path: Path, change: str) -> None:
    own = write_agent_skill(tmp_path, files={"a.md": b"a"})
    os.utime(own / "a.md", (1, 1))
    server = AgentSkillFolders([str(tmp_path)], poll_seconds=0.001)
    await server.list_items()
    waiting = asyncio.create_task(server.wait_for_change())
    match change:
        case "text":
            (own / "SKILL.md").write_text(RELEASE_NOTES + "More.")
        case "file":
            (own / "a.md").write_bytes(b"bb")
        case "old time":
            (own / "a.md").write_bytes(b"b")
            os.utime(own / "a.md", (1, 1))
        case "new":
            write_agent_skill(tmp_path, "taxes", TAXES)
        case _:
            (own / "SKILL.md").unlink()
    await asyncio.wait_for(waiting, 20)
    for item in (await server.list_items()).items:
        for path in list_files(item):
            await server.call(item, {"path": path}, within=20)


def test_a_frontmatter_is_parsed_by_the_fast_parser() -> None:
    text = f"name: x\nmore: [{'[],' * 1_000}]\n"
    content = f"---\n{text}---\n".encode()
    slow, fast = 0.0, 0.0
    for _ in range(3):
        began = time.process_time()
        yaml.load(text, Loader=yaml.SafeLoader)
        slow, began = slow + time.process_time() - began, time.process_time()
        parse_main_file(content)
        fast += time.process_time() - began
    assert fast < slow / 2  # measured: a fifth


def test_values_of_the_frontmatter_are_kept_as_json_has_them() -> None:
    text = b"---\r\nname: x\r\nversion: 1.2\r\nupdated: 2024-01-02\r\nlist: [a, yes]\r\n---\r\nText"
    assert parse_main_file(text) == (
        {"name": "x", "version": 1.2, "updated": "2024-01-02", "list": ["a", True]},
        "Text",
    )
    with pytest.raises(Invalid):
        parse_main_file(b"")

"""Skills across restarts of the application: seeded once, changed by people, indexed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.examples import choose
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Origin, Skill
from toolscript.domain.errors import Invalid
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.skill_points import NO_SKILL, SKILLS
from toolscript.services.skills.skills_file import load_skills
from toolscript.settings import Settings

pytestmark = [pytest.mark.req("H-09"), pytest.mark.slow]

POTTERY = '[[skill]]\nid = "pottery"\nname = "Pottery"\ndescription = "Clay and kilns"\n'


async def ids(app: App) -> set[str]:
    return {counted.skill.id for counted in await app.catalogue.skills.all()}


async def read_indexed_skills(app: App) -> set[str]:
    """The skills in the index, without the topics of tools that have none."""
    return {c.payload["skill_id"] for c in await app.index.scroll(SKILLS)} - {NO_SKILL.id}


async def read_points(app: App) -> dict[str, tuple[str, int, int]]:
    """The fingerprint, the number of tools and the vector length of every point."""
    points = await app.index.scroll(SKILLS)
    vectors = await app.index.vectors(SKILLS, [p.id for p in points])
    return {p.id: (p.payload["fingerprint"], p.payload["tool_count"], len(vectors[p.id])) for p in points}


@pytest.fixture(params=choose(["sqlite", "postgres"], "sqlite"))
def anywhere(request: pytest.FixtureRequest, small: Settings) -> Settings:
    """SQLite, then PostgreSQL."""
    return replace(small, store=request.getfixturevalue("postgres")) if request.param == "postgres" else small


async def test_the_packaged_skills_can_be_searched_from_the_first_start(small: Settings) -> None:
    async with open_app(small) as app:
        assert await ids(app) == {s.id for s in load_skills()}
        await app.catalogue.sync.configure([])
        assert await read_indexed_skills(app) == await ids(app)


async def test_changes_of_seeded_skills_survive_a_restart(anywhere: Settings) -> None:
    async with open_app(anywhere) as app:
        await app.catalogue.sync.run(load_demo_items())
        await app.catalogue.skills.remove("email")
        await app.catalogue.skills.replace("databases", Skill("databases", "My databases", "Mine"))
        await app.catalogue.skills.create(Skill("own", "Own"))
        before = await ids(app)
    for _ in range(2):
        async with open_app(anywhere) as app:
            await app.catalogue.sync.configure({item.server for item in load_demo_items()})
            assert "email" not in await ids(app)
            assert await ids(app) == before == await read_indexed_skills(app)
            assert (await app.catalogue.skills.get("databases")).skill.name == "My databases"


async def test_a_file_is_applied_at_the_next_start_and_when_it_changes(anywhere: Settings, tmp_path: Path) -> None:
    file = tmp_path / "skills.toml"
    settings = replace(anywhere, skills=file)
    async with open_app(anywhere) as app:
        await app.catalogue.skills.create(Skill("own", "Own"))
    file.write_text(POTTERY)
    async with open_app(settings) as app:
        assert await ids(app) == {*(s.id for s in load_skills()), "own", "pottery"}
        await app.catalogue.skills.remove("email")
        await app.catalogue.skills.replace("databases", Skill("databases", "As I like them"))
    file.write_text(f"replace = true\n{POTTERY.replace('Clay', 'More clay')}")
    async with open_app(settings) as app:
        assert await ids(app) == {"databases", "own", "pottery"}
        assert (await app.catalogue.skills.get("pottery")).skill.description == "More clay and kilns"
        await app.catalogue.sync.configure([])
        assert await read_indexed_skills(app) == {"databases", "own", "pottery"}
    async with open_app(anywhere) as app:
        assert await ids(app) == {*(s.id for s in load_skills()), "own"} - {"email"}
        assert (await app.catalogue.skills.get("databases")).skill.name == "As I like them"


async def test_items_of_removed_skills_are_classified_again_at_the_next_sync(small: Settings, tmp_path: Path) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(load_demo_items())
        assert (await app.catalogue.skills.get("source_control")).tool_count > 0
    file = tmp_path / "skills.toml"
    git = '[[skill]]\nid = "git"\nname = "Git"\ndescription = "Git commit, branch"\nkeywords = ["git", "commit"]\n'
    file.write_text(f"replace = true\n{git}")
    async with open_app(replace(small, skills=file)) as app:
        await app.catalogue.sync.run(load_demo_items())
        assert await read_indexed_skills(app) == {"git"}
        assert (await app.catalogue.skills.get("git")).tool_count > 0
        assert {a.origin for s in await app.catalogue.skills.tools("git") for a in s.assignments} == {Origin.EMBEDDING}
        assert len(await app.catalogue.skills.suggestions()) > 0


@pytest.mark.req("X-03")
async def test_an_invalid_file_stops_the_start_with_its_name(small: Settings, tmp_path: Path) -> None:
    file = tmp_path / "skills.toml"
    file.write_text('[[skill]]\nid = "Bad Id"\nname = "Bad"\n')
    with pytest.raises(Invalid, match=r"skills\.toml: skill Bad Id"):
        async with open_app(replace(small, skills=file)):
            pass
    async with open_app(small) as app:
        assert await ids(app) == {s.id for s in load_skills()}


@pytest.mark.req("H-13", "S-07")
async def test_another_model_rebuilds_the_index_of_skills(small: Settings) -> None:
    servers = {item.server for item in load_demo_items()}
    async with open_app(small) as app:
        await app.catalogue.sync.run(load_demo_items())
        before = await read_points(app)
    async with open_app(replace(small, search_model="hashed-32")) as app:
        await app.catalogue.sync.configure(servers)
        after = await read_points(app)
    assert {dimensions for _, _, dimensions in before.values()} == {64}
    assert {dimensions for _, _, dimensions in after.values()} == {32}
    assert {i.partition("#")[0] for i in after} == {s.id for s in load_skills()}
    assert {f for f, _, _ in before.values()}.isdisjoint(f for f, _, _ in after.values())


@pytest.mark.req("H-13", "H-15")
async def test_a_rebuilt_index_has_its_skills_again(anywhere: Settings) -> None:
    async with open_app(anywhere) as app:
        await app.catalogue.sync.run(load_demo_items())
        await app.catalogue.skills.assign("git__git_commit", ["memory_and_notes"])
        before = await read_points(app)
        assert sum(count for i, (_, count, _) in before.items() if "#" not in i) >= 30
    async with open_app(anywhere, fresh_index=True) as app:
        assert await app.index.count(SKILLS) == 0
        await app.catalogue.sync.index_catalogue()
        assert await read_points(app) == before
        (stored,) = await app.stores.items.get_items(["git__git_commit"])
        assert [(a.skill_id, a.origin) for a in stored.assignments] == [("memory_and_notes", Origin.HUMAN)]


@pytest.mark.req("H-14")
async def test_a_restart_does_not_write_existing_skills_again(small: Settings) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(load_demo_items())
        before = await read_points(app)
    async with open_app(small) as app:
        await app.catalogue.sync.configure({item.server for item in load_demo_items()})
        report = await app.catalogue.sync.run(load_demo_items())
        assert (report.indexed, report.classified, report.embedded) == (0, 0, 0)
        assert await read_points(app) == before

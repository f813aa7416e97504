"""Changes of a setup on disk: backups, permissions, interruptions and the way back."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from toolscript.configuration.data_files import replace_file
from toolscript.configuration.setup_plan import FileChange
from toolscript.domain.errors import Conflict, NotFound, Unavailable
from toolscript.surfaces.cli.setup.changes import FILE, RestoredFile, apply_changes, undo_changes

pytestmark = pytest.mark.req("G-21")

LISTS = (("mcpServers",),)
BEFORE = '{\n  "mcpServers": {\n    "a": {"command": "x"} // mine\n  },\n  "starts": 1\n}\n'
AFTER = '{\n  "mcpServers": {\n    "toolscript": {}\n  },\n  "starts": 1\n}\n'
TARGET = '{"mcpServers": {"a": {"command": "x"}}}'


class Setup:
    """A client's file, Toolscript's configuration and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.data, self.client, self.target = folder / "data", folder / "client.json", folder / "target.json"
        self.client.write_text(BEFORE)

    def apply(self, before: str = BEFORE) -> None:
        old = self.target.read_text() if self.target.exists() else None
        changes = [
            FileChange(self.target, old, TARGET, LISTS, is_target=True),
            FileChange(self.client, before, AFTER, LISTS),
        ]
        apply_changes(self.data, changes)

    def undo(self, *, force: bool = False) -> dict[str, RestoredFile]:
        return {Path(each.file).name: each for each in undo_changes(self.data, force=force)[0]}

    def backups(self) -> list[Path]:
        return sorted(self.client.parent.glob("*.backup-*"))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_undo_restores_every_byte_and_leaves_nothing_behind(setup: Setup) -> None:
    content = b"\xef\xbb\xbf" + BEFORE.replace("\n", "\r\n").encode()
    setup.client.write_bytes(content)
    setup.apply(BEFORE.replace("\n", "\r\n"))
    assert setup.client.read_bytes() == b"\xef\xbb\xbf" + AFTER.encode()
    (backup,) = setup.backups()
    assert backup.read_bytes() == content
    undone = setup.undo()
    assert {name: each.action for name, each in undone.items()} == {"client.json": "restored", "target.json": "removed"}
    assert setup.client.read_bytes() == content
    assert sorted(path.name for path in setup.client.parent.iterdir()) == ["client.json", "data"]
    assert list(setup.data.iterdir()) == []


def test_files_keep_their_permissions_and_others_can_read_no_more_than_before(setup: Setup) -> None:
    setup.client.chmod(0o640)
    setup.target.write_text("{}")
    setup.target.chmod(0o644)
    setup.apply()
    assert [mode_of(f) for f in (setup.client, setup.target, *setup.backups())] == [0o640, 0o640, 0o640, 0o644]
    setup.undo()
    assert (mode_of(setup.client), mode_of(setup.target)) == (0o640, 0o644)


def test_a_new_configuration_is_for_its_owner_alone(setup: Setup) -> None:
    setup.client.chmod(0o644)
    setup.apply()
    assert (mode_of(setup.target), mode_of(setup.data / FILE)) == (0o600, 0o600)


def test_a_link_stays_a_link(setup: Setup) -> None:
    real = setup.client.rename(setup.client.with_name("dotfiles.json"))
    setup.client.symlink_to(real)
    setup.apply()
    assert setup.client.is_symlink()
    assert real.read_text() == AFTER
    setup.undo()
    assert setup.client.is_symlink()
    assert real.read_text() == BEFORE


def test_the_record_has_no_secret(setup: Setup) -> None:
    secret = BEFORE.replace('"x"', '"x", "env": {"TOKEN": "s3cret"}')
    setup.client.write_text(secret)
    setup.apply(secret)
    assert "s3cret" not in (setup.data / FILE).read_text()


def test_a_file_that_changed_since_the_plan_is_not_overwritten(setup: Setup) -> None:
    setup.client.write_text("{}")
    with pytest.raises(Conflict, match="changed in the meantime"):
        setup.apply()
    assert setup.client.read_text() == "{}"
    assert not setup.target.exists()
    assert setup.backups() == []


def test_a_failed_write_leaves_everything_as_it_was(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_client(file: Path, content: str | bytes, *, mode: int = 0o600) -> None:
        if file == setup.client and content == AFTER.encode():
            raise OSError(28, "No space left on device", str(file))
        replace_file(file, content, mode=mode)

    monkeypatch.setattr("toolscript.surfaces.cli.setup.changes.replace_file", fail_for_client)
    with pytest.raises(Unavailable, match="Nothing was changed"):
        setup.apply()
    assert setup.client.read_text() == BEFORE
    assert not setup.target.exists()
    assert setup.backups() == []
    with pytest.raises(NotFound):
        setup.undo()


def test_a_setup_that_was_killed_halfway_can_be_undone(setup: Setup) -> None:
    setup.apply()
    setup.client.write_text(BEFORE)  # as if it had ended before this file
    assert {name: each.action for name, each in setup.undo().items()} == {
        "client.json": "unchanged",
        "target.json": "removed",
    }
    assert setup.backups() == []


def test_other_changes_of_a_file_survive_the_undo(setup: Setup) -> None:
    setup.apply()
    changed = json.dumps(json.loads(setup.client.read_text()) | {"starts": 2, "theme": "dark"}, indent=4)
    setup.client.write_text(changed)
    assert setup.undo()["client.json"].action == "merged"
    text = setup.client.read_text()
    assert "// mine" in text
    assert json.loads(text.replace("// mine", "")) == {
        "mcpServers": {"a": {"command": "x"}},
        "starts": 2,
        "theme": "dark",
    }


def test_a_list_that_the_setup_has_added_goes_again(setup: Setup) -> None:
    before = '{\n  "starts": 1\n}\n'
    setup.client.write_text(before)
    setup.apply(before)
    setup.client.write_text(AFTER.replace("1", "2"))
    setup.undo()
    assert json.loads(setup.client.read_text()) == {"starts": 2}


def test_undo_refuses_to_overwrite_servers_that_changed_since_and_names_the_way_out(setup: Setup) -> None:
    setup.apply()
    newer = AFTER.replace('"toolscript": {}', '"toolscript": {}, "new": {}')
    setup.client.write_text(newer)
    (backup,) = setup.backups()
    with pytest.raises(Conflict, match="--force") as caught:
        setup.undo()
    assert str(backup) in caught.value.message
    assert (setup.client.read_text(), setup.target.read_text()) == (newer, TARGET)
    restored = setup.undo(force=True)["client.json"]
    assert setup.client.read_text() == BEFORE
    assert restored.saved is not None
    assert Path(restored.saved).read_text() == newer


def test_a_new_configuration_with_further_servers_is_not_removed(setup: Setup) -> None:
    setup.apply()
    setup.target.write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}')
    with pytest.raises(Conflict):
        setup.undo()
    saved = setup.undo(force=True)["target.json"].saved
    assert saved is not None
    assert '"b"' in Path(saved).read_text()


def test_setups_are_undone_one_by_one(setup: Setup) -> None:
    setup.apply()
    other = setup.client.with_name("other.json")
    other.write_text(BEFORE)
    apply_changes(setup.data, [FileChange(other, BEFORE, AFTER, LISTS)])
    assert undo_changes(setup.data)[1] == 1
    assert (other.read_text(), setup.client.read_text()) == (BEFORE, AFTER)
    assert undo_changes(setup.data)[1] == 0
    assert setup.client.read_text() == BEFORE


def test_a_record_that_cannot_be_read_is_named(setup: Setup) -> None:
    setup.apply()
    (setup.data / FILE).write_text('{"runs": [[{"nonsense": 1}]]}')
    with pytest.raises(Unavailable, match=r"setup\.json"):
        setup.undo()

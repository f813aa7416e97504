"""How the files of plans, skills and capabilities are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolscript.configuration.tables import check_keys, read_tables
from toolscript.domain.errors import Invalid

pytestmark = pytest.mark.req("X-03")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "[plans.gold]\nmax_top_k = 5"), ("a.JSON", '{"plans": {"gold": {"max_top_k": 5}}}')],
)
def test_toml_and_json_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_tables(tmp_path / name, "[plans.NAME]") == {"plans": {"gold": {"max_top_k": 5}}}


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "a = 1\na = 2"), ("a.json", '{"a": 1, "a": 2}'), ("a.json", "[" * 100_000)]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(Invalid, match="cannot be read: ") as caught:
        read_tables(tmp_path / name, "[plans.NAME]")
    assert caught.value.details == {"file": str(tmp_path / name)}
    assert caught.value.message.startswith(str(tmp_path / name))


def test_an_unknown_key_is_named_with_those_that_are_allowed() -> None:
    with pytest.raises(Invalid) as caught:
        check_keys("plans.toml", ["fields", "field"], ["fields", "max_top_k"], "plan gold, ")
    assert caught.value.message == (
        'plans.toml: plan gold, field is an unknown key: use fields, max_top_k; did you mean "fields"?'
    )

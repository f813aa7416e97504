"""The form of a tool takes every schema that a server may send."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.servers.real import NODE

pytestmark = [
    pytest.mark.req("X-12"),
    pytest.mark.slow,
    pytest.mark.skipif(not NODE.exists(), reason="no node: `make test` installs it"),
]

NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty", "text"]
# Draws the form, and prints the arguments of an empty one and of one where each field has its name as value.
PROGRAM = """
import { SchemaForm, collectArguments, startValues } from "./static/parts/schema_form.js";

const schema = JSON.parse(process.argv[2]);
const drawField = (field) => field.type?.call?.(null, field.props);
const draw = (values) => [SchemaForm({ schema, values, onChange: () => {} })].flat().forEach(drawField);
let values = startValues(schema);
draw(values);
const empty = collectArguments(schema, values);
for (const name of JSON.parse(process.argv[3])) values = { ...values, [name]: name };
draw(values);
console.log(JSON.stringify([empty, collectArguments(schema, values)]));
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scripts of the console as modules, beside the program."""
    shutil.copytree(Path(str(files("toolscript.surfaces.console"))) / "static", tmp_path / "static")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "program.js").write_text(PROGRAM)
    return tmp_path


def fill_in(folder: Path, schema: Any, names: list[str]) -> Any:
    command = [str(NODE), str(folder / "program.js"), json.dumps(schema), json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fields_may_have_the_names_of_what_every_object_has(folder: Path) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in NAMES}, "required": ["text"]}
    assert fill_in(folder, schema, NAMES) == [{"text": ""}, {name: name for name in NAMES}]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "constructor"}}},
        {"properties": {"a": {"anyOf": {"type": "string"}}}},
        {"properties": {"a": {"type": "string"}}, "required": 5},
        {"properties": {"a": None}, "required": {"a": True}},
    ],
)
def test_a_schema_that_is_not_one_draws_a_form(folder: Path, schema: Any) -> None:
    assert fill_in(folder, schema, [])[0] == {}

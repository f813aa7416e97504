"""The files of deploy/, as far as they can be checked without a container engine: what they name is there, what they
set is a setting, what is secret has no default, and every image has a version."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from docs.generate import ROOT
from toolscript.configuration.files import load_configuration
from toolscript.settings import PREFIX, Settings, get_variable, load_settings

pytestmark = pytest.mark.req("H-15", "H-16")

DEPLOY = ROOT / "deploy"
FILES = ["compose.yaml", "compose.postgres.yaml"]
VERSION = re.compile(r":v?\d[\w.-]*$")
VARIABLES = {get_variable(each.name) for each in fields(Settings)}


@pytest.fixture(params=FILES)
def composed(request: pytest.FixtureRequest) -> dict[str, Any]:
    yaml: Any = import_module("yaml")
    content: dict[str, Any] = yaml.safe_load((DEPLOY / request.param).read_text(encoding="utf-8"))
    return content


def _fill_in(text: str) -> str:
    """The text as Compose would have it with an .env that says as little as it may."""
    needed = {"POSTGRES_PASSWORD": "p1", "QDRANT_API_KEY": "q1", "TOOLSCRIPT_API_KEY": "t1"}

    def value(found: re.Match[str]) -> str:
        name, _, otherwise = found[1].partition(":")
        return needed.get(name, otherwise.removeprefix("-"))

    return re.sub(r"\$\{([^}]+)\}", value, text)


def test_every_image_has_a_version_and_every_service_a_healthcheck(composed: dict[str, Any]) -> None:
    for name, service in composed["services"].items():
        assert VERSION.search(service["image"]), name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name


def test_what_a_service_waits_for_and_mounts_is_there(composed: dict[str, Any]) -> None:
    for service in composed["services"].values():
        for other, how in service.get("depends_on", {}).items():
            assert other in composed["services"]
            assert how == {"condition": "service_healthy"}
        for place in (volume.partition(":")[0] for volume in service.get("volumes", [])):
            assert (DEPLOY / place).is_dir() if place.startswith(".") else place in composed["volumes"]
    used = {v.partition(":")[0] for s in composed["services"].values() for v in s["volumes"]}
    assert set(composed["volumes"]) == {place for place in used if not place.startswith(".")}


def test_the_gateway_s_variables_are_settings_that_can_be_used(composed: dict[str, Any]) -> None:
    given = {k: _fill_in(v) for k, v in composed["services"]["gateway"]["environment"].items()}
    assert {name for name in given if name.startswith(PREFIX)} == given.keys()
    assert given.keys() <= VARIABLES
    settings = load_settings(variables=given)
    assert settings.store == "postgresql://toolscript:p1@postgres:5432/toolscript"
    assert settings.index in {settings.store, "http://qdrant:6333"}
    assert (settings.index_key == "q1") == ("qdrant" in composed["services"])
    assert (settings.api_key, settings.llm_url, settings.allowed_hosts) == ("t1", None, ())


def test_what_is_secret_is_in_no_file(composed: dict[str, Any]) -> None:
    needed = re.compile(r"\$\{\w+:\?")
    for service in composed["services"].values():
        for name, value in service["environment"].items():
            if name.endswith(("_PASSWORD", "_KEY")) or "@" in value:
                assert "${" in value, name
            if name in {"POSTGRES_PASSWORD", "QDRANT__SERVICE__API_KEY", "TOOLSCRIPT_API_KEY"}:
                assert needed.match(value), name
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()


def test_the_gateway_is_published_on_loopback_and_may_do_little(composed: dict[str, Any]) -> None:
    gateway = composed["services"]["gateway"]
    assert [_fill_in(port) for port in gateway["ports"]] == ["127.0.0.1:3780:3780"]
    assert (gateway["read_only"], gateway["cap_drop"]) == (True, ["ALL"])
    assert all("ports" not in service for name, service in composed["services"].items() if name != "gateway")


def test_the_example_of_an_environment_names_what_the_files_ask_for() -> None:
    lines = (DEPLOY / "env.example").read_text(encoding="utf-8").splitlines()
    offered = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    required = {
        name for file in FILES for name in re.findall(r"\$\{(\w+)", (DEPLOY / file).read_text(encoding="utf-8"))
    }
    assert offered == required
    assert {name for name in offered if name.startswith(PREFIX)} <= VARIABLES


def test_the_image_is_built_from_what_is_there_with_the_lock_file_and_not_as_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert set(wanted.split(",")) <= extras.keys()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    (lock,) = re.findall(r"--constraint (\S+)", text)
    assert (ROOT / lock).is_file()
    assert all(VERSION.search(image) for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert set(re.findall(rf"{PREFIX}\w+", text)) <= VARIABLES
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001"


def test_the_configuration_that_is_mounted_can_be_read() -> None:
    configuration = load_configuration(DEPLOY / "config" / "servers.json", home=ROOT, folder=ROOT, environment={})
    assert not configuration.servers

"""What a server of a registry would run, and what it asks for: nothing that its publisher did not state openly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.registry import describe_server
from toolscript.domain.errors import Invalid
from toolscript.domain.registry.entry import RegistryEntry, read_entry
from toolscript.domain.registry.launch import list_launches, suggest_name

pytestmark = pytest.mark.req("O-02")

TOKEN = {"name": "TOKEN", "isRequired": True, "isSecret": True, "description": "A token"}


def make_entry(name: str = "io.github.ann/weather", **members: Any) -> RegistryEntry:
    return read_entry("https://registry.example.com", {"server": describe_server(name, **members)})


def make_package(kind: str, identifier: str, **about: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "version": "1.2.3", "transport": {"type": "stdio"}, **about}


@pytest.mark.parametrize(
    ("package", "command"),
    [
        (make_package("npm", "@ann/weather"), ["npx", "-y", "@ann/weather@1.2.3"]),
        (make_package("pypi", "weather"), ["uvx", "weather@1.2.3"]),
        (make_package("nuget", "Ann.Weather"), ["dnx", "Ann.Weather@1.2.3", "--yes", "--"]),
        (make_package("oci", "ghcr.io/ann/weather"), ["docker", "run", "-i", "--rm", "ghcr.io/ann/weather:1.2.3"]),
        (make_package("oci", "ghcr.io/ann/weather:9"), ["docker", "run", "-i", "--rm", "ghcr.io/ann/weather:9"]),
        (
            make_package(
                "npm",
                "weather",
                runtimeArguments=[{"type": "positional", "value": "-y"}],
                packageArguments=[
                    {"type": "positional", "value": "serve"},
                    {"type": "named", "name": "--read-only"},
                    {"type": "named", "name": "--units", "default": "metric", "choices": ["metric", "imperial"]},
                    {"type": "named", "name": "--city", "description": "optional"},
                    {
                        "type": "named",
                        "name": "--folder",
                        "value": "/data/{folder}",
                        "variables": {"folder": {"default": "x"}},
                    },
                ],
            ),
            ["npx", "-y", "weather@1.2.3", "serve", "--read-only", "--units", "metric", "--folder", "/data/x"],
        ),
    ],
)
def test_a_package_is_run_by_the_runner_of_its_kind(package: dict[str, Any], command: list[str]) -> None:
    (launch,) = list_launches(make_entry(packages=[package]))
    assert (launch.problem, launch.missing) == ("", ())
    assert [launch.entry["command"], *launch.entry["args"]] == command
    assert launch.entry["trust"] == "review"


def test_missing_values_are_named_and_given_values_are_put_in() -> None:
    package = make_package("oci", "weather", environmentVariables=[TOKEN, {"name": "LEVEL"}])
    remote = {
        "type": "streamable-http",
        "url": "https://{region}.example.com/mcp",
        "variables": {"region": {"isRequired": True, "choices": ["eu", "us"]}},
        "headers": [
            {"name": "Authorization", "value": "Bearer {key}", "isRequired": True, "variables": {"key": TOKEN}}
        ],
    }
    entry = make_entry(packages=[package], remotes=[remote])
    local, far = list_launches(entry)
    assert (local.missing, far.missing) == (("TOKEN",), ("region", "key"))
    assert [(i.name, i.place, i.is_secret) for i in far.inputs] == [
        ("region", "address", False),
        ("key", "header", True),
    ]
    local, far = list_launches(entry, {"TOKEN": "${TOKEN}", "region": "eu", "key": "k"})
    assert local.entry["env"] == {"TOKEN": "${TOKEN}"}
    assert local.entry["args"] == ["run", "-i", "--rm", "-e", "TOKEN", "weather:1.2.3"]
    assert {**far.entry, "trust": ""} == {
        "type": "http",
        "url": "https://eu.example.com/mcp",
        "headers": {"Authorization": "Bearer k"},
        "trust": "",
    }
    with pytest.raises(Invalid, match="give one of eu, us"):
        list_launches(entry, {"region": "mars"})


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"packages": [make_package("npm", "x", runtimeHint="bash")]}, "run by 'bash'"),
        ({"packages": [make_package("mcpb", "https://example.com/x.mcpb")]}, "cannot run packages of the kind 'mcpb'"),
        ({"packages": [make_package("npm", "--eval=evil")]}, "no usable name"),
        ({"packages": [make_package("npm", "a b")]}, "no usable name"),
        ({"packages": [make_package("npm", "x", version="-1")]}, "no usable name"),
        ({"packages": [make_package("npm", "x", transport={"type": "sse"})]}, "serves HTTP itself"),
        (
            {"packages": [make_package("npm", "x", environmentVariables=[{"name": "A=B"}])]},
            "not the name of a variable",
        ),
        (
            {"packages": [make_package("npm", "x", packageArguments=[{"type": "positional", "value": "${HOME}"}])]},
            "variables of this machine",
        ),
        (
            {"packages": [make_package("npm", "x", environmentVariables=[{"name": "A", "default": "${AWS_SECRET}"}])]},
            "variables of this machine",
        ),
        ({"packages": [], "remotes": [{"type": "sse", "url": "https://x/${TOKEN}"}]}, "variables of this machine"),
        ({"packages": [], "remotes": [{"type": "sse", "url": "file:///etc/passwd"}]}, "not an http"),
        ({"packages": [], "remotes": [{"type": "carrier pigeon", "url": "https://x/"}]}, "transport"),
    ],
)
def test_what_could_be_any_program_or_reads_this_machine_is_refused(members: dict[str, Any], problem: str) -> None:
    (launch,) = list_launches(make_entry(**members))
    assert problem in launch.problem


@pytest.mark.parametrize(
    "name",
    (
        "PATH LD_PRELOAD DYLD_INSERT_LIBRARIES NODE_OPTIONS PYTHONPATH npm_config_registry UV_INDEX_URL PIP_INDEX_URL "
        "DOCKER_HOST CONTAINER_HOST DOTNET_STARTUP_HOOKS BASH_ENV https_proxy"
    ).split(),
)
@pytest.mark.parametrize("stated", [{"value": "x"}, {"default": "x"}, {"choices": ["x"]}])
def test_a_publisher_cannot_set_what_decides_which_program_runs(name: str, stated: dict[str, Any]) -> None:
    package = make_package("npm", "x", environmentVariables=[{"name": name, "isRequired": True, **stated}])
    (launch,) = list_launches(make_entry(packages=[package]))
    assert launch.problem == f"it sets {name}, which decides what runs on this machine"
    optional = make_package(
        "npm", "x", environmentVariables=[{"name": name}, {"name": "NODE_ENV", "value": "production"}]
    )
    (launch,) = list_launches(make_entry(packages=[optional]), {name: "mine"})
    assert (launch.problem, launch.stated) == ("", ("variable NODE_ENV=production",))


def test_variables_inside_variables_have_an_end() -> None:
    variable: dict[str, Any] = {"value": "x"}
    for _ in range(6):
        variable = {"value": "{a}" * 9, "variables": {"a": variable}}
    long = {"value": "{a}" * 90, "variables": {"a": {"value": "x" * 1000}}}
    for spec in (variable, long):
        (launch,) = list_launches(make_entry(packages=[make_package("npm", "x", packageArguments=[spec])]))
        assert launch.problem == "its values have too many variables"
        assert len(str(launch.entry)) < 10_000
    (launch,) = list_launches(
        make_entry(packages=[make_package("npm", "x", environmentVariables=[{"name": f"V{i}"} for i in range(300)])])
    )
    assert launch.problem == ""


def test_a_variable_of_this_machine_is_no_wrong_choice() -> None:
    level = {"name": "LOG_LEVEL", "choices": ["debug", "info"]}
    entry = make_entry(packages=[make_package("npm", "x", environmentVariables=[level])])
    (launch,) = list_launches(entry, {"LOG_LEVEL": "${LOG_LEVEL}"})
    assert launch.entry["env"] == {"LOG_LEVEL": "${LOG_LEVEL}"}
    with pytest.raises(Invalid, match="give one of debug, info"):
        list_launches(entry, {"LOG_LEVEL": "x${LOG_LEVEL}"})


def test_a_usable_way_is_offered_before_one_that_is_not() -> None:
    bundle, package = make_package("mcpb", "https://example.com/x.mcpb"), make_package("npm", "x")
    assert [bool(launch.problem) for launch in list_launches(make_entry(packages=[bundle, package]))] == [False, True]
    assert list_launches(make_entry(packages="no list", remotes=[5])) == []


def test_a_generic_name_is_replaced_by_that_of_the_publisher() -> None:
    assert suggest_name(make_entry("com.notion/mcp")) == "notion"
    assert suggest_name(make_entry("io.github.ann/my__weather")) == "my_weather"


def test_a_name_that_no_registry_may_list_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for name in ("weather", "a/b/c", "a/../b", "a/b c", "x/" + "y" * 300, 'a/"onerror', 7, None, deep):
        with pytest.raises(ValueError, match="not a server's name"):
            read_entry("https://registry.example.com", {"server": {"name": name, "version": "1"}})
    with pytest.raises(ValueError, match="no version"):
        read_entry("https://registry.example.com", {"name": "a.b/c"})
    with pytest.raises(ValueError, match="64 KiB"):
        make_entry(packages=[make_package("npm", "x" * 70_000)])

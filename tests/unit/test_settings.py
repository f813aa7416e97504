"""Sources of settings, allowed values, and messages for invalid ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from toolscript.domain.errors import Invalid
from toolscript.settings import (
    DEFAULT_MODEL,
    Settings,
    describe_values,
    find_unknown_variables,
    get_rule,
    get_variable,
    load_settings,
)

BOUNDS: dict[str, tuple[float, float, float]] = {
    "knowledge_rate": (0, 100_000, 1),
    "audit_days": (0, 36_500, 1),
    "breaker_failures": (0, 1000, 1),
    "breaker_seconds": (1, 3600, 0.5),
    "audit_max_mib": (0, 900_000, 1),
    "llm_at_once": (1, 64, 1),
    "llm_timeout": (1, 3600, 0.5),
    "search_alpha": (0, 1, 0.01),
    "search_limit": (1, 100, 1),
    "search_threshold": (0, 1, 0.01),
    "connect_timeout": (1, 3600, 0.5),
    "call_timeout": (1, 3600, 0.5),
    "call_max_mib": (1, 1024, 1),
    "result_tokens": (0, 900_000, 1),
    "port": (0, 65_535, 1),
    "server_idle_minutes": (0, 10_080, 1),
}
CHOICES = {
    "audit_arguments": ["digest", "redacted"],
    "environment": ["development", "production"],
    "search_device": ["auto", "cpu", "gpu"],
    "log_level": ["debug", "info", "warning", "error"],
    "server_start": ["eager", "lazy"],
    "quarantine": ["open", "changed", "all", "review"],
    "approval": ["never", "destructive", "writes"],
}
SECRETS = {
    *("api_key", "index", "knowledge", "index_key", "embeddings_key", "hub_token", "llm_key", "store"),
    *("events", "jwt_secret", "login_key", "page_secret", "reranker_key"),
}


def flag_of(name: str) -> str:
    return {
        "call_timeout": "--call-timeout",
        "environment": "--environment",
        "connect_timeout": "--connect-timeout",
        "search_alpha": "--alpha",
        "search_limit": "--limit",
        "search_threshold": "--threshold",
        "search_device": "--device",
        "llm_at_once": "--llm-at-once",
        "llm_timeout": "--llm-timeout",
        "knowledge_rate": "--knowledge-rate",
        "call_max_mib": "--call-max-mib",
        "result_tokens": "--result-tokens",
        "log_level": "--log-level",
        "port": "--port",
        "audit_arguments": "--audit-arguments",
        "audit_days": "--audit-days",
        "breaker_failures": "--breaker-failures",
        "breaker_seconds": "--breaker-seconds",
        "audit_max_mib": "--audit-max-mib",
        "quarantine": "--quarantine",
        "approval": "--approval",
        "server_start": "--server-start",
        "server_idle_minutes": "--server-idle-minutes",
    }[name]


def refusal(**how: Any) -> Invalid:
    with pytest.raises(Invalid) as refused:
        load_settings(**{"variables": {}, **how})
    return refused.value


@pytest.mark.req("S-05")
@pytest.mark.parametrize(
    ("name", "default", "given", "read", "flag"),
    [
        ("search_limit", 3, "7", 7, 9),
        ("search_threshold", 0.35, "0.5", 0.5, 0.6),
        ("search_alpha", 0.7, "0", 0.0, 1.0),
        ("search_model", DEFAULT_MODEL, "hashed-64", "hashed-64", "other"),
        ("search_device", "auto", "cpu", "cpu", "gpu"),
        ("host", "127.0.0.1", "0.0.0.0", "0.0.0.0", "::1"),
        ("port", 3780, "8080", 8080, 0),
        ("data_dir", Path("~/.toolscript"), "/srv/data", Path("/srv/data"), Path("here")),
        ("index", "", "memory:", "memory:", "http://q:6333"),
        ("store", "", "sqlite://", "sqlite://", "postgresql://h/n"),
        ("index_key", None, "k", "k", "l"),
        ("embeddings_url", None, "http://e", "http://e", "http://f"),
        ("embeddings_key", None, "k", "k", "l"),
        ("hub_url", "https://huggingface.co", "http://mirror", "http://mirror", "http://other"),
        ("hub_token", None, "t", "t", "u"),
        ("log_level", "warning", "debug", "debug", "error"),
        ("server_idle_minutes", None, "0.5", 0.5, 5.0),
    ],
)
def test_flags_override_variables_and_variables_override_defaults(
    name: str, default: Any, given: str, read: Any, flag: Any
) -> None:
    environment = {"TOOLSCRIPT_" + name.upper(): given}
    assert getattr(load_settings(variables={}), name) == default
    assert getattr(load_settings(variables=environment), name) == read
    assert type(getattr(load_settings(variables=environment), name)) is type(read)
    assert getattr(load_settings(variables=environment, **{name: flag}), name) == flag
    assert getattr(load_settings(variables=environment, **{name: None}), name) == read


@pytest.mark.req("S-05")
def test_an_empty_variable_counts_as_unset() -> None:
    assert load_settings(variables={get_variable(f.name): "" for f in fields(Settings)}) == Settings()


def test_other_variables_are_not_read() -> None:
    assert load_settings(variables={"SEARCH_LIMIT": "7", "toolscript_search_limit": "8"}) == Settings()


def test_without_a_mapping_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_LIMIT", "11")
    assert load_settings().search_limit == 11


def test_the_table_of_bounds_is_complete() -> None:
    assert {f.name for f in fields(Settings) if f.type in {"int", "float", "float | None"}} == BOUNDS.keys()
    assert {f.name for f in fields(Settings) if get_rule(f).allowed and f.type == "str"} == CHOICES.keys()


@pytest.mark.req("X-03")
@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_is_allowed_at_its_bounds_and_refused_beyond_them(name: str) -> None:
    minimum, maximum, step = BOUNDS[name]
    variable = get_variable(name)
    for inside in (minimum, maximum):
        assert getattr(load_settings(variables={variable: f"{inside:g}"}), name) == inside
        assert getattr(load_settings(variables={}, **{name: inside}), name) == inside
    for outside in (minimum - step, maximum + step):
        for error, source in (
            (refusal(variables={variable: f"{outside:g}"}), variable),
            (refusal(**{name: outside}), flag_of(name)),
        ):
            assert error.message.startswith(f"invalid value {source}={outside:g}: ")
            assert f"from {minimum:g} to {maximum:g}" in error.message
            assert error.details["field"] == source
            assert f"from {minimum:g} to {maximum:g}" in error.details["allowed"]


@pytest.mark.slow
@pytest.mark.req("X-03")
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("given", ["many", "nan", "inf", "-inf", "1,5", " ", "0x10"])
def test_a_value_that_is_not_a_number_is_refused(name: str, given: str) -> None:
    error = refusal(variables={get_variable(name): given})
    assert error.message.startswith(f"invalid value {get_variable(name)}={given}: ")
    assert "number from" in error.message


@pytest.mark.req("X-03")
@pytest.mark.parametrize("name", ["search_limit", "port"])
@pytest.mark.parametrize("given", ["1.5", "1e1"])
def test_a_fraction_is_refused_where_a_whole_number_is_required(name: str, given: str) -> None:
    assert "a whole number from" in refusal(variables={get_variable(name): given}).message


@pytest.mark.req("X-03", "S-09")
@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_one_of_the_allowed_values(name: str) -> None:
    for choice in CHOICES[name]:
        assert getattr(load_settings(variables={get_variable(name): choice}), name) == choice
    for error, source in (
        (refusal(variables={get_variable(name): "tpu"}), get_variable(name)),
        (refusal(**{name: "tpu"}), flag_of(name)),
    ):
        assert error.message == f"invalid value {source}=tpu: expected one of {', '.join(CHOICES[name])}"
        assert error.details["field"] == source


@pytest.mark.req("X-03")
def test_an_invalid_variable_is_ignored_when_a_flag_overrides_it() -> None:
    assert load_settings(variables={"TOOLSCRIPT_PORT": "x"}, port=1).port == 1


@pytest.mark.req("K-05")
@pytest.mark.parametrize(("also", "name"), [("MONGODB_URI", "knowledge"), ("QDRANT_URL", "index")])
def test_a_second_variable_is_read_if_the_first_is_not_set(also: str, name: str) -> None:
    assert getattr(load_settings(variables={also: "https://other"}), name) == "https://other"
    both = {also: "https://other", get_variable(name): "https://own"}
    assert getattr(load_settings(variables=both), name) == "https://own"
    assert getattr(load_settings(variables={also: "", get_variable(name): ""}), name) == ""


@pytest.mark.req("X-04")
def test_the_representation_contains_no_secret() -> None:
    assert {f.name for f in fields(Settings) if get_rule(f).secret} == SECRETS
    shown = repr(load_settings(variables={get_variable(s): f"hush-{s}" for s in SECRETS}))
    assert "hush" not in shown
    assert "search_model" in shown


def test_every_setting_has_a_description() -> None:
    assert [f.name for f in fields(Settings) if not get_rule(f).help.endswith(".")] == []


def test_the_data_folder_is_absolute_and_resolves_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load_settings(variables={}).data == tmp_path / ".toolscript"
    assert load_settings(variables={}, data_dir="here").data == tmp_path / "here"


@pytest.mark.req("S-10", "X-03")
def test_a_boolean_accepts_the_usual_words() -> None:
    for word, read in {"true": True, "1": True, "Yes": True, "off": False, "0": False, "FALSE": False}.items():
        assert load_settings(variables={"TOOLSCRIPT_SEARCH_NO_CACHE": word}).search_no_cache is read
    with pytest.raises(Invalid, match="invalid value TOOLSCRIPT_SEARCH_NO_CACHE=maybe: expected one of true, false"):
        load_settings(variables={"TOOLSCRIPT_SEARCH_NO_CACHE": "maybe"})


@pytest.mark.req("X-04")
def test_names_of_hosts_are_separated_by_commas() -> None:
    assert load_settings(variables={"TOOLSCRIPT_ALLOWED_HOSTS": "a.example, b.example,"}).allowed_hosts == (
        "a.example",
        "b.example",
    )


@pytest.mark.req("G-09", "X-03")
@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TOOLSCRIPT_SERCH_LIMIT", "TOOLSCRIPT_SEARCH_LIMIT"),
        ("TOOLSCRIPT_MODEL", "TOOLSCRIPT_SEARCH_MODEL"),
        ("TOOLSCRIPT_MODL", "TOOLSCRIPT_SEARCH_MODEL"),
        ("TOOLSCRIPT_APIKEY", "TOOLSCRIPT_API_KEY"),
        ("TOOLSCRIPT_data_dir", "TOOLSCRIPT_DATA_DIR"),
        ("TOOLSCRIPT_DATADIR", "TOOLSCRIPT_DATA_DIR"),
        ("TOOLSCRIPT_XYZZY", None),
    ],
)
def test_an_unknown_variable_is_found_with_the_nearest_setting(variable: str, nearest: str | None) -> None:
    others = {"TOOLSCRIPT_HOST": "x", "TOOLSCRIPT_TEST_POSTGRES_URL": "x", "PATH": "x", "MODEL": "x"}
    assert find_unknown_variables({variable: "1", **others}) == {variable: nearest}


@pytest.mark.req("X-04")
def test_values_are_described_without_secrets() -> None:
    settings = load_settings(variables={"TOOLSCRIPT_API_KEY": "hidden", "TOOLSCRIPT_ALLOWED_HOSTS": "a, b"}, port="1")
    values = describe_values(settings, salt="x")
    assert values.keys() == {"TOOLSCRIPT_API_KEY", "TOOLSCRIPT_ALLOWED_HOSTS", "TOOLSCRIPT_PORT"}
    assert (values["TOOLSCRIPT_ALLOWED_HOSTS"], values["TOOLSCRIPT_PORT"]) == ("a,b", "1")
    assert values["TOOLSCRIPT_API_KEY"] not in {"hidden", describe_values(settings, salt="y")["TOOLSCRIPT_API_KEY"]}

"""Options that several commands share. Their values are not arguments of the command: click's context keeps them, for
`get_overrides` and `is_json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from toolscript.settings import Settings, get_rule, get_variable

Command = TypeVar("Command", bound=Callable[..., Any])
OVERRIDES, JSON = f"{__name__}.overrides", f"{__name__}.json"


def get_overrides() -> dict[str, Any]:
    """The settings that options of the running command override; None for an option that is not given."""
    overridden: dict[str, Any] = click.get_current_context().meta.setdefault(OVERRIDES, {})
    return overridden


def is_json() -> bool:
    """Whether the running command has the flag --json."""
    return bool(click.get_current_context().meta.get(JSON))


def overrides(setting: str, flag: str, **how: Any) -> Callable[[Command], Command]:
    """An option that overrides a setting. Its help comes from the setting unless it is given, and names the variable
    and the default."""

    def keep(_: click.Context, __: click.Parameter, value: str | None) -> None:
        get_overrides()[setting] = value

    each = next(f for f in fields(Settings) if f.name == setting)
    default = "" if each.default is None else f"; default: {each.default}"
    text = f"{how.pop('help', get_rule(each).help)}  [env: {get_variable(setting)}{default}]"
    return click.option(flag, setting, default=None, help=text, expose_value=False, callback=keep, **how)


def _keep_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[JSON] = value


data_dir = overrides("data_dir", "--data-dir", metavar="DIR", type=click.Path(file_okay=False))
model = overrides("search_model", "--model", metavar="NAME")
config = overrides("config", "--config", metavar="FILE", type=click.Path())
gateway = overrides("gateway_url", "--gateway", metavar="URL")
tenant = overrides("tenant", "--tenant", metavar="NAME")
as_json = click.option(
    "--json", is_flag=True, help="Print one JSON object instead of text.", expose_value=False, callback=_keep_json
)
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
filters = click.option(
    "--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="Or != >= <= > < ~ (contains); repeatable."
)
include = click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="In folders, read only files that match, whatever their extension; repeatable.",
)
exclude = click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="In folders, skip what matches, as in .gitignore; repeatable.",
)


def limit(maximum: int, default: int, things: str) -> Callable[[Command], Command]:
    """The option for the maximum number of results."""
    text = f"Maximum number of {things}."
    return click.option("--limit", type=click.IntRange(1, maximum), default=default, show_default=True, help=text)


def min_relevance(things: str) -> Callable[[Command], Command]:
    """The option for the minimum relevance of results."""
    text = f"Leave out {things} of less relevance, from 0 to 1."
    return click.option("--min-relevance", type=click.FloatRange(0, 1), metavar="NUMBER", help=text)


def store(command: Command) -> Command:
    """The options of every command that needs no configuration."""
    return data_dir(gateway(as_json(command)))


def catalogue(command: Command) -> Command:
    """The options of every command that uses the catalogue."""
    return config(store(command))


def tenant_store(command: Command) -> Command:
    """The options of every command about what a tenant has."""
    return tenant(store(command))

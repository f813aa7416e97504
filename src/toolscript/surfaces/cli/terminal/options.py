"""Options that several commands share. The help of each names the setting that it overrides and its default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from toolscript.settings import Settings, get_rule, get_variable

Command = TypeVar("Command", bound=Callable[..., Any])


def overrides(setting: str, flag: str, **how: Any) -> Callable[[Command], Command]:
    """An option that overrides a setting; its help comes from the setting."""
    each = next(f for f in fields(Settings) if f.name == setting)
    default = "" if each.default is None else f"; default: {each.default}"
    text = f"{get_rule(each).help}  [env: {get_variable(setting)}{default}]"
    return click.option(flag, setting, default=None, help=text, **how)


data_dir = overrides("data_dir", "--data-dir", metavar="DIR")
model = overrides("search_model", "--model", metavar="NAME")
config = overrides("config", "--config", metavar="FILE")
tenant = overrides("tenant", "--tenant", metavar="NAME")
refresh = click.option("--refresh", is_flag=True, help="Without a gateway: connect to all servers now and index them.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
include = click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="In folders, read only files that match, whatever their extension; repeatable.",
)
exclude = click.option(
    "--exclude", multiple=True, metavar="GLOB", help="In folders, skip files and folders that match; repeatable."
)


def catalogue(command: Command) -> Command:
    """The options of every command that uses the catalogue."""
    return config(data_dir(as_json(command)))

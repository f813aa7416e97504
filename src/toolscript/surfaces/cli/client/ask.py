"""One question, two ways to its answer: a gateway that runs on the data folder, or the application opened here."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.catalogue import from_catalogue
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from toolscript.app.app import App

Command = TypeVar("Command", bound=Callable[..., Any])
Here = Callable[["App"], Awaitable[Any]]

# Tools are sorted anew after most changes, by a language model if there is one: that takes its time.
PATIENCE_SECONDS = 600.0


def places(command: Command) -> Command:
    """The options that say where things are, and how they are to be told."""
    return options.config(options.data_dir(options.as_json(command)))


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command with these flags, which logs from then on."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    return settings


def answered(flags: Mapping[str, Any], here: Here, path: str, **question: Any) -> Any:
    """What the gateway answers to that question (as `ask` takes it), or what `here` makes of the application."""
    settings = settings_of(flags)
    answer = ask(settings, path, patience=PATIENCE_SECONDS, **question)
    return from_catalogue(settings, here) if answer is None else answer


def tell(answer: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Prints an answer as one JSON object, or as people like it."""
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer)

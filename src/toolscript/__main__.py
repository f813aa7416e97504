"""Lets `python -m toolscript` do what the `toolscript` command does."""

from toolscript.surfaces.cli.main import run

run()

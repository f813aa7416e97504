"""The `toolscript` command, also as `python -m toolscript`. `toolscript mcp` and `toolscript suggest` need little of
it, and start at once."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TextIO

ENV_FILE = ".env"


def run() -> None:
    """Runs the command with the arguments of this process."""
    for stream in (sys.stdout, sys.stderr):
        use_unicode(stream)
    if os.path.isfile(ENV_FILE):  # noqa: PTH113  (pathlib takes 10 ms to import)
        from toolscript.configuration.env_files import add_settings

        add_settings(ENV_FILE, os.environ)
    if sys.argv[1:2] == ["mcp"]:
        from toolscript.pipe.carrier import run as run_pipe

        code = run_pipe(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    if sys.argv[1:2] == ["suggest"]:
        from toolscript.pipe.suggest import run as run_suggest

        code = run_suggest(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from toolscript.surfaces.cli.main import run as run_command

    run_command()


def use_unicode(stream: TextIO | None) -> None:
    """Lets a stream take every character: files and pipes have an old code page on Windows, and other systems may be
    set to one. There, what it lacks becomes `?`."""
    if isinstance(stream, TextIOWrapper) and stream.encoding.lower() not in {"utf-8", "utf8"}:
        stream.reconfigure(encoding="utf-8" if sys.platform == "win32" else None, errors="replace")


if __name__ == "__main__":
    run()

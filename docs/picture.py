"""Draws the README's picture: commands as they really answer in a terminal, as an SVG without fonts from elsewhere.

`python -m docs.picture FOLDER` takes the data folder that the commands are run on; its knowledge should hold the book
that the last command asks about.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 96
PICTURE = Path(__file__).parent / "pictures" / "terminal.svg"
COMMANDS = (
    ["toolscript", "search", "put my changes into version control"],
    ["toolscript", "search", "read_fil", "--limit", "1"],
    ["toolscript", "knowledge", "search", "stop one user from filling up the disk", "--limit", "1"],
)


def main() -> None:
    """Runs the commands and writes the picture."""
    data = Path(sys.argv[1]).absolute()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in COMMANDS:
        shown = " ".join(f'"{word}"' if " " in word else word for word in command)
        console.print(Text.assemble(("$ ", "bold green"), (shown, "bold")))
        console.print(Text.from_ansi(_run(command, data)))
    drawn = console.export_svg(title="toolscript")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")


def _run(command: list[str], data: Path) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TOOLSCRIPT_DATA_DIR": str(data),
        "TOOLSCRIPT_LOG_LEVEL": "error",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    program = Path(sys.executable).with_name(command[0])
    running = subprocess.Popen(  # noqa: S603
        [program, *command[1:]], stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        output += more
    running.wait()
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()

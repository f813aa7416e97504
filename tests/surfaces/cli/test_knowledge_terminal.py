"""Knowledge in a real terminal and in a pipe: progress bars, confirmations, Ctrl-C, closed pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.terminal import SETTINGS, TIMEOUT_SECONDS, open_terminal
from tests.servers.preloaded import toolscript_command
from toolscript.surfaces.cli.main import run

pytestmark = [
    pytest.mark.req("K-06", "G-09"),
    pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows"),
]


def knowledge_command() -> list[str]:
    return [*toolscript_command(), "knowledge"]


def run_here(*arguments: str) -> Result:
    """Runs a command in this process, where nothing depends on the terminal."""
    done = CliRunner().invoke(run, ["knowledge", *arguments])
    assert done.exit_code == 0, done.output
    return done


def in_a_pipe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*knowledge_command(), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **SETTINGS},
        check=False,
        timeout=120,
    )


@pytest.fixture
def long_book(small_folder: Path) -> Path:
    file = Path.cwd() / "long.md"
    words = "the sea the moon and the wind that moves between them until morning comes again"
    paragraphs = (f"Paragraph {n} speaks of {words}." for n in range(20_000))
    file.write_text("# A long book\n\n## All\n\n" + "\n\n".join(paragraphs))
    return file


def test_a_terminal_shows_progress_and_a_pipe_does_not(small_folder: Path) -> None:
    for name in ("one", "two"):
        Path(f"{name}.md").write_text(f"# {name.title()}\n\n## All\n\nNothing but {name}.\n")
    with open_terminal("knowledge", "ingest", "one.md", "two.md") as shown:
        assert shown.wait_for_end() == 0
    assert "Files" in shown.shown
    assert "2 added, 0 changed, 0 unchanged" in shown.shown
    piped = in_a_pipe("ingest", "one.md", "two.md")
    assert piped.stderr == ""
    assert piped.stdout.splitlines()[-1] == "0 added, 0 changed, 2 unchanged"
    assert "\x1b" not in piped.stdout


@pytest.mark.extended
def test_an_interrupted_command_can_be_continued(long_book: Path) -> None:
    first = Path("first.md")
    first.write_text("# First\n\n## All\n\nA short one.\n")
    with open_terminal("knowledge", "ingest", "first.md", "long.md") as shown:
        shown.wait_for("1/2")
        shown.process.send_signal(signal.SIGINT)
        assert shown.wait_for_end() == 130
    assert "Interrupted. Finished work is kept: run the command again to continue." in shown.shown
    assert "Traceback" not in shown.shown
    long_book.write_text("# A long book\n\n## All\n\nThat has become short.\n")
    again = run_here("ingest", "first.md", "long.md")
    assert again.stdout.splitlines()[0].startswith("unchanged  First")
    assert "A long book" in again.stdout


@pytest.mark.extended
def test_in_a_terminal_removing_needs_a_confirmation(small_folder: Path) -> None:
    Path("one.md").write_text("# One\n\n## All\n\nNothing but one.\n")
    run_here("ingest", "one.md")
    with open_terminal("knowledge", "remove", "One") as shown:
        shown.wait_for("Remove One? [y/N]")
        shown.type("n\n")
        assert shown.wait_for_end() == 2
    assert "nothing was removed" in shown.shown
    with open_terminal("knowledge", "remove", "One") as shown:
        shown.wait_for("Remove One? [y/N]")
        shown.type("y\n")
        assert shown.wait_for_end() == 0
    assert "No sources yet" in run_here("list").stdout


def test_the_reader_of_an_export_may_close_the_pipe(long_book: Path) -> None:
    long_book.write_text("# A long book\n\n## All\n\n" + "\n\n".join(f"{n} " + "word " * 60 for n in range(400)))
    run_here("ingest", "long.md")
    with subprocess.Popen(
        [*knowledge_command(), "export"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **SETTINGS},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"source"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=TIMEOUT_SECONDS) == 0


def test_passages_and_citations_fit_the_terminal(small_folder: Path) -> None:
    Path("one.md").write_text("# One\n\n## A chapter with quite a long name\n\n" + "Amber is old resin. " * 40)
    run_here("ingest", "one.md", "--author", "Ada Lovelace")
    with open_terminal("knowledge", "search", "amber", "--full") as shown:
        assert shown.wait_for_end() == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.shown).splitlines()
    assert max(map(len, lines)) < 100
    assert any(line.startswith("     — Ada Lovelace, One, chapter “A chapter") for line in lines)

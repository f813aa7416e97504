"""`toolscript ingest` and `toolscript jobs`: trials, jobs that are left alone, other gateways, interruptions."""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from click.testing import CliRunner
from PIL import Image

from tests.fixtures.book_files import Typed, pdf
from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.fixtures.limits import set_limits
from tests.fixtures.terminal import open_terminal
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.announcement import read_announcement
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("F-01", "F-02", "G-09")

# It takes a fraction of a second where nothing else runs.
MAX_STOP_SECONDS = 40.0


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask a gateway for the state of a job without a pause of a quarter of a second."""
    set_limits(monkeypatch, upload_poll=0.01)


@pytest.fixture
def notes(small_folder: Path) -> Path:
    folder = Path.cwd() / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# A\n\nA hive needs shade.\n")
    (folder / "deep" / 'b"ü.md').write_text("# B\n\nTides follow the moon.\n")
    (folder / "c.png").write_bytes(b"\x89PNG")
    return folder


def test_a_dry_run_shows_what_would_be_read_and_writes_nothing(notes: Path) -> None:
    shown = invoke("ingest", "notes", "nowhere", "--dry-run")
    assert "2 files, " in shown.stdout
    assert shown.stdout.endswith("; nothing was ingested\n")
    assert "failed nowhere: no such file" in shown.stderr
    assert "skipped: 1 (no reader for .png files)" in shown.stderr
    assert run_json("documents", "list")["documents"] == []
    assert run_json("jobs", "list")["jobs"] == []


def test_one_word_says_what_failed_and_one_what_was_skipped(notes: Path) -> None:
    (notes / "bad.json").write_text("{")
    done = invoke("ingest", "notes")
    assert done.stdout == "2 added, 0 changed, 0 unchanged; 1 failed, 1 skipped\n"
    failed, skipped = done.stderr.splitlines()
    assert failed.startswith(f"failed {notes / 'bad.json'}: not valid JSON")
    assert skipped == "note: skipped: 1 (no reader for .png files)"
    job = run_json("jobs", "list")["jobs"][0]
    assert (job["files"], job["skipped"]) == ({"total": 3, "done": 2, "failed": 1}, {"no reader for .png files": 1})
    shown = invoke("jobs", "show", job["id"]).stderr.splitlines()
    assert [line.split(":")[0] for line in shown] == [f"failed {notes / 'bad.json'}", "note"]


def test_options_that_do_not_fit_are_refused(notes: Path) -> None:
    wrong = {
        "--title is for sources: add --as knowledge": ["--title", "x"],
        "--as-one is for sources": ["--as-one"],
        "--metadata and --prune are for documents": ["--as", "knowledge", "--prune"],
        "Invalid value for '--as'": ["--as", "tools"],
        "Invalid value for '--max-size'": ["--max-size", "-1"],
    }
    for message, options in wrong.items():
        assert message in invoke("ingest", "notes", *options, code=2).stderr
    assert "no such job: 'documents-1'" in invoke("jobs", "show", "documents-1", code=4).stderr
    assert "no gateway runs" in invoke("jobs", "resume", "documents-1", code=2).stderr


@pytest.mark.extended
def test_scanned_pages_of_a_file_with_text_are_a_warning(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.BytesIO()
    Image.new("L", (100, 100), 200).save(drawn, "PDF")
    document = pdfium.PdfDocument(pdf([[Typed(72, 700, "Bees dance.")]]))
    document.import_pages(pdfium.PdfDocument(drawn.getvalue()))
    document.save(notes / "mixed.pdf")
    monkeypatch.setattr("toolscript.adapters.files.reader._find_ocr", str)
    advice = "install tesseract or pip install 'toolscript[ocr]', or run OCR on it first (ocrmypdf does)"
    warning = f"1 of 2 pages are pictures without text (2); {advice}"
    done = invoke("ingest", "notes")
    assert done.stdout.endswith("3 added, 0 changed, 0 unchanged; 1 skipped\n")
    assert f"{notes / 'mixed.pdf'}: {warning}" in " ".join(done.stderr.split())
    again = run_json("ingest", "notes")
    assert (again["failed"], again["warnings"]) == ([], [{"path": str(notes / "mixed.pdf"), "warning": warning}])
    (source,) = run_json("ingest", "notes/mixed.pdf", "--as", "knowledge")["sources"]
    assert source["warnings"] == [warning]


def test_a_job_is_left_to_the_gateway_and_shown_by_its_id(
    notes: Path, start_gateway: Callable[[], None], small_folder: Path
) -> None:
    start_gateway()
    started = run_json("ingest", "notes", "--no-wait", "--exclude", "*.png")
    end = time.monotonic() + 60
    while (job := run_json("jobs", "show", started["id"]))["state"] == "running":
        assert time.monotonic() < end
    assert (job["added"], job["failed"], job["skipped"]) == (2, [], {"excluded": 1})
    listed = invoke("jobs", "list").stdout
    assert started["id"] in listed
    assert "done" in listed
    cancelled = invoke("jobs", "cancel", started["id"])
    assert f"toolscript jobs resume {started['id']} continues it" in cancelled.stderr
    assert "done; 2 files: 2 done" in invoke("jobs", "resume", started["id"]).stdout
    assert "No jobs" in invoke("jobs", "list", "--as", "knowledge").stdout


@pytest.mark.extended
def test_another_gateway_gets_the_files_themselves(
    notes: Path, start_gateway: Callable[[], None], small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_DEBUG_BYPASS_AUTH", "true")
    start_gateway()
    created = run_json(
        "keys",
        "create",
        "writer",
        "--scope",
        "documents",
        "--scope",
        "knowledge",
        "--scope",
        "admin",
        "--tenant",
        "acme",
    )
    announced = read_announcement(load_settings(variables={}, data_dir=small_folder).data)
    assert announced
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", created["key"])
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(small_folder / "elsewhere"))
    there = ("--gateway", announced.url)
    end = time.monotonic() + 60
    while time.monotonic() < end:  # a gateway follows new keys within seconds
        if CliRunner().invoke(run, ["documents", "list", *there]).exit_code == 0:
            break
    assert run_json("ingest", "notes", *there)["added"] == 2
    ids = [each["id"] for each in run_json("documents", "list", *there)["documents"]]
    assert ids == ["a.md", "deep/b%22ü.md"]
    assert run_json("ingest", "notes", *there)["unchanged"] == 2
    assert run_json("ingest", "notes/a.md", "--as", "knowledge", *there)["sources"][0]["title"] == "A"
    Path("lines.jsonl").write_text(
        '{"extraction": {"source_id": "A", "type": "warning", "content": {"what": "Bees sting"}, "topics": []}}'
    )
    assert run_json("knowledge", "import", "lines.jsonl", *there)["extractions"] == 1
    assert "Bees sting" in invoke("knowledge", "search", "sting", "--type", "warning", *there).stdout
    assert (
        "on the gateway's own machine only" in invoke("knowledge", "ingest", "notes", "--as-one", *there, code=2).stderr
    )
    assert "no readable files in notes" in invoke("ingest", "notes", "--include", "*.x", *there, code=2).stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows")
@pytest.mark.parametrize("with_gateway", choose([False, True], False))
def test_ctrl_c_stops_soon_and_says_what_is_kept(
    small_folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    if with_gateway:
        start_gateway()
    folder = Path.cwd() / "many"
    folder.mkdir()
    for n in range(3000):
        (folder / f"n{n}.md").write_text(f"# Note {n}\n\n" + "\n\n".join(f"Paragraph {p} of it." for p in range(30)))
    with open_terminal("ingest", "many") as shown:
        shown.wait_for(" a minute")
        shown.process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        assert shown.wait_for_end() == 130
        seconds = time.monotonic() - begin
    assert "Interrupted. Finished work is kept: run the command again to continue." in shown.shown
    assert seconds < MAX_STOP_SECONDS
    (job,) = run_json("jobs", "list")["jobs"]
    assert job["state"] == "cancelled"
    assert 0 < job["files"]["done"] < 3000
    assert len(run_json("documents", "list", "--limit", "1000")["documents"]) >= min(1000, job["files"]["done"])

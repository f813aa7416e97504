"""Recognises the text of scanned pages: with tesseract, as a child of the worker with the same limits and a picture on
standard input; where it is missing, with the package rapidocr in the worker. Neither writes files."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pypdfium2 as pdfium

from toolscript.adapters.files.parts import TextBlock, make_block
from toolscript.domain.errors import Invalid

RAPIDOCR = "rapidocr"
"""In place of the command of tesseract."""
_ADVICE = "tesseract or pip install 'toolscript[ocr]', or run OCR on it first (ocrmypdf does)"
NOT_INSTALLED = f"The file has no text layer: it seems to be scanned. Install {_ADVICE}."
_TOO_LONG = "OCR of the scanned pages takes too long, run OCR on the file first (ocrmypdf does)."
# A page takes about two seconds, and a file has two minutes. Where other pages have text, reading them takes some.
MAX_PAGES = 40
_TOTAL_SECONDS, _PARTIAL_SECONDS = 100.0, 60.0
# A longer book has a cover in front and at the back.
_MIN_COVERED_PAGES = 8
_MAX_LISTED = 5
_DOTS_PER_INCH = 200
_MAX_PIXELS = 25_000_000
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PARENT_DEATH_SIGNAL = 1


def drop_covers(numbers: Sequence[int], count: int) -> list[int]:
    """Returns the pages without text (numbered from 1, of `count`) except the covers of a book."""
    covers = {1, count} if count >= _MIN_COVERED_PAGES else set()
    return [number for number in numbers if number not in covers]


def recognise_some(
    document: pdfium.PdfDocument, numbers: Sequence[int], command: str
) -> tuple[list[TextBlock], tuple[str, ...]]:
    """Returns the paragraphs of the scanned pages of a file with other pages that have text, and a warning if some of
    them are left out."""
    parts: list[TextBlock] = []
    advice = f"install {_ADVICE}"
    if command:
        try:
            for part in recognise_pages(document, numbers, command, _PARTIAL_SECONDS):
                parts.append(part)  # noqa: PERF402 # those before an error are kept
        except Invalid as error:
            advice = error.message.rstrip(".").replace(": ", ", ")
        else:
            return parts, ()
    left_out = [number for number in numbers if number not in {part.page for part in parts}]
    listed = ", ".join(map(str, left_out[:_MAX_LISTED])) + (", …" if len(left_out) > _MAX_LISTED else "")
    return parts, (f"{len(left_out)} of {len(document)} pages are pictures without text ({listed}); {advice}",)


def recognise_pages(
    document: pdfium.PdfDocument, numbers: Sequence[int], command: str, total_seconds: float = _TOTAL_SECONDS
) -> Iterator[TextBlock]:
    """Returns the paragraphs of some pages (numbered from 1). Raises Invalid if there are too many, or OCR fails."""
    if len(numbers) > MAX_PAGES:
        raise Invalid(
            f"The file has {len(numbers)} scanned pages, and OCR is for up to {MAX_PAGES} here: run OCR on it first "
            "(ocrmypdf does)."
        )
    deadline = time.monotonic() + total_seconds
    engine = _open_rapidocr() if command == RAPIDOCR else None
    for number in numbers:
        page, seconds = document[number - 1], deadline - time.monotonic()
        text = _run_rapidocr(engine, page, seconds) if engine else _run_tesseract(command, _draw_page(page), seconds)
        for paragraph in _PARAGRAPH_END.split(text.replace("\f", "\n")):
            yield from make_block(paragraph, page=number)


def _draw_page(page: pdfium.PdfPage) -> bytes:
    """Draws a page in shades of grey, as PGM."""
    bitmap = page.render(scale=_find_scale(page), grayscale=True)
    data = bytes(bitmap.buffer)
    rows = (data[row * bitmap.stride : row * bitmap.stride + bitmap.width] for row in range(bitmap.height))
    return b"P5 %d %d 255\n" % (bitmap.width, bitmap.height) + b"".join(rows)


def _find_scale(page: pdfium.PdfPage) -> float:
    width, height = page.get_size()
    return float(min(_DOTS_PER_INCH / 72, (_MAX_PIXELS / max(width * height, 1)) ** 0.5))


def _open_rapidocr() -> Callable[..., Any]:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # later than the import, it has no effect
    from rapidocr import RapidOCR

    threads = dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), 1)
    options = {f"EngineConfig.onnxruntime.{name}": number for name, number in threads.items()}
    engine: Callable[..., Any] = RapidOCR(params={"Global.log_level": "critical", **options})
    return engine


def _run_rapidocr(engine: Callable[..., Any], page: pdfium.PdfPage, seconds: float) -> str:
    """Returns the lines of a page, with an empty line between paragraphs: where the next line is far below."""
    if seconds <= 0:
        raise Invalid(_TOO_LONG)
    found = engine(page.render(scale=_find_scale(page)).to_numpy())
    lines: list[str] = []
    end = None
    for text, box in zip(found.txts or (), found.boxes if found.boxes is not None else (), strict=True):
        top, bottom = float(box[0][1]), float(box[3][1])
        if end is not None and top - end > (bottom - top):
            lines.append("")
        lines.append(text)
        end = bottom
    return "\n".join(lines)


def _run_tesseract(command: str, picture: bytes, seconds: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603 # the command was found on the user's own path
            [command, "stdin", "stdout"],
            input=picture,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OMP_THREAD_LIMIT": "1"},
            timeout=max(seconds, 0.1),
            preexec_fn=_end_with_parent(),  # the worker has one thread
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Invalid(_TOO_LONG) from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise Invalid("Some pages have no text layer, and tesseract failed to read them.") from error
    return done.stdout.decode("utf-8", "replace")


def _end_with_parent() -> Callable[[], object] | None:
    """Lets the system kill tesseract when the worker is killed, where it can."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)

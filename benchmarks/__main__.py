"""The command `python -m benchmarks`: runs the sections and writes the page."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import (
    audit,
    documents,
    embedding,
    fusion,
    gateway,
    handshake,
    hierarchical,
    index,
    keywords,
    knowledge,
    lazy,
    operations,
    page,
    searches,
)
from benchmarks.code import hostile, speed, tokens
from benchmarks.timing import Table

Section = Callable[[bool], Awaitable[list[Table]]]
SECTIONS: dict[str, tuple[str, Section]] = {
    "embedding": ("Embedding", embedding.run),
    "index": ("Index", index.run),
    "growth": ("Growth", index.run_growth),
    "fusion": ("Fusion", fusion.run),
    "search": ("Search", searches.run),
    "gateway": ("Gateway", gateway.run),
    "handshake": ("Handshake", handshake.run),
    "results": ("Large results", gateway.run_large_results),
    "code": ("Code mode", speed.run),
    "hostile": ("Hostile programs", hostile.run),
    "tokens": ("Tokens in code mode", tokens.run),
    "lazy": ("Lazy servers", lazy.run),
    "hierarchical": ("Hierarchical search", hierarchical.run),
    "documents": ("Documents", documents.run),
    "keywords": ("Keywords", keywords.run),
    "ingest": ("Ingest", documents.run_beside_ingest),
    "knowledge": ("Knowledge", knowledge.run),
    "audit": ("Audit", audit.run),
    "operations": ("Operations of APIs", operations.run),
}
# Sections that need data of their own run only where `--only` names them.
ON_REQUEST = {"operations"}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Measures, prints, and writes the page; a quick run writes only where `--out` names a file."""
    options = _parse_arguments()
    out: Path | None = options.out or (None if options.quick else PAGE)
    texts: dict[str, str] = {}
    for name in options.only:
        title, run = SECTIONS[name]
        started = time.perf_counter()
        texts[title] = page.build_section(asyncio.run(_tables(run, options.quick)), quick=options.quick)
        print(f"### {title}\n\n{texts[title]}", end="\n\n", flush=True)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if out:
        page.write(out, texts, [title for title, _ in SECTIONS.values()])


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute; printed, not written")
    parser.add_argument(
        "--only",
        type=_parse_names,
        default=[name for name in SECTIONS if name not in ON_REQUEST],
        help=f"comma-separated sections of {','.join(SECTIONS)}",
    )
    parser.add_argument("--out", type=Path, help="the page to write (default: docs/benchmarks.md; with --quick none)")
    return parser.parse_args()


def _parse_names(given: str) -> list[str]:
    names = given.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown section {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    return names


async def _tables(run: Section, quick: bool) -> list[Table]:
    return await run(quick)


if __name__ == "__main__":
    main()

"""Documentation that cannot lie: generated pages are current, links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import PAGES, REFERENCE, ROOT


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """All pages as `make docs` writes them: in another process, because commands remember that their help was shown."""
    script = "import json; from docs.generate import PAGES; print(json.dumps({n: page() for n, page in PAGES.items()}))"
    output = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True).stdout
    pages: dict[str, str] = json.loads(output)
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str, generated: dict[str, str]) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == generated[name], "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = ((p, t) for p in pages for t in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", p.read_text(encoding="utf-8")))
    broken = [f"{p.relative_to(ROOT)}: {t}" for p, t in links if "://" not in t and not (p.parent / t).exists()]
    assert broken == []


def test_every_decision_that_code_cites_exists() -> None:
    cited = set()
    for file in (ROOT / "src").rglob("*.py"):
        cited.update(re.findall(r"docs/decisions/(\d{4})", file.read_text(encoding="utf-8")))
    written = {p.name[:4] for p in Path(ROOT / "docs" / "decisions").glob("*.md")}
    assert cited - written == set()

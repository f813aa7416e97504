"""Takes the pictures of the console for the guide and the README, in a real browser.

`python -m docs.console_pictures URL` takes the address of a gateway that needs no key and has some servers.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 1180, 760
# The name of the picture, the page, what must be there before it is taken, and the colours.
PICTURES = (
    ("console-search", "#/search?q=put%20my%20changes%20into%20version%20control&limit=4", ".others .hit", "light"),
    ("console-strategies", "#/search?q=read%20a%20file&view=compare", ".strategy-tools li", "dark"),
    ("console-tool", "#/tool/filesystem__search_files", ".call form", "light"),
    ("console-map", "#/map", ".map-legend span:nth-child(4)", "dark"),
    ("console-servers", "#/servers?open=everything", ".log p", "light"),
)


def main() -> None:
    """Takes all pictures."""
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        for name, page_address, needed, theme in PICTURES:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
            page.goto(f"{sys.argv[1].rstrip('/')}/{page_address}")
            page.wait_for_selector(needed)
            page.wait_for_load_state("networkidle" if "servers" not in name else "load")
            page.screenshot(path=FOLDER / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()

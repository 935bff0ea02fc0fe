"""Read every page of the built documentation in a browser: what is clipped, and pictures of it.

    make pages
    python tests/pages.py [--only TEXT] [--pictures DIR]

Needs selenium, which `make pages` installs, and Chromium with its driver. Each page of docs/_build/html
is opened at the width of a phone and of a desktop, in light and in dark. What reaches beyond the window
without a scroll bar of its own, a picture that does not load or has no text, and text that hardly differs
from its background are written, and the exit status is 1. --pictures keeps the first screens of all pages
as PNG files.
"""

import argparse
import sys
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "_build" / "html"
WIDTHS = {"phone": (390, 844), "desktop": (1366, 900)}
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync",
    "--no-first-run", "--disable-background-networking", "--allow-file-access-from-files",
)  # fmt: skip

# What a page answers: lines of faults.
FAULTS = r"""
const wide = document.documentElement.clientWidth, found = [];
const shown = e => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
const scrolls = e => {
  for (; e && !e.matches("article, .bd-article-container, main, body"); e = e.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true;
  return false;
};
const name = e =>
  e.tagName.toLowerCase() + " «" + (e.textContent || e.src || "").trim().slice(0, 50) + "»";
if (document.documentElement.scrollWidth > wide + 1)
  found.push("the page is " + document.documentElement.scrollWidth + " wide in " + wide);
const inside = names => document.querySelectorAll(names.split(" ").map(n => "main " + n).join(", "));
for (const e of inside("table pre mjx-container img svg p h1 h2 h3 dt")) {
  if (!shown(e) || e.closest("mjx-assistive-mml, .visually-hidden, .sd-d-none")) continue;
  const box = e.getBoundingClientRect();
  if ((box.right > wide + 1 || box.left < -1) && !scrolls(e.parentElement) && !scrolls(e))
    found.push("reaches beyond the window: " + name(e));
  if (["hidden", "clip"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1)
    found.push("is clipped: " + name(e));
}
for (const e of inside("img")) {
  if (!e.complete || !e.naturalWidth) found.push("does not load: " + e.getAttribute("src"));
  if (!(e.getAttribute("alt") || "").trim()) found.push("has no text: " + e.getAttribute("src"));
}
for (const e of inside("mjx-merror .problematic .system-message"))
  found.push("error: " + name(e));
const channels = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = c => {
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const [r, g, b] = channels(c).slice(0, 3).map(v => linear(v / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor, a = channels(c);
    if (a.length < 4 || a[3] > .5) return c;
  }
  return "rgb(255, 255, 255)";
};
const faint = new Set();
for (const e of inside("p li td th code figcaption dt h1 h2 .highlight>pre>span")) {
  if (!shown(e) || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < 3) faint.add(contrast.toFixed(1) + " between text and background: " + name(e));
}
return [...new Set(found), ...[...faint].slice(0, 5)];
"""


def browser():
    """A headless Chromium."""
    options = Options()
    for flag in FLAGS:
        options.add_argument(flag)
    return webdriver.Chrome(options=options)


def faults(driver, page, theme, width, height) -> list[str]:
    """What is wrong with a page in a theme at a window's size."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    driver.get(page.as_uri())
    driver.execute_async_script(
        "const done = arguments[0];"
        f"document.documentElement.dataset.theme = '{theme}';"
        "const ready = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();"
        "ready.then(() => setTimeout(done, 50));"
    )
    return driver.execute_script(FAULTS)


def main() -> int:
    """Write what is wrong, page by page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="pages whose path contains this")
    parser.add_argument("--pictures", type=Path, help="folder for pictures")
    args = parser.parse_args()
    pages = sorted(p for p in PAGES.rglob("*.html") if args.only in str(p.relative_to(PAGES)))
    if not pages:
        parser.error("there are no such pages: make docs")
    driver, wrong = browser(), 0
    try:
        for page in pages:
            name = str(page.relative_to(PAGES).with_suffix(""))
            for kind, size in WIDTHS.items():
                for theme in ("light", "dark"):
                    found = faults(driver, page, theme, *size)
                    wrong += len(found)
                    sys.stdout.writelines(f"{name} ({kind}, {theme}): {each}\n" for each in found)
                    sys.stdout.flush()
                    if args.pictures:
                        args.pictures.mkdir(parents=True, exist_ok=True)
                        file = f"{name.replace('/', '-')}_{kind}_{theme}.png"
                        driver.save_screenshot(str(args.pictures / file))
    finally:
        driver.quit()
    sys.stdout.write(f"{len(pages)} pages, {wrong} faults\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

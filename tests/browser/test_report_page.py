"""The pages of `report --html` and `compare --html` as a browser shows them: narrow and wide, light
and dark, on paper.

What can be seen is measured: the box of every text and of every plot, as laid out.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import invented_runs
import matplotlib.image
import numpy as np
import pytest
from chromium import Browser
from variants import variant, variants_where

from tcpx_mpi.compare import Limits, compare_runs
from tcpx_mpi.records import Run
from tcpx_mpi.report.fleet import fleet_of
from tcpx_mpi.report.html import write_comparison, write_fleet, write_html

RUNS = {
    "sound": invented_runs.sound,
    "troubled": invented_runs.troubled,
    "empty": invented_runs.empty,
    "beside-peers": invented_runs.beside_baselines,
    "many-ranks": lambda: invented_runs.sound(world=40, rows=21),
    "several-launches": invented_runs.several,
}
COMPARISONS = {
    "compared": lambda: (invented_runs.several(), invented_runs.several(slower=1.05)),
    "compared-single": lambda: (invented_runs.sound(), invented_runs.sound(rows=12)),
    "compared-troubled": lambda: (invented_runs.troubled(), invented_runs.several(slower=3)),
}
FLEETS = {"fleet": 16, "large-fleet": 20}
WIDTHS = (360, 800, 1440)
#: The first page of each kind: the others are seen at the least width.
SEEN_WIDE = ("sound", "troubled", "compared", "fleet")
MOST_BYTES = 5_000_000

#: The texts that are seen, each with the boxes of its lines as [left, top, right, bottom, text],
#: and everything that lies where it must not. What a table that scrolls hides is not seen.
LAYOUT = """
(() => {
  const slack = 1, boxes = [], faults = [];
  const say = text => text.trim().replace(/\\s+/g, " ").slice(0, 40);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement, svg = parent.closest("svg");
    if (!node.data.trim() || parent.closest("title, desc, style, defs")) continue;
    if (!parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = svg ? [parent.getBoundingClientRect()] : [...range.getClientRects()];
    const wide = parent.closest(".wide");
    const clip = wide && getComputedStyle(wide).overflowX !== "visible"
      ? wide.getBoundingClientRect() : {left: -1e9, right: 1e9};
    for (const r of rects) {
      const left = Math.max(r.left, clip.left), right = Math.min(r.right, clip.right);
      if (right - left < slack || r.height < slack) continue;
      boxes.push([left, r.top + scrollY, right, r.bottom + scrollY, say(node.data)]);
      if (left < -slack || right > document.documentElement.clientWidth + slack)
        faults.push(`outside of the window: ${say(node.data)}`);
      const room = svg && svg.getBoundingClientRect();
      if (room && (r.left < room.left - slack || r.right > room.right + slack
                   || r.top < room.top - slack || r.bottom > room.bottom + slack))
        faults.push(`outside of its plot: ${say(node.data)}`);
    }
  }
  for (const svg of document.querySelectorAll("svg")) {
    const r = svg.getBoundingClientRect();
    if (r.width < 200 || r.height < 80) faults.push(`a plot of ${r.width} x ${r.height}`);
    const others = boxes.filter(b => b[2] > r.left + slack && b[0] < r.right - slack
      && b[3] > r.top + scrollY + slack && b[1] < r.bottom + scrollY - slack);
    const own = new Set([...svg.querySelectorAll("text")].map(text => say(text.textContent)));
    for (const b of others) if (!own.has(b[4])) faults.push(`over a plot: ${b[4]}`);
  }
  boxes.sort((a, b) => a[1] - b[1]);
  boxes.forEach((a, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j][1] < a[3] - slack; ++j) {
      const b = boxes[j];
      if (b[0] < a[2] - slack && b[2] > a[0] + slack) faults.push(`overlap: ${a[4]} / ${b[4]}`);
    }
  });
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth)
    faults.push(`the page scrolls sideways: ${document.documentElement.scrollWidth}`);
  return {texts: boxes.length, faults};
})()
"""


def page_of(run: Run, folder: Path) -> Path:
    page = folder / "page.html"
    write_html(run, str(page))
    return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each of RUNS, of COMPARISONS and of FLEETS."""
    made = {name: page_of(run(), tmp_path_factory.mktemp(name)) for name, run in RUNS.items()}
    for name, two in COMPARISONS.items():
        made[name] = tmp_path_factory.mktemp(name) / "page.html"
        write_comparison(compare_runs(*two(), Limits()), str(made[name]))
    for name, nodes in FLEETS.items():
        made[name] = tmp_path_factory.mktemp(name) / "page.html"
        write_fleet(fleet_of(invented_runs.fleet(nodes)), str(made[name]))
    return made


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    """[row, column, colour] from 0 to 1."""
    image: np.ndarray[Any, Any] = matplotlib.image.imread(io.BytesIO(png))
    return image[:, :, :3]


def brightness(image: np.ndarray[Any, Any]) -> float:
    return float(np.median(image.mean(axis=2)))


@pytest.mark.parametrize(
    ("name", "width"),
    variants_where(
        lambda name, width: width == 800 or (width == 1440 and name not in SEEN_WIDE),
        itertools.product((*RUNS, *COMPARISONS, *FLEETS), WIDTHS),
    ),
)
def test_nothing_overlaps_or_sticks_out_and_the_browser_has_no_complaint(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.show(width)
    browser.open(pages[name])
    layout = browser.evaluate(LAYOUT)
    assert layout["faults"] == []
    assert layout["texts"] > 40
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].as_uri()]


@pytest.mark.parametrize(
    "name", ["sound", variant("troubled"), variant("several-launches"), "compared", "fleet"]
)
def test_nothing_overlaps_on_paper_where_all_details_are_open(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.show(794, media="print")  # A4 at 96 dots an inch
    browser.open(pages[name])
    assert [fault for fault in browser.evaluate(LAYOUT)["faults"] if "sideways" not in fault] == []
    if name in RUNS:
        assert browser.evaluate("document.querySelector('details table').checkVisibility()")
    assert browser.pdf().startswith(b"%PDF-")


def test_the_check_sees_texts_that_overlap_or_stick_out(
    browser: Browser, pages: dict[str, Path]
) -> None:
    for damage, words in (
        ("document.querySelector('h2').style.marginBottom = '-2rem'", "overlap: "),
        ("document.querySelector('svg text').setAttribute('dx', '-80')", "outside of its plot"),
        ("document.querySelector('figcaption').style.marginTop = '-4rem'", "over a plot"),
        ("document.querySelector('h1').style.marginLeft = '-6rem'", "outside of the window"),
        ("document.querySelector('pre').style.width = '2000px'", "scrolls sideways"),
    ):
        browser.show(800)
        browser.open(pages["sound"])
        browser.evaluate(damage)
        found = browser.evaluate(LAYOUT)["faults"]
        assert any(fault.startswith(words) or words in fault for fault in found), (damage, found)


def test_a_complaint_and_a_request_are_seen(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src=missing.png><script>console.error(1); nothing()</script>")
    browser.open(page)
    assert len(browser.complaints()) >= 3
    assert (tmp_path / "missing.png").as_uri() in browser.requests()


def test_light_and_dark_are_followed_and_neither_is_blank(
    browser: Browser, pages: dict[str, Path]
) -> None:
    seen = {}
    for dark in (False, True):
        browser.show(1440, dark=dark)
        browser.open(pages["sound"])
        image = pixels(browser.screenshot())
        seen[dark] = brightness(image)
        levels = (image * 255).round().astype(np.int64)
        assert len(np.unique(levels @ [1 << 16, 1 << 8, 1])) > 200
        blue = browser.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--series-1').trim()"
        )
        wanted = np.array([int(blue[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(levels - wanted).max(axis=2) <= 1).sum() > 100  # the line is drawn
    assert seen[False] > 0.9
    assert seen[True] < 0.2


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(
    browser: Browser, pages: dict[str, Path], dark: bool
) -> None:
    """A contrast of 4.5, as WCAG asks for normal text, for every pair that the style has."""
    browser.show(1440, dark=dark)
    browser.open(pages["troubled"])
    names = ["ground", "ink", "muted", "link", "good", "good-ground", "doubtful",
             "doubtful-ground", "bad", "bad-ground"]  # fmt: skip
    colour = {
        name: browser.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
        )
        for name in names
    }
    pairs = [(text, "ground") for text in ("ink", "muted", "link")]
    for level in ("good", "doubtful", "bad"):
        pairs += [(level, f"{level}-ground"), ("ink", f"{level}-ground")]
    for text, ground in pairs:
        light, dim = sorted((luminance(colour[text]), luminance(colour[ground])), reverse=True)
        assert (light + 0.05) / (dim + 0.05) >= 4.5, (text, ground)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_hostile_names_run_no_script(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(1440)
    browser.open(pages["troubled"])
    assert browser.evaluate("document.scripts.length") == 0
    assert invented_runs.HOSTILE in browser.evaluate("document.querySelector('h1').textContent")


def test_wrong_bytes_cannot_be_overlooked(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(1440)
    browser.open(pages["troubled"])
    top = browser.evaluate("document.querySelector('.verdict.bad').getBoundingClientRect().bottom")
    assert top < 900  # in sight without scrolling
    shown = "getComputedStyle(document.querySelector('#rows tr.bad')).backgroundColor"
    others = "getComputedStyle(document.querySelector('#rows tr:not(.bad)')).backgroundColor"
    assert browser.evaluate(shown) != browser.evaluate(others)


@pytest.mark.variant  # takes 20 s, and has one way to fail: a page that grew
def test_the_page_of_10000_rows_is_small_and_opens(browser: Browser, tmp_path: Path) -> None:
    page = page_of(invented_runs.long(), tmp_path)
    assert page.stat().st_size < MOST_BYTES
    browser.show(1440)
    browser.open(page)
    assert browser.evaluate("document.querySelectorAll('#rows tbody tr').length") == 1000
    assert "5 WRONG" in browser.evaluate("document.querySelector('#rows tr.bad').textContent")
    assert browser.evaluate(LAYOUT)["faults"] == []
    assert browser.complaints() == []

"""Usable by everybody: by keyboard, at two widths, in light and dark, with names, roles and contrast."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
from playwright.sync_api import expect

import headway
from browser.chrome import NARROW, WIDE, opened

CSS = Path(headway.__file__).parent / "web" / "static" / "css" / "base.css"
STATES = ("busy", "blocked", "starved", "overhead")
LOOKS = [(WIDE, False), (WIDE, True), (NARROW, False), (NARROW, True)]

# Text against what lies behind it, by the formula of WCAG 2; names of all controls; what is wider than the page.
AUDIT = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (el) => {
    for (let at = el; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const seen = (el) => el.checkVisibility({ visibilityProperty: true }) && el.getBoundingClientRect().width > 1;
  for (const el of document.querySelectorAll("body *")) {
    if (!seen(el) || el.closest("svg, .sr, .skip")) continue;
    const own = [...el.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (own && !el.matches(":disabled, option")) {
      const [a, b] = [light(parse(getComputedStyle(el).color)), light(behind(el))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${el.className} ${el.textContent.trim().slice(0, 40)}`);
    }
    if (el.matches("button, a, input, select, [tabindex], [role=slider]") && !el.matches("main")) {
      const name = el.getAttribute("aria-label") || el.labels?.[0]?.textContent || el.textContent || el.title;
      if (!name.trim()) found.push(`no name: ${el.outerHTML.slice(0, 80)}`);
    }
    if (el.matches("[tabindex]") && el.tabIndex > 0) found.push(`its own place in the order of focus: ${el.outerHTML.slice(0, 80)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`wider than the page: ${document.documentElement.scrollWidth}`);
  if (document.querySelectorAll("h1").length !== 1) found.push("not one main heading");
  return found;
}"""


def views(live, serve, finished):
    return {
        "run": live.url,
        "visualizer": serve(finished.report) + "#/try",
        "report": serve(finished.report),
        "nothing": serve(),
    }


def settle(page):
    expect(page.locator("h1")).not_to_be_empty()
    if "#/try" in page.url:
        expect(page.locator(".side .scene")).to_have_count(2)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), LOOKS, ids=["wide-light", "wide-dark", "narrow-light", "narrow-dark"])
def test_every_view_has_contrast_names_and_fits(live, serve, finished, browser, size, dark):
    live.standing()
    for name, url in views(live, serve, finished).items():
        with opened(browser, size=size, dark=dark, calm=True) as page:
            page.goto(url)
            settle(page)
            assert page.evaluate(AUDIT) == [], name


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), LOOKS, ids=["wide-light", "wide-dark", "narrow-light", "narrow-dark"])
def test_axe_finds_nothing_in_any_view(live, serve, finished, browser, size, dark):
    axe = Path(os.environ.get("HEADWAY_AXE") or "axe.min.js")
    if not axe.exists():
        pytest.skip("no axe: npm install axe-core outside the checkout and name its axe.min.js in HEADWAY_AXE")
    live.standing()
    for name, url in views(live, serve, finished).items():
        with opened(browser, size=size, dark=dark, calm=True) as page:
            page.goto(url)
            settle(page)
            page.evaluate(axe.read_text(encoding="utf-8"))
            found = page.evaluate("() => axe.run({ resultTypes: ['violations'] })")["violations"]
            told = [(one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found]
            assert told == [], name


@pytest.mark.slow
def test_the_keyboard_reaches_every_control_in_the_order_of_the_page(live, page):
    live.standing()
    page.goto(live.url)
    for name in ("enrich", "Follow item", "Dead letters, newest first"):  # a part of the page each: as it is filled
        expect(page.get_by_label(name, exact=True)).to_be_visible()
    wanted = page.evaluate("""() => [...document.querySelectorAll("a, button, input, select, [tabindex]")]
        .filter((el) => el.checkVisibility() && !el.disabled && el.tabIndex >= 0 && !el.matches("main")).length""")
    tops, seen = [], []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        name, top, ring = (
            page.evaluate("""() => { const el = document.activeElement; const style = getComputedStyle(el);
            return [el.getAttribute("aria-label") || el.labels?.[0]?.textContent || el.textContent, el.getBoundingClientRect().top + scrollY, style.outlineStyle]; }""")
        )
        seen.append(name.strip())
        tops.append(top)
        assert ring != "none", f"{name!r} does not show that it has the focus"
    assert seen[0] == "Skip to the content"
    for name in ("Drain", "Cancel", "Pause", "enrich", "Window", "Follow item"):
        assert name in seen, seen
    assert (
        seen.index("Drain")
        < seen.index("Follow item")
        < seen.index("enrich")
        < seen.index("Dead letters, newest first")
    )
    page.keyboard.press("Tab")  # and out again: no trap
    assert page.evaluate("() => document.activeElement === document.body || document.activeElement.matches('.skip')")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_the_pointer_is_over_can_still_be_read(serve, browser, dark):
    with opened(browser, dark=dark, calm=True) as page:
        page.goto(serve() + "#/try")
        expect(page.locator(".side .scene")).to_have_count(2)
        for name in ("The four-stage staircase", "The silent reorder, step by step", "Play", "Compare off"):
            page.get_by_role("button", name=name).hover()
            assert page.evaluate(AUDIT) == [], name


@pytest.mark.slow
def test_with_reduced_motion_nothing_glides(serve, browser):
    with opened(browser, calm=True) as page:
        page.goto(serve() + "#/try")
        expect(page.locator(".side .scene")).to_have_count(2)
        page.get_by_role("button", name="The silent reorder").click()
        expect(page.locator(".side .scene")).to_have_count(2)
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        page.get_by_role("button", name="One step on").click()
        assert page.evaluate("() => document.getAnimations().length") == 0


def colours(dark):
    blocks = re.findall(r":root \{(.*?)\n\s*\}", CSS.read_text(), re.DOTALL)
    named = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[1 if dark else 0]))
    return {name: [int(named[name][at : at + 2], 16) / 255 for at in (1, 3, 5)] for name in STATES}


# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB.
BLIND = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


def lab(rgb, matrix):
    """CIE L*a*b* (D65) of an sRGB colour as an eye with that matrix sees it."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb]
    r, g, b = (min(1, max(0, sum(m * v for m, v in zip(row, linear, strict=True)))) for row in matrix)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eye", BLIND)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_state_colours_stay_apart_for_every_eye(eye, dark):
    seen = {name: lab(rgb, BLIND[eye]) for name, rgb in colours(dark).items()}
    for one, other in itertools.combinations(STATES, 2):
        apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert apart >= 15, (
            f"{one} and {other}: {apart:.1f}"
        )  # 2.3 is what an eye can just tell, 10 is plain at a glance

"""Every Python block of the README and the pages runs; a text block after it is what it printed."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from sybil import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page):
    printed = ""

    def expect(example):
        assert printed == example.parsed, "the page shows something else than was printed"

    parsers = [PythonCodeBlockParser(), CodeBlockParser("text", expect)]
    for example in Document.parse(str(page), *parsers).examples():
        out = io.StringIO()
        with redirect_stdout(out):
            yield example
        printed = out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_and_prints_what_the_page_says(page):
    for example in _blocks(page):
        example.evaluate()


def test_there_are_blocks_to_run():
    counts = {page.name: sum(1 for _ in _blocks(page)) for page in PAGES}
    assert counts["README.md"] >= 1
    assert counts["tutorial.md"] >= 10
    assert counts["order.md"] >= 3


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_page_leads_somewhere(page):
    import re

    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target

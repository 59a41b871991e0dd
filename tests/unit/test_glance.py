"""Progress at a glance: a terminal, plain lines, a notebook."""

from __future__ import annotations

import io
import sys
import threading
import types

import pytest
from rich.console import Console

from headway import Pipeline
from headway.watch.glance import BAR, Glance, bar_of
from headway.watch.progress import Progress

HOSTILE = "[bold]x[/bold]<b>\x1b[2J"


def glance(name="a", total=None, **options):
    pipeline = Pipeline(range(200), name=name, **options).map(str, workers=3, name=name).map(str, name="b")
    shown = Glance(total)
    shown.look(pipeline.simulate({name: 0.004, "b": 0.002}, items=200).figures())
    return shown


def drawn(shown):
    text = io.StringIO()
    Console(file=text, width=100, force_terminal=False).print(shown.drawn())
    return text.getvalue()


def test_a_stage_is_told_with_its_bar_queue_rate_and_gate():
    shown = glance(total=400)
    text = drawn(shown)
    assert "200 written of 400 (50%)" in text
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert "3 thread" in row
    assert "#" * 8 in row
    assert "before b 0 held back" in text or "before output 0 held back" in text
    assert "is the bottleneck" in text
    line = shown.line()
    assert "\n" not in line
    for part in ("a busy ", "blocked ", "starved ", "queue ", "held back"):
        assert part in line


def test_a_bar_has_all_its_characters():
    assert sum(cells for _, cells in bar_of({"busy": 1 / 3, "blocked": 1 / 3, "starved": 1 / 3})) == BAR
    assert bar_of({"busy": 1.0}) == [("busy", BAR)]
    assert bar_of({}) == []


def test_rates_are_those_of_the_last_looks():
    shown = glance()
    data = shown.data
    later = data | {"elapsed": data["elapsed"] + 2.0, "items": data["items"] | {"written": 1200}}
    shown.look(later)
    assert shown.rate() == pytest.approx(500)
    assert shown.rate("a") == 0


def test_names_are_text_and_no_markup_or_command_of_a_terminal():
    shown = glance(HOSTILE)
    for text in (drawn(shown), shown.line()):
        assert "[bold]x" in text
        assert "\x1b" not in text
    page = shown.page()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page


class Writer(io.StringIO):
    """Standard error that lets the run go on once something was shown."""

    def __init__(self, shown, *, terminal=False):
        super().__init__()
        self._shown, self._terminal = shown, terminal

    def write(self, text):
        if "written" in text:
            self._shown.set()
        return super().write(text)

    def isatty(self):
        return self._terminal


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("headway.watch.progress.LINE_S", 0.01)
    monkeypatch.setattr("headway.watch.progress.DRAW_S", 0.01)


def run(shown, **how):
    return Pipeline([0], name="one").map(lambda x: shown.wait(30), name="hold").run(**how)


@pytest.mark.parametrize("mode", ["concurrent", "inline"])
def test_without_a_terminal_progress_is_plain_lines(monkeypatch, quick, mode):
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", Writer(shown))
    assert run(shown, progress=True, mode=mode).items.written == 1
    lines = sys.stderr.getvalue().splitlines()
    assert lines[0].startswith("one: running, 0 written")
    assert "hold busy" in lines[0]


def test_a_terminal_gets_a_table_that_goes_when_the_run_ends(monkeypatch, quick):
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", Writer(shown, terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    assert run(shown, progress=True).items.written == 1
    assert "\x1b[" in sys.stderr.getvalue()
    assert "hold" in sys.stderr.getvalue()


@pytest.mark.parametrize("how", ["start", "open"])
def test_every_way_to_run_shows_progress(monkeypatch, quick, how):
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", Writer(shown))
    pipeline = Pipeline([0]).map(lambda x: shown.wait(30))
    if how == "start":
        pipeline.start(progress=True).wait()
    else:
        with pipeline.open(progress=True) as run:
            assert list(run) == [True]
    assert "written" in sys.stderr.getvalue()


def test_a_notebook_shows_the_same_as_html(monkeypatch, quick):
    shown, pages = threading.Event(), []

    class Handle:
        def update(self, made):
            pages.append(made)
            shown.set()

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display = types.ModuleType("IPython.display")
    display.HTML, display.display = (lambda text: text), (lambda made, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    run(shown, progress=True)
    assert "<table>" in pages[0]
    assert "hold" in pages[0]
    assert "done, 1 written" in pages[-1]


def test_what_has_not_begun_can_be_closed():
    Progress("log", dict).close()

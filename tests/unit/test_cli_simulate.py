"""`headway simulate` and `headway what-if`: what they print, refuse, and the status they exit with."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from headway.cli.main import main

STAIRCASE = "read=2ms parse=1ms process=4ms write=3ms"


@pytest.fixture
def command(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        return SimpleNamespace(status=exit_.value.code or 0, out=captured.out, err=captured.err)

    return call


def test_the_staircase_is_drawn_with_its_rates(command):
    shown = command("simulate", STAIRCASE, "--items", "300")
    assert shown.status == 0
    lines = shown.out.splitlines()
    assert lines[0].startswith("row 0   |R")
    assert "P" in lines[0]
    assert "250 rows/s in steady state: one every 4 ms, 2.50 x a plain loop" in shown.out
    assert "first row out after 10 ms" in shown.out
    assert "bottleneck: process" in shown.out


def test_workers_queue_jitter_order_and_seed_are_used(command):
    def rate(*options):
        return json.loads(command("simulate", "a=1ms b=1ms*2", "--items", "500", "--json", *options).out)["rate"]

    exact, small = rate(), rate("--jitter", "exp", "--queue", "1")
    assert exact > 1.05 * small
    assert rate("--jitter", "exp", "--queue", "1") == small
    assert rate("--jitter", "exp", "--queue", "1", "--seed", "2") != small
    data = json.loads(command("simulate", "a=1ms*4", "--order", "none", "--json").out)
    assert data["reorder"] == []
    assert data["stages"][0]["workers"] == 4


def test_a_page_is_written(command, tmp_path):
    page = tmp_path / "page.html"
    assert command("simulate", STAIRCASE, "--items", "50", "--html", str(page)).status == 0
    text = page.read_text()
    assert "process" in text
    assert "http" not in text, "it loads nothing"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("read=2x", "not of the form"),
        ("read", "not of the form"),
        ("", "at least one"),
        ("a=1ms a=2ms", "two stages"),
        ("a=1*0", "form"),
    ],
)
def test_what_cannot_be_read_is_told_with_an_example(command, text, says):
    shown = command("simulate", text)
    assert shown.status == 2
    assert says in shown.err


@pytest.fixture
def report(command, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(command("simulate", STAIRCASE, "--items", "300", "--json").out)
    return str(path)


def test_a_report_is_asked_what_if(command, report):
    shown = command("what-if", report, "--set", "process=3", "--json")
    made = json.loads(shown.out)["prediction"]
    assert made["rate"] == pytest.approx(1000 / 3, rel=0.01)
    assert made["low"] <= 1000 / 3 <= made["high"]
    assert made["next_bottleneck"] == "write"
    listed = command("what-if", report)
    assert "workers: process=2" in listed.out


def test_a_target_gives_the_workers_or_why_not(command, report):
    shown = command("what-if", report, "--target", "330")
    assert shown.status == 0
    assert "process=2" in shown.out
    refused = command("what-if", report, "--target", "1e9", "--json")
    assert refused.status == 1
    assert "workers" in json.loads(refused.out)["unreachable"]["because"]


def test_what_is_no_report_or_no_stage_is_told(command, report, tmp_path):
    (tmp_path / "other.json").write_text("[1]")
    assert "is not a report" in command("what-if", str(tmp_path / "other.json")).err
    shown = command("what-if", report, "--set", "no=2")
    assert shown.status == 2
    assert "'no' is no stage of this pipeline" in shown.err

"""`headway run` and `headway plan`: what they find, print, refuse, and the status they exit with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.cli.main import COMMANDS, main

JOBS = """
from headway import DROP, Pipeline

def double(n):
    return 2 * n

def odd_only(n):
    return n if n % 2 else DROP

def break_at_seven(n):
    if n == 7:
        raise ValueError("seven is not liked")
    return n

written = []
pipeline = Pipeline(range(10), name="numbers").map(odd_only).map(double, workers=2).to(written.append)
broken = Pipeline(range(10)).map(break_at_seven).to(written.append)
impossible = Pipeline(range(10), window=3).batch(5).to(written.append)
number = 7

def made():
    return pipeline

def fails():
    return 1 / 0
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the command in a folder of its own; gives status, out and err."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("HEADWAY_DEBUG", raising=False)
    modules = set(sys.modules)
    (tmp_path / "numbers_jobs.py").write_text(JOBS)

    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        return SimpleNamespace(status=exit_.value.code or 0, out=captured.out, err=captured.err)

    yield call
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize(
    "reference",
    ["numbers_jobs.py:pipeline", "numbers_jobs:pipeline", "./numbers_jobs.py:pipeline", "numbers_jobs:made"],
)
def test_runs_the_pipeline_that_is_named(command, reference):
    answer = command("run", reference, "--json")
    assert answer.status == 0, answer.err
    report = json.loads(answer.out)
    assert (report["name"], report["state"], report["complete"]) == ("numbers", "done", True)
    assert (report["items"]["read"], report["items"]["written"], report["items"]["filtered"]) == (10, 5, 5)
    assert sys.modules["numbers_jobs"].written == [2, 6, 10, 14, 18]


def test_prints_the_report(command):
    answer = command("run", "numbers_jobs.py:pipeline")
    assert answer.status == 0, answer.err
    assert "odd_only" in answer.out
    assert "double" in answer.out


def test_quiet_prints_nothing(command):
    answer = command("run", "numbers_jobs.py:pipeline", "--quiet")
    assert (answer.status, answer.out, answer.err) == (0, "", "")


def test_finds_a_file_in_another_folder_and_what_it_imports_beside_it(command, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "deep_helper.py").write_text("def triple(n):\n    return 3 * n\n")
    (tmp_path / "deep" / "deep_jobs.py").write_text(
        "from headway import Pipeline\nfrom deep_helper import triple\n"
        "got = []\npipeline = Pipeline(range(3)).map(triple, on='process').to(got.append)\n"
    )
    answer = command("run", "deep/deep_jobs.py:pipeline", "--quiet")
    assert answer.status == 0, answer.err
    assert sys.modules["deep_jobs"].got == [0, 3, 6]


def test_set_changes_the_number_of_workers(command):
    answer = command("run", "numbers_jobs:pipeline", "--json", "--set", "double=3", "--set", "odd_only=2")
    assert answer.status == 0, answer.err
    workers = {stage["name"]: stage["workers"] for stage in json.loads(answer.out)["stages"]}
    assert (workers["double"], workers["odd_only"]) == (3, 2)
    assert sys.modules["numbers_jobs"].written == [2, 6, 10, 14, 18]


@pytest.mark.parametrize("setting", ["double", "double=", "=2", "double=0", "double=-1", "double=two", "double=1.5"])
def test_a_setting_that_cannot_be_read_is_a_usage_error(command, setting):
    answer = command("run", "numbers_jobs:pipeline", "--set", setting)
    assert answer.status == 2
    assert "STAGE=WORKERS" in answer.err


def test_a_setting_for_no_stage_names_the_stages(command):
    answer = command("run", "numbers_jobs:pipeline", "--set", "dubble=2")
    assert answer.status == 2
    assert "dubble" in answer.err
    assert "double" in answer.err
    assert "Traceback" not in answer.err


def test_a_study_of_a_stage_is_in_the_report(command, monkeypatch):
    monkeypatch.setattr("headway.studying.STUDY_S", 1.0)
    # The sleep is the service time: how long calls take is what is studied.
    (Path.cwd() / "slow_jobs.py").write_text(
        "import time\nfrom headway import Pipeline\n"
        # The service time, half of which is to go: real time is what is studied.
        "pipeline = Pipeline(range(1500)).map(lambda n: time.sleep(0.001), name='slow').to(str)\n"
    )
    done = command("run", "slow_jobs.py:pipeline", "--study", "slow=30", "--quiet", "--json")
    assert done.status == 0
    assert "with calls of slow 30% shorter about" in json.loads(done.out)["advice"][-1]


@pytest.mark.parametrize(
    ("study", "says"),
    [("odd_only=0", "not of the form"), ("odd_only=x", "not of the form"), ("nowhere", "there is no stage 'nowhere'")],
)
def test_a_study_of_nothing_is_refused_before_anything_runs(command, study, says):
    done = command("run", "numbers_jobs.py:pipeline", "--study", study)
    assert done.status == 2
    assert says in done.err


def test_inline_runs_every_stage_on_the_calling_thread(command, tmp_path):
    (tmp_path / "inline_jobs.py").write_text(
        "import threading\nfrom headway import Pipeline\nseen = []\n"
        "def note(n):\n    seen.append(threading.current_thread())\n    return n\n"
        "pipeline = Pipeline(range(4)).map(note, workers=3).map(note, on='process').to(note)\n"
    )
    answer = command("run", "inline_jobs.py:pipeline", "--inline", "--quiet")
    assert answer.status == 0, answer.err
    assert sys.modules["inline_jobs"].seen == [threading.main_thread()] * 12


def test_a_page_is_for_a_run_beside_the_caller(command):
    answer = command("run", "numbers_jobs:pipeline", "--ui", "--inline")
    assert answer.status == 2
    assert "ui= shows a concurrent run" in answer.err


def test_a_failing_item_gives_one_message_with_stage_number_and_cause(command):
    answer = command("run", "numbers_jobs:broken")
    assert answer.status == 1
    for word in ("break_at_seven", "7", "ValueError", "seven is not liked"):
        assert word in answer.err
    assert "break_at_seven" in answer.out, "the report of what was done is shown all the same"


def test_a_failing_run_still_reports_as_json(command):
    answer = command("run", "numbers_jobs:broken", "--json")
    assert answer.status == 1
    report = json.loads(answer.out)
    assert report["state"] == "failed"
    assert report["items"]["written"] == 7


def test_a_worker_that_was_terminated_is_a_failure_and_not_our_own_termination(command, tmp_path):
    (tmp_path / "dying_jobs.py").write_text(
        "import os, signal\nfrom headway import Pipeline\n"
        "def die(n):\n    os.kill(os.getpid(), signal.SIGTERM)\n    signal.pause()\n"
        "pipeline = Pipeline(range(3)).map(die, on='process')\n"
    )
    answer = command("run", "dying_jobs.py:pipeline")
    assert answer.status == 1, answer.err
    assert "die" in answer.err
    assert "15" in answer.err or "SIGTERM" in answer.err


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("numbers_jobs", "MODULE:NAME"),
        ("numbers_jobs:", "MODULE:NAME"),
        ("nowhere.py:pipeline", "no file nowhere.py"),
        ("nowhere:pipeline", "no module 'nowhere'"),
        ("numbers_jobs:pipelin", "pipeline, broken, impossible"),
        ("numbers_jobs:number", "of type int"),
        ("numbers_jobs:double", "needs arguments"),
        ("numbers_jobs:fails", "numbers_jobs.py, line 25"),
        ("broken_syntax.py:pipeline", "SyntaxError"),
        ("broken_import.py:pipeline", "broken_import.py, line 3"),
        ("needs_other:pipeline", "no_such_library"),
        ("leaves.py:pipeline", "leaves.py called sys.exit(3) while it was imported"),
        ("misuses.py:pipeline", "misuses.py, line 4)"),
        ("json.py:pipeline", "rename the file"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_reference_to_nothing_usable_is_a_message_without_a_traceback(command, tmp_path, verb, reference, says):
    (tmp_path / "broken_syntax.py").write_text("def f(:\n")
    (tmp_path / "broken_import.py").write_text("\n\n1 / 0\n")
    (tmp_path / "needs_other.py").write_text("import no_such_library\n")
    (tmp_path / "json.py").write_text("pipeline = 1\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "misuses.py").write_text(
        "import textwrap\nfrom headway import Pipeline\n\ntextwrap.wrap('a', width=0)\n"
    )
    answer = command(verb, reference)
    assert answer.status in {1, 2}
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_a_warning_of_ours_is_a_message_and_one_of_the_users_code_stays_as_it_is(tmp_path):
    (tmp_path / "warning_jobs.py").write_text(
        "import warnings\nimport headway.errors\nfrom headway import Pipeline\n"
        "warnings.warn('from the user')\n"
        "warnings.warn_explicit('from us', RuntimeWarning, headway.errors.__file__, 1)\n"
        "pipeline = Pipeline([1]).map(str)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-m", "headway", "run", "warning_jobs.py:pipeline", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "warning_jobs.py:4: UserWarning: from the user" in answer.stderr
    assert "headway: warning: from us" in answer.stderr.splitlines()


def test_debug_shows_the_traceback(command, tmp_path, monkeypatch):
    (tmp_path / "broken_import.py").write_text("\n\n1 / 0\n")
    assert "Traceback" in command("--debug", "run", "broken_import.py:pipeline").err
    monkeypatch.setenv("HEADWAY_DEBUG", "1")
    assert "Traceback" in command("run", "broken_import.py:pipeline").err


def test_plan_explains_each_edge(command):
    answer = command("plan", "numbers_jobs:pipeline")
    assert answer.status == 0, answer.err
    assert "re-sequencer" in answer.out
    assert "double" in answer.out
    assert sys.modules["numbers_jobs"].written == []


def test_plan_as_json_has_the_documented_fields(command):
    answer = command("plan", "numbers_jobs:pipeline", "--json")
    assert answer.status == 0, answer.err
    plan = json.loads(answer.out)
    assert set(plan) >= {"edges", "stages", "warnings"}
    assert all(
        set(edge) >= {"from", "to", "proven", "needed", "placed", "why", "max_items", "max_bytes"}
        for edge in plan["edges"]
    )
    assert [edge["placed"] for edge in plan["edges"]] == [None, None, "re-sequencer"]


def test_plan_follows_the_settings(command):
    answer = command("plan", "numbers_jobs:pipeline", "--json", "--set", "double=1")
    assert [edge["placed"] for edge in json.loads(answer.out)["edges"]] == [None, None, None]


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_what_cannot_work_is_refused_with_what_would(command, verb):
    answer = command(verb, "numbers_jobs:impossible")
    assert answer.status == 2
    assert "window=10" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("name", ["run", "plan"])
def test_help_has_an_example(command, name):
    answer = command(name, "--help")
    assert answer.status == 0
    assert f"Example: headway {name}" in answer.out


def test_an_unknown_command_is_a_usage_error(command):
    answer = command("improt")
    assert answer.status == 2
    assert "improt" in answer.err


def test_every_listed_command_exists():
    from headway.cli.main import headway

    for name in COMMANDS:
        assert headway.get_command(None, name).name == name


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_what_was_read_and_exits_with_its_status(tmp_path, number, status):
    (tmp_path / "endless.py").write_text(
        textwrap.dedent("""
        import itertools, sys
        from headway import Pipeline

        def say(n):
            if n == 100:
                print("running", file=sys.stderr, flush=True)
            return n

        pipeline = Pipeline(itertools.count()).map(say, workers=2).to(lambda n: None)
        """)
    )
    with subprocess.Popen(
        [sys.executable, "-m", "headway", "run", "endless.py:pipeline", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr.readline() == "running\n"
        os.kill(child.pid, number)
        out, err = child.communicate(timeout=60)
    assert child.returncode == status, err
    report = json.loads(out)
    assert report["state"] == "drained"
    assert report["items"]["unread"] == 0
    assert report["items"]["read"] == report["items"]["written"]
    assert "Traceback" not in err

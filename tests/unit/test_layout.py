"""The shape of the code: sizes, what the core may know, and what `import headway` costs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headway

SRC = Path(headway.__file__).parent
FILES = sorted(SRC.rglob("*.py"))
STATIC = sorted(path for kind in ("*.js", "*.css") for path in (SRC / "web" / "static").rglob(kind))
CORE = sorted((SRC / "core").glob("*.py"))
CORE_MAY_IMPORT = {
    "__future__", "headway", "collections", "dataclasses", "heapq", "enum", "typing", "math", "bisect",
}  # fmt: skip
HEAVY = {
    "click", "rich", "duckdb", "pyarrow", "cloudpickle", "msgspec", "fsspec", "psycopg", "sqlite3",
    "starlette", "uvicorn", "plotly", "ray", "opentelemetry", "numpy", "pandas", "multiprocessing",
}  # fmt: skip


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are written in full"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", [*FILES, *STATIC], ids=lambda path: str(path.relative_to(SRC)))
def test_no_file_is_longer_than_400_lines(path):
    assert _lines(path) <= 400


def _lines_of_code(path: Path) -> int:
    """Lines without docstrings, comments and blank ones."""
    text = path.read_text(encoding="utf-8")
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in told for n, line in lines)


def test_the_core_stays_small():
    assert CORE
    assert sum(map(_lines_of_code, CORE)) <= 2_500


@pytest.mark.parametrize("path", [*CORE, SRC / "gauges.py"], ids=lambda path: path.name)
def test_the_core_imports_only_itself_the_errors_and_pure_modules(path):
    for name in _imports(path):
        assert name.partition(".")[0] in CORE_MAY_IMPORT, name
        if name.startswith("headway"):
            assert name in ("headway.errors", "headway.gauges") or name.startswith("headway.core"), name


def test_there_is_no_drawer_for_odds_and_ends():
    assert not [path for path in FILES if path.stem in {"utils", "util", "helpers", "common", "misc"}]


def test_import_headway_loads_no_heavy_library():
    script = "import json, sys; import headway; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(answer.stdout)}
    assert not loaded & HEAVY


def test_help_of_the_command_loads_no_subcommand():
    script = """
import contextlib, json, sys
from headway.cli.main import main
sys.stdout, out = sys.stderr, sys.stdout
with contextlib.suppress(SystemExit):
    main(["--help"])
print(json.dumps(sorted(sys.modules)), file=out)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(answer.stdout))
    assert "headway.cli.main" in loaded
    assert not {name for name in loaded if name.startswith("headway.cli.")} - {"headway.cli.main"}
    assert not {name.partition(".")[0] for name in loaded} & (HEAVY - {"click"})
    assert "run" in answer.stderr
    assert "import" in answer.stderr


def test_constraints_are_exact_versions_and_nothing_else():
    lines = (SRC.parents[1] / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 20
    for line in pins:
        assert re.fullmatch(r"[a-z0-9._-]+==[0-9][0-9a-z.+]*( ; .+)?", line), line

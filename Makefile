# Everything starts from a plain python3 (3.11 or newer):  make demo   make test
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 4
ARGS   ?=

bin   := $(VENV)/bin
ready := $(VENV)/.ready

# Children start in half the time where the code is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo test browser screenshots accept kill chaos versions check format bench calibrate coverage changelog constraints clean

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

env: $(ready)  ## make the virtual environment

$(ready): pyproject.toml constraints.txt tools/environment.sh
	@./tools/environment.sh $(PYTHON) $(VENV)
	@touch $@

demo: $(ready)  ## import a million generated rows and check every one (ARGS="--rows 100000")
	@$(bin)/headway demo $(ARGS)

test: $(ready)  ## the fast suite (ARGS="-k name")
	$(bin)/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

browser: $(ready) $(VENV)/axe  ## the page in a real Chromium: every view, width and control (apt install chromium)
	HEADWAY_AXE=$(VENV)/axe/node_modules/axe-core/axe.min.js $(bin)/python -m pytest tests/browser $(ARGS)

$(VENV)/axe: | $(ready)
	@mkdir -p $@
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --no-save --prefix $@ axe-core@4 \
		|| echo "headway: no axe-core; its checks are skipped" >&2

screenshots: $(ready)  ## pictures of every view of the page, light and dark, wide and narrow, in screenshots/
	PYTHONPATH=tests $(bin)/python tools/screenshots.py $(ARGS)

kill: $(ready)  ## kill imports at every step of a commit and at random, a hundred times per database
	$(bin)/python -m pytest -n $(JOBS) -m slow tests/importer/test_kills.py $(ARGS)

versions:  ## the fast suite on every supported Python that is installed
	@./tools/versions.sh $(ARGS)

accept: $(ready)  ## the slow suite: full counts of the acceptance scenarios, 200,000 imported rows
	$(bin)/python -m pytest -m slow $(ARGS)

chaos: $(ready)  ## a thousand kills of real workers, at random moments (HEADWAY_KILLS=5000)
	$(bin)/python -m pytest -n $(JOBS) tests/chaos $(ARGS)

check: $(ready)  ## lint, format, types, direction of imports
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache

format: $(ready)  ## put the code into shape
	$(bin)/ruff check --fix-only .
	$(bin)/ruff format .

bench: $(ready)  ## ratios against plain Python, with targets (ARGS="handoff")
	@$(bin)/python bench/run.py $(ARGS)

calibrate: $(ready)  ## predictions against what then happens, over real pipelines; writes the table of the docs
	@$(bin)/python bench/calibrate.py $(ARGS)

coverage: $(ready)  ## the fast suite with line and branch coverage
	$(bin)/coverage erase
	$(bin)/coverage run -m pytest -m "not slow" $(ARGS)
	$(bin)/coverage combine --quiet
	$(bin)/coverage report

changelog: $(ready)  ## show what the next release notes will say
	@$(bin)/towncrier build --draft

constraints: $(ready)  ## pin the newest versions that fit
	printf 'hatchling\neditables\npip\nuv\n' > $(VENV)/tools.in
	printf '# Versions that the suite was run with, on Python 3.11, 3.12 and 3.13.\n# Made by: make constraints\n' > $(VENV)/constraints.txt
	$(bin)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
		--extra import --extra postgres --extra ui --group dev \
		pyproject.toml $(VENV)/tools.in >> $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

clean:  ## remove what can be made again
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache htmlcov
	rm -f .coverage .coverage.*

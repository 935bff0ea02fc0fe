# Everything runs from .venv. The first target that needs it creates it, and it is brought up to
# date when pyproject.toml changes; a failed installation leaves no stamp and is tried again.

PY := .venv/bin/python
DEV := .venv/.stamp-dev
DOC := .venv/.stamp-docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help quickstart test test-slow mutants lint map bench calibrate docs pages dist clean

help:
	@echo "make quickstart  fit, predict and plot a first model"
	@echo "make test        the fast tests"
	@echo "make test-slow   the tests marked slow"
	@echo "make mutants     faults put into a copy of the package, and whether the tests see them"
	@echo "make lint        ruff: rules and format; imports between the rooms of the package"
	@echo "make map         the map of the code in CONTRIBUTING.md"
	@echo "make bench       the tables of the docs that need no data sets; DATA=folder, PEERS=python for the others (hours)"
	@echo "make calibrate   simulation-based calibration of every class: hours, goes on where it stopped"
	@echo "make docs        the documentation, in docs/_build/html"
	@echo "make pages       the pages of the documentation in a browser: Chromium and its driver"
	@echo "make dist        sdist and wheel in dist/, checked, and tried in an empty environment"
	@echo "make clean       remove what the other targets wrote, except .venv"

$(DEV): pyproject.toml
	@rm -f $@
	@$(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { \
		python=$${PYTHON:-$$(sh .ci/find-python)} && \
		echo "Creating .venv with $$python" && \
		"$$python" -m venv --clear .venv; }
	@echo "Installing into .venv (the first time takes a few minutes)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -e ".[test,jax]"
	@touch $@

$(DOC): $(DEV)
	@rm -f $@
	@$(PY) -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

quickstart: $(DEV)
	$(PY) examples/quickstart.py

test: $(DEV)
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" tests

test-slow: $(DEV)
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow tests

mutants: $(DEV)
	OPENBLAS_NUM_THREADS=1 nice -n 10 $(PY) tests/mutants.py

lint: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports --no-cache

map: $(DEV)
	$(PY) tests/code_map.py

bench: $(DEV)
	$(PY) tests/benchmarks/record.py $(if $(DATA),--data "$(DATA)") $(if $(PEERS),--peers "$(PEERS)")

calibrate: $(DEV)
	OPENBLAS_NUM_THREADS=1 $(PY) tests/calibrate.py

docs: $(DOC)
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

pages: docs
	$(PY) -m pip install --quiet --disable-pip-version-check selenium
	$(PY) tests/pages.py

# The version is that of the tag (v0.1.0) on the commit; without one, that of a development version.
dist:
	rm -rf dist build
	"$${PYTHON:-$$(sh .ci/find-python)}" -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine check-wheel-contents
	build/tools/bin/python -m build
	build/tools/bin/twine check --strict dist/*
	build/tools/bin/check-wheel-contents dist/*.whl
	build/tools/bin/python -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	build/empty/bin/python -I tests/installed.py README.md
	PYTENSOR_FLAGS=mode=FAST_COMPILE build/empty/bin/python -I tests/installed.py

clean:
	rm -rf build dist docs/_build docs/reference/generated .pytest_cache .ruff_cache
	find . -name .venv -prune -o -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +

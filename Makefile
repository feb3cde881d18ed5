# `make demo` and `make test` set up what they need; nothing is fetched from a model hub.
PYTHON ?= python3
VENV ?= .venv
BACKEND ?= $(if $(filter Linux,$(shell uname -s)),cpu,)
BIN := $(VENV)/bin
EXTRA := $(if $(BACKEND),[$(BACKEND)],)

.PHONY: demo test test-openai2 lint bench clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest

# The same client tests under the SDK's 2.x line.
test-openai2: $(VENV)-openai2/.dev
	$(VENV)-openai2/bin/python -m pytest --ignore=tests/engine --ignore=tests/builtin

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(VENV)-openai2

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.$(EXTRA)'
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q --group dev
	touch $@

$(VENV)-openai2/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)-openai2
	$(VENV)-openai2/bin/python -m pip install -q --upgrade 'pip>=25.1'
	$(VENV)-openai2/bin/python -m pip install -q -e '.$(EXTRA)' 'openai>=2.54,<3' --group dev
	touch $@

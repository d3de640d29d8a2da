# Short names for scripts/. Each target works on a fresh clone and twice in a row.
.PHONY: help serve test check bench bench-engine properties chaos lock clean
ARGS ?=

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

serve: ## set up and start the service on this machine (ARGS="--port 9000")
	@scripts/serve $(ARGS)

test: ## everything that must hold before a change goes in
	@scripts/test

check: ## formatting, lint, types and layers only
	@scripts/check

bench: ## measure the token path on this machine (ARGS="...")
	@scripts/bench $(ARGS)

bench-engine: ## compare the embedded engine with llama-server (ARGS="--quick")
	@scripts/bench engine $(ARGS)

properties: ## look for new counterexamples to the core's properties (ARGS="tests/core/test_quota.py")
	@scripts/setup dev && .venv/bin/python -m pytest --hypothesis-profile search -n auto $(or $(ARGS),tests/core)

chaos: ## kill, freeze, cut and fill a fleet, and check what its clients saw (ARGS="--seed 7")
	@scripts/chaos $(ARGS)

lock: ## resolve the dependencies anew and rewrite the lock files
	@scripts/lock

clean: ## remove what was built here (kept: .tertulia, the service's own data)
	rm -rf .venv .venv.lock .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist build

# Everything a newcomer runs: make demo, make test. All of it works in .venv, which `setup` makes.
PY := .venv/bin/python
READY := .venv/.installed
WORKERS ?= 2
SECONDS ?= 120
SEED ?= 1
KILLS ?= 1000

.PHONY: help setup demo test check bench faults bench-faults chaos clis bubblewrap clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(READY) ## make .venv and install what constraints.txt pins

$(READY): pyproject.toml constraints.txt .ci/setup
	@.ci/setup
	@touch $@

demo: $(READY) ## one wake from start to end, on real processes; REPO=/path reads another git repository
	@.venv/bin/heinzelwerk demo $(if $(REPO),--repo "$(REPO)")

test: $(READY) bubblewrap ## all tests, WORKERS=2 at a time
	@$(PY) -m pytest -q -n $(WORKERS) --dist worksteal

check: $(READY) ## format, lint, types, layers
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

bench: $(READY) ## every benchmark but bench-faults; each prints its medians and ranges
	@for file in $(filter-out benchmarks/bench_faults.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$file"; $(PY) -m "benchmarks.$$(basename "$$file" .py)" || exit 1; done

faults: $(READY) bubblewrap ## the fault suite, with its table of all rows
	@$(PY) -m tests.faults.table -n $(WORKERS)

bench-faults: $(READY) ## KILLS=1000 kills of turn workers under load; resumable, prints its seeds
	@$(PY) benchmarks/bench_faults.py --kills $(KILLS) --round 50 --state .bench-faults.jsonl

chaos: $(READY) ## random faults for SECONDS=120 from SEED=1, then the invariants
	@$(PY) -m tests.faults.chaos --seconds $(SECONDS) --seed $(SEED)

clis: ## the pinned coding-agent CLIs, into the cache directory of this user
	@deploy/install_agents.sh

bubblewrap:
	@.ci/bubblewrap

clean: ## away with everything that was made
	rm -rf .venv .heinzelwerk .mypy_cache .ruff_cache .pytest_cache .hypothesis .bench-faults.jsonl .import_linter_cache

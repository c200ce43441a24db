# The two commands for a fresh machine are `make run` and `make test`; `make` alone explains all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= runs/first
UPDATES ?=
TASKS ?=

.DEFAULT_GOAL := help
.PHONY: help venv run test check bench clean

help:
	@echo "agentbench_credit: which credit-assignment method to trust for long-horizon language-agent training"
	@echo
	@echo "  make run     train the embedded policy with GRPO and GEAR, evaluate both and the untrained one, print the"
	@echo "               table. Options: UPDATES=10 (training budget), TASKS=64 (first tasks only), OUT=$(OUT)"
	@echo "  make test    run all tests that need no optional component"
	@echo "  make check   lint, format, types, docstrings, spelling"
	@echo "  make bench   measure the speed of credit methods, beside their slow references, and of environments"
	@echo "  make venv    only install, with the tools of make test and make check"
	@echo "  make clean   remove caches and build leftovers; keeps $(VENV) and runs"
	@echo
	@echo "Everything is installed into $(VENV), about 2 GB, by pip with the versions of constraints.txt. Needs Python"
	@echo "3.11 or later as $(PYTHON), else say PYTHON=python3.12. A stopped make run goes on when it is called again."
	@echo "On Linux pip takes the CUDA build of torch, which is several GB larger; where there is no GPU, set"
	@echo "PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds first."

# Two stamps: what running needs, and what developing needs on top of it.
$(VENV)/run.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, say PYTHON=…" if sys.version_info < (3, 11) else 0)'
	@echo "installing into $(VENV): about 2 GB, a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report,dev]'
	@touch $@

venv: $(VENV)/dev.stamp

run: $(VENV)/run.stamp
	$(BIN)/python -m agentbench_credit.eval --method base grpo gear --out $(OUT) \
		$(if $(UPDATES),--updates $(UPDATES)) $(if $(TASKS),--limit $(TASKS))

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest

check: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy

bench: $(VENV)/dev.stamp
	$(BIN)/python -m agentbench_credit.bench
	PYTHONPATH=tests $(BIN)/python tests/bench_credit.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

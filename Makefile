PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help quickstart test lint clean

help:
	@echo "make quickstart   install, then pretrain, finetune and evaluate on a small fictional world (minutes)"
	@echo "make test         install, then run the tests"
	@echo "make lint         check the style"
	@echo "make clean        remove the virtual environment and the quickstart's results"

$(INSTALLED): setup.py constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "error: PosGPT needs Python 3.11 or newer; give one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[study,test]"
	touch $@

quickstart: $(INSTALLED)
	$(BIN)/python quickstart.py --output_dir runs/quickstart

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) runs/quickstart

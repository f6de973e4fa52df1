PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
POSITIONS ?= rotary
SEED ?= 42
PROCESSES ?= 2
INSTALLED := $(VENV)/.installed

.PHONY: help quickstart demo page reproduce assignment test lint docs clean

help:
	@echo "make quickstart   install, then train and evaluate on a small fictional world (minutes)"
	@echo "make demo         ask the quickstart's model in the browser (MODEL=folder CORPUS=wiki.txt: another model)"
	@echo "make page         write it as a page without a server into a new folder runs/page (MODEL=folder CORPUS=wiki.txt; needs npm)"
	@echo "make reproduce DATA=folder   train the windows recipe on the task's data and evaluate it (20 minutes to three hours;"
	@echo "                  POSITIONS=learned, SEED=1; after an interruption: ARGS='--resume_from_checkpoint last')"
	@echo "make assignment SEED=8472619350   for teachers: write an assignment on a world of its own (handout, starter, data, hidden tests)"
	@echo "make test         install, then run the tests (PROCESSES=2: how many side by side)"
	@echo "make lint         install, then check style and types"
	@echo "make docs         check the links of the documentation and build it as a site into runs/site"
	@echo "make clean        remove the virtual environment and the quickstart's results"

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "error: PosGPT needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[page,test]"
	touch $@

quickstart: $(INSTALLED)
	$(BIN)/posgpt quickstart --output_dir runs/quickstart

demo: $(INSTALLED)
	$(BIN)/posgpt demo $(if $(MODEL),--model_name_or_path "$(MODEL)") $(if $(CORPUS),--corpus_file "$(CORPUS)")

page: CORPUS ?= $(if $(MODEL),,runs/quickstart/world/wiki.txt)
page: $(INSTALLED)
	$(BIN)/posgpt page --model_name_or_path $(or $(MODEL),runs/quickstart/pretrain) $(if $(CORPUS),--corpus_file "$(CORPUS)") \
		--output_dir runs/page $(ARGS)

reproduce: $(INSTALLED)
	@test -n "$(DATA)" || { echo "error: name the folder with wiki.txt and the TSVs: make reproduce DATA=folder"; exit 1; }
	$(BIN)/python train_pretrain.py windows --position_embedding_type $(POSITIONS) --seed $(SEED) \
		--train_file "$(DATA)/wiki.txt" --questions_file "$(DATA)/birth_places_train.tsv" \
		--output_dir runs/reproduce_$(POSITIONS)_$(SEED) $(ARGS)
	$(BIN)/python evaluate_birthplace.py --model_name_or_path runs/reproduce_$(POSITIONS)_$(SEED) \
		--test_file "$(DATA)/birth_dev.tsv" --train_file "$(DATA)/birth_places_train.tsv" \
		--output_dir runs/reproduce_$(POSITIONS)_$(SEED)/eval

assignment: $(INSTALLED)
	@test "$(origin SEED)" != file || { echo "error: choose a long seed that nobody guesses: make assignment SEED=YOUR_NUMBER"; exit 1; }
	$(BIN)/posgpt assignment --seed $(SEED) --output_dir runs/assignment

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $@

# The links first: Zensical does not look at README.md, or for pictures.
docs: $(VENV)/.docs
	$(BIN)/python -m pytest --quiet tests/test_docs.py
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf $(VENV) runs/quickstart

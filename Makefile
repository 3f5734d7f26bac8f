# What one does with this repository. `make` alone prints the menu.

.DEFAULT_GOAL := help
.PHONY: help run build ui test all-tests faults lint fmt simulate bench release-fixture conformance fuzz guest guest-test guest-debian test-debian clean

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Server and tests at once: built apart, they would have other features of the same libraries, and each its own copy.
BUILD_TO_TEST = $(CARGO) build --workspace --all-targets
# `croft version` tells it. An archive of the source has no history to ask.
run build bench: export CROFT_COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# Where `make run` keeps everything, and more arguments for the server.
DATA ?= data
ARGS ?=
# The interpreter with the Kubernetes client that the tests use.
export CROFT_PYTHON ?= $(if $(filter /%,$(TARGET)),,$(CURDIR)/)$(TARGET)/venv/bin/python

help: ## Print this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

run: ## Build the server and start it, with its data in ./data (DATA=, ARGS=)
	@scripts/install-packages run
	@scripts/ui build
	$(CARGO) build --release
	@$(MAKE) --no-print-directory guest || echo "The small guest could not be built: croft demo will ask for an image." >&2
	@[ ! -e "$(TARGET)/guest/tiny.qcow2" ] || export CROFT_FIRST_IMAGE="$${CROFT_FIRST_IMAGE:-$(TARGET)/guest/tiny.qcow2}"; \
		exec "$(TARGET)/release/croft" server --data-dir "$(DATA)" $(ARGS)

build: ## Build the server for release, with the page in it
	@scripts/install-packages run
	@scripts/ui build
	$(CARGO) build --release

ui: ## Build the web page into ui/dist, if it changed
	@scripts/ui build

test: ## Run every check and every test, as root (by sudo, if need be)
	@scripts/as-root $(MAKE) --no-print-directory all-tests

all-tests:
	@scripts/install-packages test
	@scripts/python-venv "$(TARGET)/venv"
	@scripts/chrony "$(TARGET)/chrony"
	@scripts/oidc-provider "$(TARGET)/oidc-provider"
	$(MAKE) --no-print-directory lint
	@scripts/ui test
	@scripts/ui build
	@$(MAKE) --no-print-directory guest
	$(BUILD_TO_TEST)
	@scripts/ui e2e
	@scripts/cargo-test

faults: ## Go through the faults of etcd and kills of the server ten times (ROUNDS=, CROFT_FAULTS_SEED=)
	@scripts/install-packages test
	$(BUILD_TO_TEST)
	CROFT_FAULTS_ROUNDS=$(or $(ROUNDS),10) $(CARGO) test --workspace --test etcd_faults --test crash

lint: ## Check formatting, lints, layers and house rules
	@scripts/ui lint
	$(CARGO) fmt --all --check
	$(CARGO) xtask check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@scripts/optional cargo-deny $(CARGO) deny --workspace check bans licenses sources

fmt: ## Format the source
	$(CARGO) fmt --all

simulate: ## Run server and controllers through 10,000 seeds of misfortune (SEEDS=, FIRST=; SEED= replays one, step by step)
	@CROFT_SIMULATION_SEEDS="$(or $(SEEDS),10000)" CROFT_SIMULATION_FIRST="$(or $(FIRST),0)" $(if $(SEED),CROFT_SIMULATION_SEED="$(SEED)") \
		$(CARGO) test --release -p simulation --test simulation -- seeds_hold

bench: ## Measure against etcd, nginx, QEMU alone, zstd and restic, and print the table (ARGS="quick api fairness hardening harvester machines guests images backups page")
	@scripts/install-packages bench
	@scripts/ui build
	$(CARGO) build --release -p croft -p croft-e2e
	"$(TARGET)/release/bench" $(ARGS)

release-fixture: ## Keep a data directory as this release writes it, for the tests of later ones (docs/upgrades.md)
	@scripts/install-packages test
	$(BUILD_TO_TEST)
	@scripts/release-fixture

conformance: ## Run the Go clients; with KUBE_APISERVER=<binary> compare answers too (needs Go)
	@scripts/install-packages test
	$(BUILD_TO_TEST)
	@scripts/conformance

fuzz: ## Try every parser with made-up input, guided by coverage (SECONDS=60 each, ARGS="json_body dns")
	@scripts/install-packages run
	@scripts/fuzz "$(or $(SECONDS),60)" $(ARGS)

guest: ## Build the small guest that the tests boot (docs/guest.md)
	@scripts/install-packages guest
	@images/tiny/build "$(TARGET)/guest/tiny.qcow2"

guest-test: guest ## Boot that guest, by BIOS and by UEFI, and try all it promises
	@images/tiny/test "$(TARGET)/guest/tiny.qcow2"

guest-debian: ## Build a full Debian guest with cloud-init, for the slower tests (needs root)
	@scripts/install-packages guest-debian
	@images/debian/build "$(TARGET)/guest/debian.qcow2"

test-debian: guest guest-debian ## Run the slower tests, with that Debian guest
	@scripts/install-packages test
	$(BUILD_TO_TEST)
	$(CARGO) test --workspace --features croft-e2e/debian --test vm_debian

clean: ## Remove what was built (not the data)
	$(CARGO) clean

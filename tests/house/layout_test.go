package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestLayoutImportsPointDown holds every room to the rooms below it. A new room gets its line here.
func TestLayoutImportsPointDown(t *testing.T) {
	t.Parallel()
	core := []string{"fferr", "db", "normalise", "policy", "state", "id/wire", "id"}
	below := map[string][]string{
		"":                   {}, // doc.go
		"id":                 {"internal/hash"},
		"id/wire":            {"id", "internal/hash"},
		"state":              {},
		"policy":             {"id"},
		"observe":            {"id"},
		"fferr":              {"id", "id/wire", "state"},
		"normalise":          {"state"},
		"db":                 {"id", "internal/bytea"},
		"schema":             {"db", "fferr", "id", "internal/adopt", "internal/document", "internal/hash", "internal/postgres", "internal/rights"}, // a conversion uses the statements of the background work
		"internal/bytea":     {},
		"internal/rights":    {},
		"internal/notify":    {"internal/warn"},
		"internal/pgtx":      {"db"},
		"internal/outbox":    {"db", "id", "internal/core", "internal/notify", "internal/pgtx", "internal/warn", "state"},
		"internal/streams":   {"internal/notify", "internal/warn"},
		"internal/adopt":     {"db"},
		"engine":             append([]string{"internal/adopt", "internal/budgets", "internal/bytea", "internal/condition", "internal/core", "internal/document", "internal/fair", "internal/gate", "internal/notify", "internal/pgtx", "internal/postgres", "internal/rights", "internal/scan", "observe"}, core...),
		"internal/core":      append([]string{"internal/budgets", "internal/document", "internal/fair", "internal/gate", "internal/notify", "internal/pgtx", "observe"}, core...),
		"budget":             append([]string{"engine", "internal/budgets", "internal/core", "internal/pgtx"}, core...),
		"internal/upkeep":    append([]string{"engine", "internal/budgets", "internal/condition", "internal/core", "internal/document", "internal/gate", "internal/outbox", "internal/pgtx", "internal/scan", "internal/schedules"}, core...),
		"internal/budgets":   {},
		"internal/fair":      {},
		"internal/gate":      {},
		"internal/scan":      {"id"},
		"internal/condition": {},
		"internal/cron":      {},
		"waitpoint":          append([]string{"engine"}, core...),
		"schedule":           append([]string{"engine", "internal/core", "internal/schedules"}, core...),
		"internal/schedules": append([]string{"internal/core", "internal/cron"}, core...),
		"limit":              append([]string{"engine", "internal/core"}, core...),
		"explain":            append([]string{"engine", "internal/budgets", "internal/core"}, core...),
		"interop":            append([]string{"engine", "internal/core", "internal/gate", "internal/pgtx"}, core...),
		"operator":           append([]string{"engine", "internal/bytea", "internal/core", "internal/document", "internal/pgtx"}, core...),
		"stream":             append([]string{"engine", "internal/core", "internal/pgtx", "internal/streams"}, core...),
		"events":             append([]string{"engine", "internal/backoff", "internal/core", "internal/document", "internal/outbox", "internal/pgtx", "internal/warn"}, core...),
		"reconcile":          append([]string{"engine", "internal/backoff", "internal/core", "internal/document", "internal/upkeep", "internal/warn", "observe"}, core...),
		"worker":             append([]string{"budget", "engine", "internal/backoff", "internal/core", "internal/document", "internal/pgtx", "internal/warn", "operator", "reconcile", "stream", "internal/schedules"}, core...), // runs one beside its handlers, or checks for one
		"internal/backoff":   {},
		"internal/hash":      {},
		"internal/postgres":  {},
		"internal/warn":      {},
		"internal/document":  {"policy", "id"},
		"console":            {"budget", "engine", "events", "explain", "fferr", "id", "internal/drawing", "limit", "operator", "schedule", "schema", "state", "stream"},
		"ffotel":             {"budget", "engine", "events", "id", "limit", "observe", "operator", "reconcile", "worker"},
		"fftest":             {"engine", "events", "fferr", "id", "internal/core", "internal/pgtest", "operator", "policy", "reconcile", "state", "worker"},
		"internal/drawing":   {"engine", "policy", "state"},
		"internal/pgserver":  {},
		"internal/pgtest":    {"internal/pgserver", "internal/pgtest/container", "schema"},

		"ffotel/internal/board":     {"ffotel"},
		"internal/drawing/samples":  {"internal/drawing"},
		"internal/pgtest/container": {},
		"internal/pgtest/progress":  {},
	}
	// Nothing may import these, so they may import anything.
	top := []string{"bench", "cmd/", "examples/", "tests"}

	for _, line := range checkout.List(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, fixture.Module+"/...") {
		paths := strings.Fields(line)
		room := checkout.Folder(paths[0])
		allowed, known := below[room]
		if room == "review" || strings.HasPrefix(room, "review/") {
			// The review of schema changes knows neither the engine nor the schema: it reviews any project. Its command is
			// on top of it.
			for _, path := range paths[1:] {
				imported := checkout.Folder(path)
				if checkout.Own(path) && imported != "internal/pgserver" && imported != "review" && !strings.HasPrefix(imported, "review/") {
					t.Errorf("room %q imports %q: the review knows nothing of this library", room, imported)
				}
			}
			continue
		}
		if !known {
			isTop := slices.ContainsFunc(top, func(prefix string) bool { return strings.HasPrefix(room, prefix) })
			if !isTop {
				t.Errorf("room %s is not on the drawing", room)
			}
			continue
		}
		for _, path := range paths[1:] {
			if !checkout.Own(path) {
				continue
			}
			if imported := checkout.Folder(path); !slices.Contains(allowed, imported) {
				t.Errorf("room %q imports %q, which is not below it", room, imported)
			}
		}
	}
}

// TestLayoutUserDependencies checks that this library depends only on the standard library, pgx with its own dependencies,
// google/uuid, and the parser of cron expressions, which depends on nothing. The tests beside its packages must keep to the
// same list, because their requirements become the user's. Tests that need a database or rapid belong to the tests module.
func TestLayoutUserDependencies(t *testing.T) {
	t.Parallel()
	allowed := []string{
		fixture.Module,
		"github.com/google/uuid",
		"github.com/jackc/pgx/v5",
		"github.com/jackc/pgpassfile",
		"github.com/jackc/pgservicefile",
		"github.com/jackc/puddle/v2",
		"github.com/netresearch/go-cron",
		"golang.org/x/sync",
		"golang.org/x/text",
	}
	for _, line := range checkout.List(t, "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...") {
		if line != "" && !slices.Contains(allowed, line) {
			t.Errorf("the root's module depends on %s", line)
		}
	}
}

// TestLayoutDirectRequirements holds what the library and its telemetry require themselves, which becomes the user's.
func TestLayoutDirectRequirements(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string][]string{
		"":        {"github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/jackc/puddle/v2", "github.com/netresearch/go-cron"},
		"console": {fixture.Module, fixture.Module + "/internal/drawing", "github.com/google/uuid", "github.com/jackc/pgx/v5"},
		"ffotel": {
			fixture.Module, "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace",
		},
	} {
		name := filepath.Join(checkout.Root(t), folder, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, require := range file.Require {
			if !require.Indirect {
				got = append(got, require.Mod.Path)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s requires %q, want %q", name, got, want)
		}
	}
}

// TestLayoutCommandHasNoContainers keeps the container library, and all that comes with it, out of ff.
func TestLayoutCommandHasNoContainers(t *testing.T) {
	t.Parallel()
	for _, path := range checkout.List(t, "-deps", "./cmd/ff") {
		if strings.HasPrefix(path, "github.com/testcontainers/") || strings.HasPrefix(path, "github.com/moby/") {
			t.Errorf("./cmd/ff depends on %s", path)
		}
	}
}

// TestEveryFolderOfQueriesIsAPackage: statements lie in the folder of the package that sends them.
func TestEveryFolderOfQueriesIsAPackage(t *testing.T) {
	t.Parallel()
	root := checkout.Root(t)
	folders, err := filepath.Glob(filepath.Join(root, "queries", "*", "*.sql"))
	if err != nil || len(folders) < 50 {
		t.Fatalf("%d files of queries (%v)", len(folders), err)
	}
	for _, path := range folders {
		room := filepath.Base(filepath.Dir(path))
		if room == "include" {
			continue
		}
		inRoot, _ := filepath.Glob(filepath.Join(root, room, "*.go"))
		below, _ := filepath.Glob(filepath.Join(root, "internal", room, "*.go"))
		if len(inRoot)+len(below) == 0 {
			t.Errorf("there is no package for queries/%s/%s", room, filepath.Base(path))
		}
	}
	if flat, _ := filepath.Glob(filepath.Join(root, "queries", "*.sql")); len(flat) > 0 {
		t.Errorf("%s belongs into the folder of a package", flat)
	}
}

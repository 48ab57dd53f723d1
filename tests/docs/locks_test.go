package docs

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/flowfabric/flowfabric-go/tests/internal/locks"
	"github.com/flowfabric/flowfabric-go/tests/internal/needs"
)

// conversion uses statements outside of packages engine and events.
const conversion = "schema.Adopt"

// readHeaders returns the headers of all queries.
func readHeaders(t *testing.T) []locks.Header {
	t.Helper()
	headers, err := locks.Headers(root)
	if err != nil {
		t.Fatal(err)
	}
	return headers
}

// readLevels returns the levels of docs/internals/locks.md.
func readLevels(t *testing.T) []locks.Level {
	t.Helper()
	levels := locks.Levels(readDocument(t, locks.Path).source)
	if len(levels) < 20 {
		t.Fatalf("%s has %d levels of locks", locks.Path, len(levels))
	}
	return levels
}

// TestDocsHaveTheLocksOfOperations: docs/internals/locks.md has the tables that follow from the headers of the queries.
func TestDocsHaveTheLocksOfOperations(t *testing.T) {
	t.Parallel()
	page, err := locks.Page(root)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, readDocument(t, locks.Path).source) {
		t.Errorf("%s is not what `make generate` writes", locks.Path)
	}
}

// TestDocsSayHowOperationsTreatLockedItems: an operation that waits for no lock isn't a call that waits, so it has a row
// that says how it treats a locked item.
func TestDocsSayHowOperationsTreatLockedItems(t *testing.T) {
	t.Parallel()
	page := readDocument(t, locks.Path)
	locking, treated := make(map[string]bool), make(map[string]bool)
	for _, row := range page.table("Operation", "A locked item") {
		for name := range strings.SplitSeq(row[0], ", ") {
			treated[name] = true
		}
	}
	for _, row := range page.table("Operation", "Skips", "Waits for") {
		locking[row[0]] = true
		if row[2] == "" && !treated[row[0]] {
			t.Errorf("%s skips %s, waits for nothing, and nothing says how it treats a locked item", row[0], row[1])
		}
	}
	for name := range treated {
		if !locking[name] {
			t.Errorf("the page says how %s treats a locked item, and no statement of it skips or waits", name)
		}
	}
}

// TestHeldRowsAreLockedBefore: if a statement finds rows locked, another statement of the same operation has locked them.
func TestHeldRowsAreLockedBefore(t *testing.T) {
	t.Parallel()
	headers := readHeaders(t)
	locked := make(map[string]map[string]bool) // levels by operation
	for _, h := range headers {
		for _, user := range h.Users {
			if locked[user] == nil {
				locked[user] = make(map[string]bool)
			}
			for _, lock := range h.Locks {
				if lock.How == locks.Waits || lock.How == locks.Skips {
					locked[user][lock.Level] = true
				}
			}
		}
	}
	for _, h := range headers {
		for _, lock := range h.Locks {
			level := lock.Level
			if level == "queue" {
				level = "L1" // goes with its execution's row
			}
			for _, user := range h.Users {
				if lock.How == locks.Held && user != conversion && !locked[user][level] {
					t.Errorf("%s finds %s locked, which %s locks nowhere", h.Name, lock.Level, user)
				}
			}
		}
	}
}

// TestDocsNameTheUsersOfQueries holds the headers to the code: each operation named in one exists and leads to the query.
func TestDocsNameTheUsersOfQueries(t *testing.T) {
	t.Parallel()
	engine := sources(t)["engine"]
	graph := newCallGraph(engine)
	maps.Copy(graph, newCallGraph(sources(t)["internal/core"]))
	for _, method := range []string{"Register", "Copy"} {
		graph["("+module+"/internal/core.Creator[S any])."+method] = map[string]bool{"(" + module + "/engine.creator)." + method: true}
	}
	for _, room := range append([]string{"internal/upkeep"}, needs.Capabilities...) {
		maps.Copy(graph, newCallGraph(sources(t)[room]))
	}
	// Creations run the steps that New gives to an engine.
	for _, runs := range []string{"createExecutions", "besideInsert"} {
		graph["(*"+module+"/engine.Engine)."+runs][module+"/engine.creationSteps"] = true
	}
	events := sources(t)["events"]
	readers := []*packages.Package{events, sources(t)["internal/outbox"]} // which call queries by values of functions
	for _, h := range readHeaders(t) {
		for _, user := range h.Users {
			if reader, ok := strings.CutPrefix(user, "events."); ok {
				if events.Types.Scope().Lookup(reader) == nil {
					t.Errorf("%s is used by %s, which does not exist", h.Name, user)
				}
				if !slices.ContainsFunc(readers, func(p *packages.Package) bool { return mentions(p, h.Name) }) {
					t.Errorf("%s is used by nobody who reads events", h.Name)
				}
				continue
			}
			name, ok := strings.CutPrefix(user, "engine.")
			if user == conversion {
				continue
			}
			full, found := operation(engine, name)
			if job, isJob := strings.CutPrefix(user, "upkeep."); isJob {
				full, ok = "(*"+module+"/internal/upkeep.Upkeep)."+job, true
				found = graph[full] != nil
			}
			if room, _, _ := strings.Cut(user, "."); slices.Contains(needs.Capabilities, room) {
				full, ok = module+"/"+user, true
				found = graph[full] != nil
			}
			if !ok || !found {
				t.Errorf("%s is used by %s, which does not exist", h.Name, user)
				continue
			}
			if !graph.reached(full)[h.Name] {
				t.Errorf("%s is not used by %s", h.Name, user)
			}
		}
	}
}

// mentions says whether a package refers to a query.
func mentions(p *packages.Package, query string) bool {
	for _, object := range p.TypesInfo.Uses {
		if object.Name() == query && object.Pkg() != nil && object.Pkg().Name() == "db" {
			return true
		}
	}
	return false
}

var (
	written   = regexp.MustCompile(`(?m)^\s*(?:INSERT INTO|DELETE FROM|UPDATE) (ffx?_\w+)`)
	calling   = regexp.MustCompile(`\bffx_(?:deliver|suspend|resume|resume_caller|take_signal|advance_sequence)\(`) // functions that write
	rowLock   = regexp.MustCompile(`(?m)\bFOR (?:NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)\b.*$`)
	advisory  = regexp.MustCompile(`pg_(try_)?advisory_xact_lock`)
	waitingOn = regexp.MustCompile(`pg_advisory_xact_lock|(?m)^LOCK TABLE|ffx_deliver\(`)
)

// TestDocsNameTheLocksOfStatements compares the header of each query with its statement: a table that is written or locked
// has its level there, and rows are passed over or waited for as it says.
func TestDocsNameTheLocksOfStatements(t *testing.T) {
	t.Parallel()
	levelsOf := make(map[string][]string) // the levels that a row of a table may belong to
	for _, level := range readLevels(t) {
		for _, table := range level.Tables {
			levelsOf[table] = append(levelsOf[table], level.Name)
		}
	}
	for _, h := range readHeaders(t) {
		stated := make(map[string][]string) // how, by level
		var how []string
		for _, lock := range h.Locks {
			stated[lock.Level] = append(stated[lock.Level], lock.How)
			how = append(how, lock.How)
		}
		for _, match := range written.FindAllStringSubmatch(h.Body, -1) {
			levels, known := levelsOf[match[1]]
			if !known {
				t.Errorf("%s writes %s, which is beside no level of %s", h.Name, match[1], locks.Path)
			} else if !slices.ContainsFunc(levels, func(level string) bool { return stated[level] != nil }) {
				t.Errorf("%s writes %s and names none of %v", h.Name, match[1], levels)
			}
		}
		clauses := rowLock.FindAllString(h.Body, -1)
		passing := slices.ContainsFunc(clauses, func(clause string) bool { return strings.Contains(clause, "SKIP LOCKED") })
		queueing := slices.ContainsFunc(clauses, func(clause string) bool { return !strings.Contains(clause, "SKIP LOCKED") })
		passing = passing || strings.Contains(h.Body, "pg_try_advisory_xact_lock") || strings.Contains(h.Body, "ffx_advance_sequence(")
		queueing = queueing || waitingOn.MatchString(h.Body)
		if passing != slices.Contains(how, locks.Skips) {
			t.Errorf("%s: skips what is locked: %v, by its header: %v", h.Name, passing, !passing)
		}
		if queueing && !slices.Contains(how, locks.Waits) {
			t.Errorf("%s waits for rows, and does not say so", h.Name)
		}
		changes := len(clauses) > 0 || advisory.MatchString(h.Body) || waitingOn.MatchString(h.Body) || written.MatchString(h.Body) || calling.MatchString(h.Body)
		if changes != (len(h.Locks) > 0) {
			t.Errorf("%s: locks or writes: %v, by its header: %v", h.Name, changes, !changes)
		}
	}
}

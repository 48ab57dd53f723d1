package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// queryHeader has the users and locks in the header of a query, and the statement below it.
type queryHeader struct {
	name  string
	users []string // operations of package engine, and of others with their package
	locks []queryLock
	body  string
}

// queryLock is one level that a statement locks: "L1 skips (execution rows FOR NO KEY UPDATE)".
type queryLock struct{ level, how string }

// How a statement deals with a level. Others may hold the rows it waits for or skips; rows that are held were locked
// by the operation before; new rows are invisible to others.
const (
	waits, skips, held, isNew = "waits", "skips", "held", "new"
)

var (
	usersInHeader = regexp.MustCompile(`(?m)^-- Used by: ((?:.|\n-- )*?)\.\n`)
	locksInHeader = regexp.MustCompile(`(?m)^-- Locks: ((?:.|\n-- )*?)\n[^-]`)
	oneLock       = regexp.MustCompile(`^(L[0-7]|keys|lanes|pauses|queue|retention|timers|jobs|consumers|keystore|schedules|sequences|gates|limits|fair|workers) (waits|skips|held|new)\b`)
	remark        = regexp.MustCompile(`\([^()]*(?:\([^()]*\)[^()]*)*\)`)
)

// conversion uses statements outside of packages engine and events.
const conversion = "schema.Adopt"

// readHeaders returns the headers of all queries.
func readHeaders(t *testing.T) []queryHeader {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "db", "sql", "*.sql"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files of queries, error %v", len(paths), err)
	}
	var headers []queryHeader
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range strings.Split(string(file), "-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			h := queryHeader{name: name}
			users, locks := usersInHeader.FindStringSubmatch(query), locksInHeader.FindStringSubmatch(query)
			if users == nil || locks == nil {
				t.Errorf("%s: the header lacks a line of who uses it or of what it locks", name)
				continue
			}
			for user := range strings.SplitSeq(strings.ReplaceAll(users[1], "\n-- ", " "), ", ") {
				operation, ok := strings.CutPrefix(user, "engine.")
				if user == conversion {
					continue // alone on its database
				}
				if !ok && !strings.HasPrefix(user, "events.") {
					t.Errorf("%s is used by %q, which is not an operation of package engine or events", name, user)
				}
				h.users = append(h.users, operation)
			}
			text := remark.ReplaceAllString(strings.ReplaceAll(locks[1], "\n-- ", " "), "")
			text, _, _ = strings.Cut(text+" ", ". ")
			text = strings.TrimSuffix(strings.TrimSpace(text), ".")
			if text != "none" && !strings.HasPrefix(text, "none;") {
				for clause := range strings.SplitSeq(text, "; ") {
					lock := oneLock.FindStringSubmatch(clause)
					if lock == nil {
						t.Errorf("%s: cannot read %q of its locks", name, clause)
						continue
					}
					h.locks = append(h.locks, queryLock{lock[1], lock[2]})
				}
			}
			for line := range strings.Lines(query) {
				if !strings.HasPrefix(strings.TrimSpace(line), "--") {
					h.body += line
				}
			}
			headers = append(headers, h)
		}
	}
	return headers
}

// lockRow is the entry of an operation in docs/internals/locks.md.
type lockRow struct{ skips, waits map[string]bool }

func documentedLocks(t *testing.T) map[string]lockRow {
	t.Helper()
	set := func(cell string) map[string]bool {
		levels := make(map[string]bool)
		for level := range strings.SplitSeq(cell, ", ") {
			if level != "" {
				levels[level] = true
			}
		}
		return levels
	}
	rows := make(map[string]lockRow)
	for _, cells := range readDocument(t, "docs/internals/locks.md").table("Operation", "Skips", "Waits for") {
		for name := range strings.SplitSeq(cells[0], ", ") {
			rows[name] = lockRow{skips: set(cells[1]), waits: set(cells[2])}
		}
	}
	if len(rows) == 0 {
		t.Fatal("docs/internals/locks.md has no table of locks")
	}
	return rows
}

// TestDocsNameTheLocksOfOperations compares the entry of each operation in docs/internals/locks.md with the headers of
// the queries that it uses.
func TestDocsNameTheLocksOfOperations(t *testing.T) {
	t.Parallel()
	documented, stated := documentedLocks(t), make(map[string]lockRow)
	headers := readHeaders(t)
	for _, h := range headers {
		for _, user := range h.users {
			row, ok := stated[user]
			if !ok {
				row = lockRow{skips: make(map[string]bool), waits: make(map[string]bool)}
			}
			for _, lock := range h.locks {
				switch lock.how {
				case waits:
					row.waits[lock.level] = true
				case skips:
					row.skips[lock.level] = true
				}
			}
			if len(row.waits)+len(row.skips) > 0 {
				stated[user] = row
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stated)) {
		row, ok := documented[name]
		if !ok {
			t.Errorf("%s locks %v and %v, and is not in the table", name, slices.Sorted(maps.Keys(stated[name].skips)),
				slices.Sorted(maps.Keys(stated[name].waits)))
			continue
		}
		if !maps.Equal(row.skips, stated[name].skips) {
			t.Errorf("%s skips %v by the table, %v by its queries", name, slices.Sorted(maps.Keys(row.skips)),
				slices.Sorted(maps.Keys(stated[name].skips)))
		}
		if !maps.Equal(row.waits, stated[name].waits) {
			t.Errorf("%s waits for %v by the table, %v by its queries", name, slices.Sorted(maps.Keys(row.waits)),
				slices.Sorted(maps.Keys(stated[name].waits)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := stated[name]; !ok {
			t.Errorf("%s is in the table, and no query that locks says that it is used by it", name)
		}
	}
	// If a statement finds rows locked, another statement of the same operation has locked them.
	for _, h := range headers {
		for _, lock := range h.locks {
			if lock.how != held {
				continue
			}
			level := lock.level
			if level == "queue" {
				level = "L1" // goes with its execution's row
			}
			for _, user := range h.users {
				if row := stated[user]; !row.waits[level] && !row.skips[level] {
					t.Errorf("%s finds %s locked, which %s locks nowhere", h.name, lock.level, user)
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
	// Tails read by the hub, which calls values of functions.
	graph["(*"+module+"/engine.Engine).TailStream"][module+"/engine.newStreamHub"] = true
	// Creations run the steps that New gives to an engine.
	for _, runs := range []string{"createExecutions", "besideInsert"} {
		graph["(*"+module+"/engine.Engine)."+runs][module+"/engine.creationSteps"] = true
	}
	events := sources(t)["events"]
	readers := []*packages.Package{events, sources(t)["internal/outbox"]} // which call queries by values of functions
	for _, h := range readHeaders(t) {
		for _, user := range h.users {
			if reader, ok := strings.CutPrefix(user, "events."); ok {
				if events.Types.Scope().Lookup(reader) == nil {
					t.Errorf("%s is used by %s, which does not exist", h.name, user)
				}
				if !slices.ContainsFunc(readers, func(p *packages.Package) bool { return mentions(p, h.name) }) {
					t.Errorf("%s is used by nobody who reads events", h.name)
				}
				continue
			}
			full, ok := operation(engine, user)
			if !ok {
				t.Errorf("%s is used by engine.%s, which does not exist", h.name, user)
				continue
			}
			if !graph.reached(full)[h.name] {
				t.Errorf("%s is not used by engine.%s", h.name, user)
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

// levelsOf are the levels that a row of a table may belong to.
var levelsOf = map[string][]string{
	"ff_flow_core":              {"L0"},
	"ff_flow_summary":           {"L0"},
	"ff_cancel_backlog":         {"L0"},
	"ff_cancel_backlog_member":  {"L0"},
	"ff_cancel_dispatch_outbox": {"L0"},
	"ffx_pruned_member":         {"L0"},
	"ff_exec_core":              {"L1", "L4"},
	"ff_attempt":                {"L2", "L4"},
	"ff_stream_frame":           {"L2"},
	"ff_stream_meta":            {"L2"},
	"ff_stream_summary":         {"L2"},
	"ff_edge":                   {"L3"},
	"ff_edge_group":             {"L3"},
	"ff_claim_grant":            {"L5"},
	"ff_suspension_current":     {"L5"},
	"ff_waitpoint_pending":      {"L5"},
	"ffx_signal_key":            {"L5"},
	"ffx_step":                  {"L2"},
	"ffx_call_end":              {"L7"},
	"ff_quota_policy":           {"L6"},
	"ffx_limit":                 {"limits"},
	"ffx_limit_change":          {"limits"},
	"ffx_gate":                  {"gates"},
	"ffx_gate_use":              {"gates"},
	"ff_budget_policy":          {"L6"},
	"ff_budget_usage":           {"L6"},
	"ff_budget_usage_by_exec":   {"L6"},
	"ff_budget_usage_dedup":     {"L6"},
	"ffx_budget_reservation":    {"L6"},
	"ffx_budget_admission":      {"L6"},
	"ff_completion_event":       {"L7"},
	"ff_lease_event":            {"L7"},
	"ff_operator_event":         {"L7"},
	"ff_signal_event":           {"L7"},
	"ff_pending_cancel_groups":  {"L7"},
	"ffx_create_dedup":          {"keys"},
	"ffx_business_key":          {"keys"},
	"ffx_unique":                {"keys"},
	"ff_lane_registry":          {"lanes"},
	"ffx_ready":                 {"queue"},
	"ffx_blocked":               {"queue"},
	"ffx_waiting":               {"queue"},
	"ffx_pause":                 {"pauses"},
	"ffx_lease_timer":           {"timers"},
	"ffx_retention":             {"retention"},
	"ffx_retention_timer":       {"retention"},
	"ffx_retention_period":      {"retention"},
	"ffx_lane_retention":        {"retention"},
	"ffx_job":                   {"jobs"},
	"ffx_outbox_consumer":       {"consumers"},
	"ffx_outbox_set_aside":      {"consumers"},
	"ff_waitpoint_hmac":         {"keystore"},
	"ffx_schedule":              {"schedules"},
	"ffx_sequence":              {"sequences"},
	"ffx_sequence_end":          {"L7"},
	"ffx_sequence_member":       {"sequences"},
	"ffx_fair_place":            {"fair"},
	"ff_worker_registry":        {"workers"},
	"ff_worker_registry_event":  {"workers"},
}

var (
	written   = regexp.MustCompile(`(?m)^\s*(?:INSERT INTO|DELETE FROM|UPDATE) (ffx?_\w+)`)
	calling   = regexp.MustCompile(`\bffx_(?:deliver|suspend|resume|resume_caller|take_signal|advance_sequence|seat_again)\(`) // functions that write
	rowLock   = regexp.MustCompile(`(?m)\bFOR (?:NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)\b.*$`)
	advisory  = regexp.MustCompile(`pg_(try_)?advisory_xact_lock`)
	waitingOn = regexp.MustCompile(`pg_advisory_xact_lock|(?m)^LOCK TABLE|ffx_(deliver|seat_again)\(`)
)

// TestDocsNameTheLocksOfStatements compares the header of each query with its statement: a table that is written or locked
// has its level there, and rows are passed over or waited for as it says.
func TestDocsNameTheLocksOfStatements(t *testing.T) {
	t.Parallel()
	for _, h := range readHeaders(t) {
		stated := make(map[string][]string) // how, by level
		var how []string
		for _, lock := range h.locks {
			stated[lock.level] = append(stated[lock.level], lock.how)
			how = append(how, lock.how)
		}
		for _, match := range written.FindAllStringSubmatch(h.body, -1) {
			levels, known := levelsOf[match[1]]
			if !known {
				t.Errorf("%s writes %s, whose level nobody knows", h.name, match[1])
			} else if !slices.ContainsFunc(levels, func(level string) bool { return stated[level] != nil }) {
				t.Errorf("%s writes %s and names none of %v", h.name, match[1], levels)
			}
		}
		clauses := rowLock.FindAllString(h.body, -1)
		passing := slices.ContainsFunc(clauses, func(clause string) bool { return strings.Contains(clause, "SKIP LOCKED") })
		queueing := slices.ContainsFunc(clauses, func(clause string) bool { return !strings.Contains(clause, "SKIP LOCKED") })
		passing = passing || strings.Contains(h.body, "pg_try_advisory_xact_lock") || strings.Contains(h.body, "ffx_advance_sequence(")
		queueing = queueing || waitingOn.MatchString(h.body)
		if passing != slices.Contains(how, skips) {
			t.Errorf("%s: skips what is locked: %v, by its header: %v", h.name, passing, !passing)
		}
		if queueing && !slices.Contains(how, waits) {
			t.Errorf("%s waits for rows, and does not say so", h.name)
		}
		locks := len(clauses) > 0 || advisory.MatchString(h.body) || waitingOn.MatchString(h.body) || written.MatchString(h.body) || calling.MatchString(h.body)
		if locks != (len(h.locks) > 0) {
			t.Errorf("%s: locks or writes: %v, by its header: %v", h.name, locks, !locks)
		}
	}
}

// TestDocsNameTheLevelOfEachTable: docs/internals/locks.md names each table that is locked, beside its level.
func TestDocsNameTheLevelOfEachTable(t *testing.T) {
	t.Parallel()
	document := readDocument(t, "docs/internals/locks.md")
	table := regexp.MustCompile(`\bffx?_\w+`)
	named := make(map[string]bool)
	for _, row := range document.table("Level", "What", "Lock") {
		for _, name := range table.FindAllString(row[1]+" "+row[2], -1) {
			named[name] = true
			if !slices.Contains(levelsOf[name], row[0]) {
				t.Errorf("%s stands beside %s, and is of %v", name, row[0], levelsOf[name])
			}
		}
	}
	for name, levels := range levelsOf {
		if strings.HasPrefix(levels[0], "L") != named[name] || !strings.Contains(string(document.source), "`"+name+"`") {
			t.Errorf("%s, of %v, is not named beside it", name, levels)
		}
	}
}

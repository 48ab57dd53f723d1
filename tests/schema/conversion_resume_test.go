package schema_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/schema"
)

// harm is a way in which a conversion is interrupted.
type harm string

const (
	cancelled    harm = "its context ends"
	cut          harm = "its connection is cut"
	lockLost     harm = "the connection that holds the lock is cut"
	bothCut      harm = "all its connections are cut"
	adoptingName      = "adopting"
)

// Interrupted at any of its reported steps, and continued, a conversion ends like one without interruptions: no row
// is lost or doubled.
func TestAdoptContinuesWhereverItWasInterrupted(t *testing.T) {
	t.Parallel()
	wholeURL, interruptedURL := referenceDatabase(t, partitioned), referenceDatabase(t, partitioned)
	whole, interrupted := connect(t, wholeURL), connect(t, interruptedURL)
	for _, conn := range []*pgx.Conn{whole, interrupted} {
		insertReferenceRows(t, conn)
		insertReferenceDocuments(t, conn)
	}
	adopt(t, wholeURL)

	config := connect(t, interruptedURL, "application_name", adoptingName).Config()
	killer := connect(t, interruptedURL)
	seen := map[string]bool{}
	calls := 0
	for done := false; !done; calls++ {
		how := []harm{cancelled, cut, lockLost, bothCut}[calls%4]
		done = adoptUntil(t, config, killer, seen, how)
		if !done && calls%10 == 0 {
			if err := schema.Check(t.Context(), killer, schema.Options{}); !errors.Is(err, schema.ErrNotAdopted) {
				t.Errorf("after %d interruptions: %v, want ErrNotAdopted", calls, err)
			}
		}
	}
	t.Logf("interrupted %d times", calls-1)
	if calls < 50 {
		t.Errorf("interrupted %d times, want at each step", calls-1)
	}
	for _, step := range []string{"setting aside", "applying", "copying", "copied", "verified", "rewriting", "rewritten"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(at string) bool { return strings.HasPrefix(at, step) }) {
			t.Errorf("never interrupted while %s", step)
		}
	}
	if err := schema.Check(t.Context(), interrupted, schema.Options{}); err != nil {
		t.Error(err)
	}
	requireSameLines(t, lines(t, interrupted, storedExecutions), lines(t, whole, storedExecutions))
	for _, table := range scalar[[]string](t, whole, `
		SELECT array_agg(relname::text)
		FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ '^ff_' AND NOT relispartition
			AND relname NOT IN ('ff_exec_core', 'ff_attempt', 'ff_completion_event', 'ff_lease_event', 'ff_migration_annotation')`) {
		sql := "SELECT to_jsonb(t)::text FROM " + table + " AS t"
		requireSameLines(t, lines(t, interrupted, sql), lines(t, whole, sql))
	}
	const sequences = "SELECT sequencename || ' ' || last_value FROM pg_sequences WHERE sequencename LIKE 'ff\\_%' AND last_value IS NOT NULL"
	requireSameLines(t, lines(t, interrupted, sequences), lines(t, whole, sequences))
}

// atTables are the tables at which a conversion is interrupted, with their partitions: with each of all it would take long.
var atTables = regexp.MustCompile(` (ff_exec_core|ff_attempt|ff_completion_event|(old_)?ff_lease_event|ff_suspension_current|ff_budget_policy|ff_partition_config)(_p[02])?$`)

// adoptUntil converts a database until it comes to something that is not in seen, and interrupts it there. It reports
// whether the conversion is done.
func adoptUntil(t *testing.T, config *pgx.ConnConfig, killer *pgx.Conn, seen map[string]bool, how harm) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	harmed := false
	log := &onRecord{at: func(at string) {
		if harmed || seen[at] || at == "adopted" || strings.Contains(at, " ff_") && !atTables.MatchString(at) {
			return
		}
		seen[at], harmed = true, true
		terminate := func(which string) {
			exec(t, killer, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND "+which,
				adoptingName)
		}
		// The connection with the lock idles in its transaction.
		const holdsLock = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
		switch how {
		case cancelled:
			cancel()
		case cut:
			terminate("NOT " + holdsLock)
		case lockLost:
			terminate(holdsLock)
		case bothCut:
			terminate("true")
		}
	}}
	_, err = schema.Adopt(ctx, conn, schema.AdoptOptions{Options: schema.Options{Log: slog.New(log)}})
	switch {
	case err != nil && !harmed:
		t.Fatalf("not interrupted: %v", err)
	case err == nil && harmed && how != lockLost && how != cancelled:
		t.Fatalf("not stopped though %s", how)
	}
	return err == nil
}

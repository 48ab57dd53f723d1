package database

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func read(t *testing.T, migrations map[string]string) []project.Migration {
	t.Helper()
	dir := t.TempDir()
	for name, text := range migrations {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	side, err := project.Read(dir, project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return side.Migrations
}

// one runs a query for one value.
func one[T any](t *testing.T, d *Database, query string) T {
	t.Helper()
	conn, err := d.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestMigrateAndCopy(t *testing.T) {
	s := start(t)
	migrations := read(t, map[string]string{
		"1_a.sql": "-- migrate:up\nCREATE TABLE a (id int);\nINSERT INTO a VALUES (7);\n-- migrate:down\nDROP TABLE a;\n",
		"2_b.sql": "-- migrate:up transaction:false\nCREATE INDEX CONCURRENTLY i ON a (id);\n-- migrate:down\nDROP INDEX i;\n",
	})
	base, err := s.Create(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	if err := base.Migrate(t.Context(), migrations[:1], "ledger"); err != nil {
		t.Fatal(err)
	}
	head, err := s.Copy(t.Context(), base, "head")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to apply
		if err := head.Migrate(t.Context(), migrations, "ledger"); err != nil {
			t.Fatal(err)
		}
	}
	if n := one[int](t, head, "SELECT id FROM a"); n != 7 {
		t.Errorf("the copy holds %d, want 7", n)
	}
	if n := one[int](t, head, "SELECT count(*) FROM ledger"); n != 2 {
		t.Errorf("the ledger has %d rows, want 2", n)
	}
	if err := head.Rollback(t.Context(), migrations, "ledger"); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, head, "SELECT count(*) FROM pg_class WHERE relname = 'i'"); n != 0 {
		t.Error("the index was not taken back")
	}
}

func TestMigrateNamesTheFailingLine(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		name, text string
		down       bool
		want       report.Place
	}{
		{"1_a.sql", "-- é\n-- migrate:up\nSELECT 1;\n\nSELECT nothing;\n-- migrate:down\n", false, report.Place{File: "1_a.sql", Line: 5}},
		{"1_a.up.sql", "SELECT 1;\nSELECT nothing;\n", false, report.Place{File: "1_a.up.sql", Line: 2}},
		{"1_a.sql", "-- migrate:up\nSELECT 1;\n-- migrate:down\nSELECT 1;\nDROP nothing;\n", true, report.Place{File: "1_a.sql", Line: 5}},
	} {
		migrations := read(t, map[string]string{c.name: c.text})
		d, err := s.Create(t.Context(), "refused")
		if err != nil {
			t.Fatal(err)
		}
		err = d.Migrate(t.Context(), migrations, "ledger")
		if c.down && err == nil {
			err = d.Rollback(t.Context(), migrations, "ledger")
		}
		refused, ok := errors.AsType[*MigrationError](err)
		if !ok || refused.Place != c.want || refused.Down != c.down {
			t.Errorf("%s: error %v, want one at %v", c.name, err, c.want)
		}
	}
}

func TestStartDropsLeftoverDatabases(t *testing.T) {
	killed, err := Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	left, err := killed.Create(t.Context(), "left")
	if err != nil {
		t.Fatal(err)
	}
	running := start(t)
	kept, err := running.Create(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.admin.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	progress.Until(t, "the killed review's session to end", func() bool {
		return !one[bool](t, kept, fmt.Sprintf("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = %d)",
			reviewsLock, killed.key))
	})
	start(t)
	exists := func(name string) bool {
		return one[bool](t, kept, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')")
	}
	// Another review that starts now may be about to drop it.
	progress.Until(t, "the database of the killed review to be dropped", func() bool { return !exists(left.Name) })
	if !exists(kept.Name) {
		t.Error("the database of a running review was dropped")
	}
}

package database

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// The server's role cannot have every name, and a review holds a lock for each: those that it cannot make are missing.
func TestMakeRolesReturnsThoseThatCannotBeMade(t *testing.T) {
	s := start(t)
	names := []string{"none", "public", "pg_never", owner}
	for i := range mostRoles + 1 {
		names = append(names, fmt.Sprintf("ff_many_%08x_%d", s.key, i))
	}
	missing, err := s.MakeRoles(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[:4] {
		if len(missing) == 0 || missing[0] != name {
			t.Fatalf("%q are missing, want %s", missing, name)
		}
		missing = missing[1:]
	}
	if len(missing) == 0 || len(missing) > 5 {
		t.Errorf("%d of %d roles are missing", len(missing), mostRoles+1)
	}
}

// A database that cannot be dropped ends no other review.
func TestStartLogsDatabasesThatStay(t *testing.T) {
	admin := start(t)
	name := fmt.Sprintf("ff_review_%08x_1_stays", admin.key+1)
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE DATABASE " + name + " IS_TEMPLATE true")
	defer exec("DROP DATABASE " + name)
	defer exec("ALTER DATABASE " + name + " IS_TEMPLATE false")
	var log bytes.Buffer
	s, err := Start(t.Context(), container.Run, &log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), name) {
		t.Errorf("the log is %q", log.String())
	}
	var locked bool
	key := int32(admin.key + 1)
	if err := admin.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = $2)", reviewsLock, uint32(key)).Scan(&locked); err != nil || locked {
		t.Errorf("the lock is held: %v, error %v", locked, err)
	}
}

// A migration that waits for ever ends with its session, as a failure of the migration.
func TestMigrationsEndWithTheirSessions(t *testing.T) {
	s := start(t)
	s.longest = time.Second
	for name, m := range map[string]project.Migration{
		"rows":   {File: "1_a.sql", Version: "1", Tool: project.Goose, Up: project.Half{Batches: []project.Batch{{SQL: "CREATE TEMP TABLE t (id int); COPY t FROM STDIN"}}}},
		"sleep":  {File: "1_a.sql", Version: "1", Tool: project.Tern, Up: project.Half{Batches: []project.Batch{{SQL: "SET statement_timeout = 0; SELECT pg_sleep(1e6)"}}}},
		"dbmate": read(t, map[string]string{"1_a.sql": "-- migrate:up\nSET statement_timeout = 0; SELECT pg_sleep(1e6);\n-- migrate:down\n"})[0],
	} {
		t.Run(name, func(t *testing.T) {
			d, err := s.Create(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			err = d.Migrate(t.Context(), []project.Migration{m}, "versions")
			if refusal, is := errors.AsType[*MigrationError](err); !is || refusal.Migration.File != "1_a.sql" {
				t.Errorf("error %v", err)
			}
			if err := d.Drop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStatementsHaveALongestTime(t *testing.T) {
	s := start(t)
	d, err := s.Create(t.Context(), "timeout")
	if err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, d, "SHOW statement_timeout"); got != longestStatement {
		t.Errorf("the setting is %s", got)
	}
}

// An extension that the server does not create as the statement says is left out of the databases.
func TestInstallLeavesOutExtensionsThatFail(t *testing.T) {
	s := start(t)
	failed, err := s.Install(t.Context(), []Extension{{Name: "amcheck", Version: "0"}, {Name: "bloom", Schema: "pg_x"}, {Name: "autoinc", Schema: "aside"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(failed, " ") != "amcheck bloom" {
		t.Errorf("%q failed", failed)
	}
	d, err := s.Create(t.Context(), "installed")
	if err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, d, "SELECT string_agg(extname::text, ' ' ORDER BY extname) FROM pg_extension"); got != "autoinc plpgsql" {
		t.Errorf("the extensions are %s", got)
	}
}

func TestRunCommandHidesTheServersPassword(t *testing.T) {
	s := start(t)
	d, err := s.Create(t.Context(), "command")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PGPASSWORD", "FF_SECRET"} {
		t.Setenv(name, "hidden-word")
	}
	err = d.RunCommand(t.Context(), t.TempDir(), `echo "$PGPASSWORD $FF_SECRET ${DATABASE_URL%%:*}"; exit 1`)
	if err == nil || strings.Contains(err.Error(), "hidden-word") || !strings.Contains(err.Error(), "postgres") {
		t.Errorf("error %v", err)
	}
}

package schema_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// A22: on tables that Citus distributes a statement can kill the server. N2: any newer migration was refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	const (
		nothing   = iota
		own       // a database of this library
		reference // one of FlowFabric 0.15
	)
	for _, test := range []struct {
		name    string
		from    int
		change  string
		opts    schema.Options
		want    error
		mention string
		// migrate is the error of Migrate then; nil: it brings the database to Version.
		migrate error
	}{
		{name: "current", from: own},
		{name: "empty", want: fferr.ErrNotMigrated},
		{name: "empty but for the ledger a FlowFabric server leaves behind", change: `
			CREATE TABLE _sqlx_migrations (
				version bigint PRIMARY KEY, description text NOT NULL, installed_on timestamptz NOT NULL DEFAULT now(),
				success boolean NOT NULL, checksum bytea NOT NULL, execution_time bigint NOT NULL
			)`, want: fferr.ErrNotMigrated},
		{name: "other tables only", change: "CREATE TABLE invoice ()", want: fferr.ErrNotMigrated},
		{
			name: "migrated by a newer build that leaves room for this one", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('20991231000001')",
		},
		{
			name: "migrated by a newer build that leaves no room for this one", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('20991231000001');" + usableFrom("20991231000001"),
			want:   fferr.ErrTooNew, mention: "20991231000001", migrate: fferr.ErrTooNew,
		},
		{
			name: "migrated by a newer build that does not say for whom", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('20991231000001'); DROP FUNCTION ffx_usable_from()",
			want:   fferr.ErrTooNew, mention: "20991231000001", migrate: fferr.ErrTooNew,
		},
		{
			name: "migrated by a newer build that says it in a way of its own", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('20991231000001');" + usableFrom("2"),
			want:   fferr.ErrTooNew, mention: "20991231000001", migrate: fferr.ErrTooNew,
		},
		{
			name: "migrated by a newer build that lacks what this one has", from: own,
			change: "UPDATE ffx_schema_migrations SET version = '20991231000001' WHERE version = '20261125000010'",
			want:   fferr.ErrTooNew, mention: "20261125000010_lease_timers", migrate: fferr.ErrTooNew,
		},
		{
			name: "being converted by a newer build that leaves no room for this one", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('adopt/check');" + usableFrom("20991231000001"),
			want:   fferr.ErrTooNew, mention: "20991231000001", migrate: fferr.ErrTooNew,
		},
		{
			name: "not converted to the end", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('adopt/check'), ('adopt/copy/old_ff_edge')",
			want:   schema.ErrNotAdopted, mention: "not finished", migrate: schema.ErrNotAdopted,
		},
		{
			name: "converted", from: own,
			change: "INSERT INTO ffx_schema_migrations VALUES ('adopt/check'), ('adopt/copy/old_ff_edge'), ('adopted')",
		},
		{
			name: "ours, on a node of Citus that has distributed other tables", from: own,
			change: citusCatalog(t) + "CREATE TABLE invoice (); INSERT INTO pg_dist_partition VALUES ('invoice', 'h')",
		},
		{
			name: "ours, distributed by Citus", from: own,
			change: citusCatalog(t) + "INSERT INTO pg_dist_partition VALUES ('ff_exec_core', 'h'), ('ffx_ready', 'n')",
			want:   fferr.ErrDistributed, mention: "ff_exec_core", migrate: fferr.ErrDistributed,
		},
		{
			name: "FlowFabric's, in a schema that Citus distributes", from: reference,
			change: citusCatalog(t) + "INSERT INTO pg_dist_partition VALUES ('ff_attempt', 'n')",
			want:   fferr.ErrDistributed, mention: "ff_attempt", migrate: fferr.ErrDistributed,
		},
		{
			name: "core table gone", from: own, change: "DROP TABLE ff_exec_core CASCADE",
			want: schema.ErrForeign, mention: "ff_exec_core", migrate: schema.ErrForeign,
		},
		{
			name: "ledger emptied", from: own, change: "DELETE FROM ffx_schema_migrations",
			want: schema.ErrForeign, mention: "records nothing", migrate: schema.ErrForeign,
		},
		{
			name: "ours, then a newer FlowFabric", from: own,
			change: "INSERT INTO _sqlx_migrations VALUES (23, 'next', now(), true, 'x', 1)",
			want:   fferr.ErrTooNew, mention: "23", migrate: fferr.ErrTooNew,
		},
		{
			name: "ours, then a newer FlowFabric, allowed", from: own, opts: schema.Options{AllowNewerReference: true},
			change: "INSERT INTO _sqlx_migrations VALUES (23, 'next', now(), true, 'x', 1)",
		},
		{
			name: "ours, FlowFabric's ledger emptied", from: own, change: "DELETE FROM _sqlx_migrations",
		},
		{
			name: "ours, dirty", from: own, change: "UPDATE _sqlx_migrations SET success = false WHERE version = 7",
			want: schema.ErrDirty, mention: "7", migrate: schema.ErrDirty,
		},
		{
			name: "FlowFabric's", from: reference,
			want: schema.ErrNotAdopted, migrate: schema.ErrNotAdopted,
		},
		{
			name: "FlowFabric's, too old", from: reference, change: "DELETE FROM _sqlx_migrations WHERE version > 20",
			want: schema.ErrTooOld, mention: "21", migrate: schema.ErrTooOld,
		},
		{
			name: "FlowFabric's, with a hole", from: reference, change: "DELETE FROM _sqlx_migrations WHERE version = 9",
			want: schema.ErrTooOld, mention: "9", migrate: schema.ErrTooOld,
		},
		{
			name: "FlowFabric's, dirty", from: reference, change: "UPDATE _sqlx_migrations SET success = false WHERE version = 22",
			want: schema.ErrDirty, mention: "22", migrate: schema.ErrDirty,
		},
		{
			name: "FlowFabric's, newer", from: reference,
			change: "INSERT INTO _sqlx_migrations VALUES (23, 'next', now(), true, 'x', 1)",
			want:   fferr.ErrTooNew, mention: "23", migrate: fferr.ErrTooNew,
		},
		{
			name: "FlowFabric's, without its ledger", from: reference, change: "DROP TABLE _sqlx_migrations",
			want: schema.ErrNotAdopted, migrate: schema.ErrNotAdopted,
		},
		{
			name: "applied by hand, incomplete", from: reference,
			change: "DELETE FROM _sqlx_migrations; DROP INDEX ff_completion_event_lookup_idx; DROP TABLE ff_flow_summary",
			want:   schema.ErrForeign, mention: "ff_completion_event_lookup_idx of its migration 18", migrate: schema.ErrForeign,
		},
		{
			name: "applied by hand, narrow worker key", from: reference,
			change: `DROP TABLE _sqlx_migrations;
				ALTER TABLE ff_worker_registry_event DROP CONSTRAINT ff_worker_registry_event_pkey,
				ADD CONSTRAINT ff_worker_registry_event_pkey PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms)`,
			want: schema.ErrForeign, mention: "ff_worker_registry_event", migrate: schema.ErrForeign,
		},
		{
			name: "a migrator of FlowFabric died early", change: "CREATE TABLE ff_exec_core (started_at_ms bigint)",
			want: schema.ErrForeign, mention: "ff_claim_grant", migrate: schema.ErrForeign,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var databaseURL string
			switch test.from {
			case nothing:
				databaseURL = pgtest.EmptyDatabase(t)
			case own:
				databaseURL = pgtest.CloneURL(t)
			case reference:
				databaseURL = referenceDatabase(t, ordinary)
			}
			conn := connect(t, databaseURL)
			exec(t, conn, test.change)
			before := catalog(t, conn)

			err := schema.Check(t.Context(), conn, test.opts)
			if !errors.Is(err, test.want) {
				t.Errorf("Check: %v, want %v", err, test.want)
			}
			if test.want != nil {
				stateErr, ok := errors.AsType[*schema.StateError](err)
				if !ok || !errors.Is(stateErr.Err, test.want) || stateErr.Database == "" || !strings.Contains(err.Error(), test.mention) {
					t.Errorf("Check: %v, want a StateError that names the database and %q", err, test.mention)
				}
			}
			state, statusErr := schema.Status(t.Context(), databaseURL, test.opts)
			if statusErr != nil || !errors.Is(state.Err, test.want) {
				t.Errorf("Status: %v, %v, want %v", state.Err, statusErr, test.want)
			}
			_, err = schema.Migrate(t.Context(), databaseURL, test.opts)
			if !errors.Is(err, test.migrate) {
				t.Errorf("Migrate: %v, want %v", err, test.migrate)
			}
			if test.migrate != nil {
				requireSameLines(t, catalog(t, conn), before)
			} else if err := schema.Check(t.Context(), conn, test.opts); err != nil {
				t.Errorf("Check after Migrate: %v", err)
			}
		})
	}
}

func TestCheckReportsAReadOnlyServer(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	exec(t, connect(t, databaseURL), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	if err := schema.Check(t.Context(), connect(t, databaseURL), schema.Options{}); !errors.Is(err, fferr.ErrReadOnly) {
		t.Errorf("Check: %v, want ErrReadOnly", err)
	}
	if _, err := schema.Migrate(t.Context(), databaseURL, schema.Options{Schema: "other"}); !errors.Is(err, fferr.ErrReadOnly) {
		t.Errorf("Migrate: %v, want ErrReadOnly", err)
	}
	if _, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{}); !errors.Is(err, fferr.ErrReadOnly) {
		t.Errorf("Rollback: %v, want ErrReadOnly", err)
	}
}

func TestCheckReportsAMissingDatabase(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/there_is_no_such_database"
	_, migrateErr := schema.Migrate(t.Context(), u.String(), schema.Options{})
	_, rollbackErr := schema.Rollback(t.Context(), u.String(), "", schema.Options{})
	_, adoptErr := adoptAs(t.Context(), u.String(), schema.Options{})
	_, statusErr := schema.Status(t.Context(), u.String(), schema.Options{})
	for what, err := range map[string]error{"Migrate": migrateErr, "Rollback": rollbackErr, "Adopt": adoptErr, "Status": statusErr} {
		if !errors.Is(err, schema.ErrNoDatabase) {
			t.Errorf("%s: %v, want ErrNoDatabase", what, err)
		}
	}
	pool := lazyPool(t, u.String())
	if err := schema.Check(t.Context(), pool, schema.Options{}); !errors.Is(err, schema.ErrNoDatabase) {
		t.Errorf("Check: %v, want ErrNoDatabase", err)
	}
}

func TestCheckUsesTheFirstSchemaOnly(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	exec(t, connect(t, databaseURL), "CREATE SCHEMA first")
	conn := connect(t, databaseURL, "search_path", "first, public")
	if err := schema.Check(t.Context(), conn, schema.Options{}); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("%v, want ErrNotMigrated", err)
	}
	nowhere := connect(t, databaseURL, "search_path", "nowhere")
	if err := schema.Check(t.Context(), nowhere, schema.Options{}); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("without any schema: %v, want ErrNotMigrated", err)
	}
}

func TestStatusWarnsOfRefusedLedgers(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	exec(t, connect(t, databaseURL), `
		UPDATE _sqlx_migrations SET checksum = 'other' WHERE version = 3;
		INSERT INTO _sqlx_migrations VALUES (15, 'fork', now(), true, 'x', 1)`)
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil || state.Err != nil {
		t.Fatal(err, state.Err)
	}
	if len(state.Warnings) != 2 || !strings.Contains(state.Warnings[0], "migration 3 ") || !strings.Contains(state.Warnings[1], "migration 15 ") {
		t.Errorf("warnings %q, want one for 3 and one for 15", state.Warnings)
	}
}

func TestStatusListsMigrations(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	previous := state.Migrations[len(state.Migrations)-2]
	if _, err := schema.Rollback(t.Context(), databaseURL, previous.Version, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	state, err = schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if state.Version != previous.Version || state.Origin != schema.OriginOwn || !errors.Is(state.Err, schema.ErrTooOld) {
		t.Errorf("%+v, want our own at %s", state, previous.Version)
	}
	for _, m := range state.Migrations {
		if m.Applied != (m.Version <= previous.Version) {
			t.Errorf("%+v", m)
		}
	}
}

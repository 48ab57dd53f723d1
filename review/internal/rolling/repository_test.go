package rolling

import (
	"context"
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Almost all queries of this repository run with the chosen arguments.
func TestCheckThisRepository(t *testing.T) {
	server, err := database.Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	side, err := project.Read("../../..", project.Options{MigrationsTable: "ffx_schema_migrations"})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := seed.ReadFile("../../../schema/seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, err := server.Create(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Migrate(t.Context(), side.Migrations, side.MigrationsTable); err != nil {
		t.Fatal(err)
	}
	conn, err := before.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seed.Fill(t.Context(), conn, spec, seed.Options{Rows: 5000}); err != nil {
		t.Fatal(err)
	}
	conn.Close(context.WithoutCancel(t.Context()))
	after, err := server.Copy(t.Context(), before, "after")
	if err != nil {
		t.Fatal(err)
	}
	result, err := Check(t.Context(), Input{Base: side, Head: side, Before: before.URL, After: after.URL, Settings: spec.Settings})
	if err != nil {
		t.Fatal(err)
	}
	if result.Order != report.AnyOrder || len(result.Findings) > 0 || len(result.Skipped) > 1 { // without Citus
		t.Errorf("%q, %v, skipped %q", result.Order, result.Findings, result.Skipped)
	}

	tried, err := open(t.Context(), before.URL, spec.Settings)
	if err != nil {
		t.Fatal(err)
	}
	defer tried.close(t.Context())
	ran := 0
	for _, q := range side.Queries {
		o, err := tried.run(t.Context(), q.SQL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.failure == nil {
			ran++
		} else {
			t.Logf("%s: %s", q.Name, o.failure.Message)
		}
	}
	if ran < len(side.Queries)*9/10 {
		t.Errorf("of %d queries %d run", len(side.Queries), ran)
	}
}

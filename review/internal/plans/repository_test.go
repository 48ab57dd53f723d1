package plans

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// The queries of this repository, on rows made by schema/seed.yaml, have no findings, and without a change there is
// no difference.
func TestCheckThisRepository(t *testing.T) {
	side, err := project.Read("../../..", project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(side.Queries) < 200 {
		t.Fatalf("%d queries", len(side.Queries))
	}
	spec, err := seed.ReadFile("../../../schema/seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	opts := seed.Options{Rows: 10_000}
	for _, q := range side.Queries {
		opts.Queries = append(opts.Queries, q.SQL)
	}
	in := Input{Base: side, Head: side, Large: seed.LargeFrom(spec, opts), Settings: spec.Settings}
	for _, url := range []*string{&in.Before, &in.After} {
		*url = pgtest.CloneURL(t)
		conn, err := pgx.Connect(t.Context(), *url)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := seed.Fill(t.Context(), conn, spec, opts); err != nil {
			t.Fatal(err)
		}
		t.Log("filled in", time.Since(start))
		conn.Close(context.WithoutCancel(t.Context()))
	}
	start := time.Now()
	result, err := Check(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("planned in", time.Since(start))
	for _, f := range result.Findings {
		if f.Severity > report.Note {
			t.Errorf("%s %s: %s", f.Severity, f.Rule, f.Title)
		}
		t.Logf("%s: %s\n%s", f.Rule, f.Title, f.Detail)
	}
	for _, change := range result.Changes {
		t.Errorf("%s: %s -> %s", change.Object, change.Before, change.After)
	}
	for _, line := range result.Skipped {
		t.Log(line)
	}
}

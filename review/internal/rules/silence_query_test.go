package rules

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

func TestSilenceInQueries(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sqlc.yaml":          "version: '2'\nsql: [{engine: postgresql, schema: migrations, queries: queries.sql, gen: {go: {package: db, out: db}}}]\n",
		"migrations/1_a.sql": "-- migrate:up\nCREATE TABLE a (id int);\n-- migrate:down\nDROP TABLE a;\n",
		"queries.sql":        "-- name: ListAll :many\n-- review: allow sequential-scan until 2026-12-31: it is run by hand\nSELECT id FROM a;\n\n-- name: CountAll :one\nSELECT count(*)\n  -- review: allow large-sort until 2026-01-31: long ago\nFROM a;\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	side, err := project.Read(dir, project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var findings []report.Finding
	for _, q := range side.Queries {
		for _, rule := range []string{"large-sort", "sequential-scan"} {
			findings = append(findings, report.Finding{Rule: rule, Place: q.Place, Object: q.Name})
		}
	}
	today := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	silenced := 0
	for _, f := range Silence(findings, nil, side, today) {
		switch {
		case f.Rule == "silence-expired" && f.Place == (report.Place{File: "queries.sql", Line: 7}):
		case f.Silenced != "":
			silenced++
			if f.Rule != "sequential-scan" || f.Object != "ListAll" || f.Silenced != "it is run by hand" {
				t.Errorf("silenced is %+v", f)
			}
		case f.Object == "":
			t.Errorf("there is %+v", f)
		}
	}
	if silenced != 1 {
		t.Errorf("%d are silenced", silenced)
	}
	// A comment that existed before is not judged again.
	if got := Silence(nil, side, side, today); len(got) > 0 {
		t.Errorf("there is %+v", got)
	}
}

package review

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// sides reads a base, and a head with some files changed or, without a text, deleted.
func sides(t *testing.T, base, change map[string]string) *review {
	t.Helper()
	head := maps.Clone(base)
	maps.Copy(head, change)
	r := &review{}
	for side, files := range map[**project.Side]map[string]string{&r.base: base, &r.head: head} {
		dir := t.TempDir()
		for name, text := range files {
			if text == "" {
				continue
			}
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		read, err := project.Read(dir, project.Options{})
		if err != nil {
			t.Fatal(err)
		}
		*side = read
	}
	return r
}

// A refusal at a file that the change leaves as it is blocks, if the change of another file causes it.
func TestNotedKeepsRefusalsThatTheChangeCauses(t *testing.T) {
	const tern, mixed = "SELECT 1;\n---- create above / drop below ----\nSELECT 2;\n", "CREATE INDEX CONCURRENTLY i ON a (id);\nSELECT 1;\n"
	for _, c := range []struct {
		name         string
		base, change map[string]string
		want         report.Severity
	}{
		{
			"tern, a deleted number", map[string]string{"m/1_a.sql": tern, "m/2_b.sql": tern, "m/3_c.sql": tern},
			map[string]string{"m/2_b.sql": ""}, report.Blocking,
		},
		{
			"Flyway, deleted settings", map[string]string{"m/V1__a.sql": mixed, "m/V1__a.sql.conf": "executeInTransaction=false\n"},
			map[string]string{"m/V1__a.sql.conf": ""}, report.Blocking,
		},
		{
			"a gap of the base", map[string]string{"m/1_a.sql": tern, "m/3_c.sql": tern},
			map[string]string{"m/4_d.sql": tern}, report.Note,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sides(t, c.base, c.change)
			found := r.noted(r.head.Findings)
			if len(found) != 1 || found[0].Severity != c.want {
				t.Errorf("found %+v, want one that is %s", found, c.want)
			}
		})
	}
}

// Settings beside a migration change its effect, so that a new database is compared with a migrated one.
func TestContinuesComparesHowMigrationsAreSent(t *testing.T) {
	base := map[string]string{"m/V1__a.sql": "CREATE TABLE a (id int);\nSELECT 1;\n", "m/V2__b.sql": "SELECT 2;\n"}
	for name, c := range map[string]struct {
		change map[string]string
		want   bool
	}{
		"another migration": {map[string]string{"m/V3__c.sql": "SELECT 3;\n"}, true},
		"settings":          {map[string]string{"m/V1__a.sql.conf": "executeInTransaction=false\n"}, false},
		"another text":      {map[string]string{"m/V2__b.sql": "SELECT 3;\n"}, false},
	} {
		if got := sides(t, base, c.change).continues(); got != c.want {
			t.Errorf("with %s, the base's migrations continue: %v", name, got)
		}
	}
}

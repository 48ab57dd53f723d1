package review_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// foreign is the expected report on a project of testdata/projects, whose README names the project with that shape.
type foreign struct {
	About         string
	MigrationsDir string   `yaml:"migrations_dir"`
	SQLCConfigs   []string `yaml:"sqlc_configs"`
	Remove        []string // files of the base that the change deletes

	Verdict  string
	Order    string
	Findings []string // severity, rule, file:line and object
	// The other lists of the report, whole.
	NotRead   []string `yaml:"not_read"`
	NotSeeded []string `yaml:"not_seeded"`
	Skipped   []string
}

// TestForeignProjects reviews a change to each of the projects, which have the shapes of well-known ones, and compares
// the whole report: what was found, where, and what was not read, seeded or run.
func TestForeignProjects(t *testing.T) {
	entries, err := os.ReadDir("testdata/projects")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 5 {
		t.Errorf("%d projects", len(entries))
	}
	for _, entry := range entries {
		t.Run(entry.Name(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata/projects", entry.Name())
			text, err := os.ReadFile(filepath.Join(dir, "expected.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var want foreign
			if err := yaml.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			want.compare(t, want.review(t, dir))
		})
	}
}

func (want foreign) review(t *testing.T, dir string) *report.Report {
	t.Helper()
	base, head := t.TempDir(), t.TempDir()
	lay(t, filepath.Join(dir, "base"), base)
	lay(t, filepath.Join(dir, "base"), head)
	lay(t, filepath.Join(dir, "head"), head)
	for _, name := range want.Remove {
		if err := os.Remove(filepath.Join(head, name)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := review.Run(t.Context(), review.Config{
		NoCache:   true,
		Container: container.Run, Dir: head, BaseDir: base, Rows: 5_000, Today: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC),
		MigrationsDir: want.MigrationsDir, SQLCConfigs: want.SQLCConfigs,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (want foreign) compare(t *testing.T, r *report.Report) {
	t.Helper()
	severitiesAreKnown(t, r)
	found := linesOf(r)
	for i := range found {
		found[i] = strings.TrimSpace(found[i])
	}
	same := true
	for _, list := range []struct {
		name      string
		got, want []string
	}{
		{"verdict", []string{string(r.Verdict(report.Blocking))}, []string{want.Verdict}},
		{"order", []string{string(r.Order)}, []string{want.Order}},
		{"findings", found, want.Findings},
		{"not_read", r.NotRead, want.NotRead},
		{"not_seeded", r.NotSeeded, want.NotSeeded},
		{"skipped", r.Skipped, want.Skipped},
	} {
		for _, line := range list.got {
			if !slices.Contains(list.want, line) {
				t.Errorf("%s: %q is not expected", list.name, line)
				same = false
			}
		}
		for _, line := range list.want {
			if !slices.Contains(list.got, line) {
				t.Errorf("%s: %q is missing", list.name, line)
				same = false
			}
		}
		if len(list.got) != len(list.want) {
			t.Errorf("%s: %d lines, want %d", list.name, len(list.got), len(list.want))
		}
	}
	if same {
		return
	}
	var b strings.Builder
	if err := report.WriteMarkdown(&b, r, report.Blocking); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
}

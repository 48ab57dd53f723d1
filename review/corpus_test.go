package review_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var (
	corpusCase  = flag.String("case", "", "review only the cases of the corpus whose names begin so, and print their reports")
	wholeCorpus = flag.Bool("corpus", false, "review all cases of the corpus, not only the first for each rule")
)

// expectation is the expected result of a case of the corpus. A good case has no finding above a note.
type expectation struct {
	About    string
	Rule     string // of a bad case: the rule that finds something; of a good one: a rule that must find nothing
	Severity string
	Lock     string // mode and relation that the rule's finding must name
	Rewrites string
	Order    string
	Advice   string   // a part of the finding's advice
	Remove   []string // files of the base that the change deletes
	Not      []string // of a bad case: rules that may find nothing above a note
}

// TestCorpus reviews the first bad and the first good case for each rule that cases name. make corpus has it review all.
func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("a review of each case takes minutes")
	}
	counts := map[string]int{"bad": 40, "good": 25}
	for kind, least := range counts {
		entries, err := os.ReadDir(filepath.Join("testdata/corpus", kind))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) < least {
			t.Errorf("%d %s changes", len(entries), kind)
		}
		reviewed := map[string]bool{"": true} // rules
		for _, entry := range entries {
			dir := filepath.Join("testdata/corpus", kind, entry.Name())
			want := expectationOf(t, dir)
			if !strings.HasPrefix(entry.Name(), *corpusCase) || *corpusCase == "" && !*wholeCorpus && reviewed[want.Rule] {
				continue
			}
			reviewed[want.Rule] = true
			t.Run(kind+"/"+entry.Name(), func(t *testing.T) {
				t.Parallel()
				reviewCase(t, kind, dir, want)
			})
		}
	}
}

func expectationOf(t *testing.T, dir string) (want expectation) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "expected.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

func reviewCase(t *testing.T, kind, dir string, want expectation) {
	base, head := t.TempDir(), t.TempDir()
	laySides(t, dir, want, base, head)
	r, err := review.Run(t.Context(), review.Config{
		NoCache:   true,
		Container: container.Run, Dir: head, BaseDir: base, Rows: 2_000, Today: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	if *corpusCase != "" {
		var b strings.Builder
		if err := report.WriteMarkdown(&b, r, report.Blocking); err != nil {
			t.Fatal(err)
		}
		t.Log(b.String())
	}
	t.Logf("%s: %q, order %q, skipped %q", r.Verdict(report.Blocking), linesOf(r), r.Order, r.Skipped)
	severitiesAreKnown(t, r)
	if kind == "good" {
		for _, f := range r.Findings {
			if f.Severity > report.Note && f.Silenced == "" {
				t.Errorf("%s: %s finds a %s: %s", want.About, f.Rule, f.Severity, f.Title)
			}
		}
		if slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Rule == want.Rule && f.Silenced == "" }) {
			t.Errorf("%s: %s finds something", want.About, want.Rule)
		}
		return
	}
	if !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return want.met(f) }) {
		t.Errorf("%s: %s %s, lock %q, rewrites %q is not among what was found", want.About, want.Severity, want.Rule, want.Lock, want.Rewrites)
		for _, f := range r.Findings {
			if f.Rule == want.Rule {
				t.Logf("%s: %s, measured %+v", f.Rule, f.Severity, f.Measured)
			}
		}
	}
	for _, f := range r.Findings {
		if slices.Contains(want.Not, f.Rule) && f.Severity > report.Note && f.Silenced == "" {
			t.Errorf("%s: %s finds a %s: %s", want.About, f.Rule, f.Severity, f.Title)
		}
	}
	if want.Order != "" && string(r.Order) != want.Order {
		t.Errorf("the order is %q", r.Order)
	}
}

// severitiesAreKnown holds the findings to the registry of rules, which the documentation lists.
func severitiesAreKnown(t *testing.T, r *report.Report) {
	t.Helper()
	for _, f := range r.Findings {
		if of, known := rule.ByName(f.Rule); !known || !slices.Contains(of.Severities, f.Severity.String()) {
			t.Errorf("the registry knows no %s of severity %s", f.Rule, f.Severity)
		}
	}
}

// laySides lays the shared base, with what the case adds to it in its folder base, and the change.
func laySides(t *testing.T, dir string, want expectation, base, head string) {
	t.Helper()
	for _, to := range []string{base, head} {
		lay(t, "testdata/corpus/base", to)
		if _, err := os.Stat(filepath.Join(dir, "base")); err == nil {
			lay(t, filepath.Join(dir, "base"), to)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "change")); err == nil {
		lay(t, filepath.Join(dir, "change"), head)
	}
	for _, name := range want.Remove {
		if err := os.Remove(filepath.Join(head, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (want expectation) met(f report.Finding) bool {
	if f.Rule != want.Rule || f.Severity.String() != want.Severity || f.Silenced != "" || !strings.Contains(f.Do, want.Advice) {
		return false
	}
	if mode, _, _ := strings.Cut(want.Lock, "Lock "); f.Rule == "lock-held-while-slow" {
		// The slow statement is measured; the lock is an earlier one's.
		if !strings.Contains(strings.ReplaceAll(f.Detail, " ", ""), strings.ToUpper(mode)) {
			return false
		}
	} else if want.Lock != "" && (f.Measured == nil || !slices.ContainsFunc(f.Measured.Locks, func(l report.Lock) bool {
		return l.Mode+" "+l.Relation == want.Lock
	})) {
		return false
	}
	return want.Rewrites == "" || f.Measured != nil && slices.Contains(f.Measured.Rewrites, want.Rewrites)
}

// lay copies the files of one folder over those of another.
func lay(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

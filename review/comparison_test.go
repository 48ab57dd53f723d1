package review_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

var comparisonTable = flag.String("comparison", "", "write what squawk, pgfence and sqlc vet say to the corpus as tables into this file; squawk and pgfence have to be on PATH")

// everywhere are rules of other tools about settings of the session and IF NOT EXISTS, which apply to nearly every
// migration. The tables leave them out.
var everywhere = regexp.MustCompile("^(require-(statement|lock)-timeout|require-timeout-settings|prefer-robust-.*|missing-(lock-timeout|statement-timeout|idle-timeout|application-name))$")

// TestComparison asks squawk, pgfence and sqlc vet about each change of the corpus. squawk and pgfence get the way up of
// each new or changed migration, and squawk whether it is a transaction. sqlc vet prepares the queries on a database that
// has all migrations. The column of this review has the expectations of TestCorpus.
func TestComparison(t *testing.T) {
	if *comparisonTable == "" {
		t.Skip("-comparison names no file")
	}
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"`schema-review`", version(t, "squawk"), "pgfence " + version(t, "pgfence"), "sqlc vet"}
	var tables strings.Builder
	said, cases := map[string][4]int{}, map[string]int{}
	for _, kind := range []string{"bad", "good"} {
		entries, err := os.ReadDir(filepath.Join("testdata/corpus", kind))
		if err != nil {
			t.Fatal(err)
		}
		cases[kind] = len(entries)
		fmt.Fprintf(&tables, "\n| %s change | %s |\n| --- | --- | --- | --- | --- |\n", kind, strings.Join(names, " | "))
		for _, entry := range entries {
			want, base, head := headOf(t, filepath.Join("testdata/corpus", kind, entry.Name()))
			cells := [4]string{"", squawk(t, base, head), pgfence(t, base, head), vet(t, server.URL(), head)}
			if want.Severity != "" {
				cells[0] = strings.TrimSuffix(fmt.Sprintf("%s: %s, %s", want.Severity, want.Rule, want.Lock), ", ")
			}
			counts := said[kind]
			for i, cell := range cells {
				if cell != "" {
					counts[i]++
				}
			}
			said[kind] = counts
			fmt.Fprintf(&tables, "| %s | %s |\n", entry.Name(), strings.Join(cells[:], " | "))
		}
	}
	var summary strings.Builder
	summary.WriteString("| it finds something in | bad changes | good changes |\n| --- | --- | --- |\n")
	for i, name := range names {
		fmt.Fprintf(&summary, "| %s | %d of %d | %d of %d |\n", name, said["bad"][i], cases["bad"], said["good"][i], cases["good"])
	}
	if err := os.WriteFile(*comparisonTable, []byte(summary.String()+tables.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func version(t *testing.T, tool string) string {
	t.Helper()
	out, err := exec.Command(tool, "--version").Output()
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return strings.TrimSpace(string(out))
}

// headOf lays the base and the change of a case into folders.
func headOf(t *testing.T, dir string) (want expectation, base string, head *project.Side) {
	t.Helper()
	want = expectationOf(t, dir)
	base, to := t.TempDir(), t.TempDir()
	laySides(t, dir, want, base, to)
	side, err := project.Read(to, project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return want, base, side
}

// changedUps calls fn with a file for the way up of each new or changed migration.
func changedUps(t *testing.T, base string, head *project.Side, fn func(m project.Migration, file string)) {
	t.Helper()
	for _, m := range head.Migrations {
		before, err := os.ReadFile(filepath.Join(base, m.File))
		if err == nil && string(before) == m.Text {
			continue
		}
		file := filepath.Join(t.TempDir(), "up.sql")
		if err := os.WriteFile(file, []byte(m.Up.SQL), 0o644); err != nil {
			t.Fatal(err)
		}
		fn(m, file)
	}
}

// named joins the names of rules, each once, without those that apply everywhere.
func named(rules []string) string {
	rules = slices.DeleteFunc(rules, everywhere.MatchString)
	slices.Sort(rules)
	return strings.Join(slices.Compact(rules), ", ")
}

// squawk returns the rules that squawk names for the change.
func squawk(t *testing.T, base string, head *project.Side) string {
	t.Helper()
	var rules []string
	changedUps(t, base, head, func(m project.Migration, file string) {
		arguments := []string{"--reporter", "json", "--pg-version", "15", file}
		if m.Up.Transaction {
			arguments = append([]string{"--assume-in-transaction"}, arguments...)
		}
		out, _ := exec.Command("squawk", arguments...).Output() // its exit code means that it found something
		var found []struct {
			Rule string `json:"rule_name"`
		}
		if err := json.Unmarshal(out, &found); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range found {
			rules = append(rules, f.Rule)
		}
	})
	return named(rules)
}

// pgfence returns the rules that pgfence names for the change, with a risk.
func pgfence(t *testing.T, base string, head *project.Side) string {
	t.Helper()
	var rules []string
	failed := ""
	changedUps(t, base, head, func(_ project.Migration, file string) {
		command := exec.Command("pgfence", "analyze", "--format", "sql", "--output", "json", "--min-pg-version", "15", file)
		var refusal strings.Builder
		command.Stderr = &refusal
		out, err := command.Output()
		if err != nil && len(out) == 0 {
			failed = strings.ReplaceAll(strings.TrimSpace(refusal.String()), "|", `\|`)
			return
		}
		var found struct {
			Results []struct {
				Checks           []struct{ RuleID, Risk string }
				PolicyViolations []struct{ RuleID string }
			}
		}
		if err := json.Unmarshal(out, &found); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, r := range found.Results {
			for _, c := range r.Checks {
				if c.Risk != "SAFE" {
					rules = append(rules, c.RuleID)
				}
			}
			for _, v := range r.PolicyViolations {
				rules = append(rules, v.RuleID)
			}
		}
	})
	return cmp.Or(named(rules), failed)
}

// vet returns the first message of sqlc vet.
func vet(t *testing.T, server string, head *project.Side) string {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	const name = "ff_review_comparison"
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _, _ = admin.Exec(t.Context(), "DROP DATABASE "+name+" WITH (FORCE)") }()
	where, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	where.Path = name
	conn, err := pgx.Connect(t.Context(), where.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, m := range head.Migrations {
		if _, err := conn.PgConn().Exec(t.Context(), m.Up.SQL).ReadAll(); err != nil {
			return "no database: " + strings.SplitN(err.Error(), "\n", 2)[0]
		}
	}
	config := filepath.Join(head.Dir, head.SQLC.Config)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, []byte("    database: {uri: \""+where.String()+"\"}\n    rules: [sqlc/db-prepare]\n")...)
	if err := os.WriteFile(config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sqlc", "vet")
	command.Dir = head.Dir
	out, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range bytes.Lines(out) {
		if said := strings.TrimSpace(string(line)); said != "" && !strings.HasPrefix(said, "#") {
			return strings.ReplaceAll(said, "|", `\|`)
		}
	}
	return err.Error()
}

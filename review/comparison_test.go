package review_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

var comparisonTable = flag.String("comparison", "", "write what squawk and sqlc vet say to the corpus as a table into this file; squawk has to be on PATH")

// TestComparison asks squawk and sqlc vet about each change of the corpus. squawk gets the way up of each new or
// changed migration, and whether it is a transaction; all its rules are on. sqlc vet prepares the queries on a
// database that has all migrations.
func TestComparison(t *testing.T) {
	if *comparisonTable == "" {
		t.Skip("-comparison names no file")
	}
	useSQLC(t)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command("squawk", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, kind := range []string{"bad", "good"} {
		entries, err := os.ReadDir(filepath.Join("testdata/corpus", kind))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "\n| %s change | `schema-review` | %s | sqlc vet |\n| --- | --- | --- | --- |\n", kind, strings.TrimSpace(string(version)))
		for _, entry := range entries {
			dir := filepath.Join("testdata/corpus", kind, entry.Name())
			want, base, head := headOf(t, dir)
			ours := "passes"
			if want.Severity != "" {
				ours = fmt.Sprintf("%s: %s", want.Severity, want.Rule)
				if want.Lock != "" {
					ours += ", " + want.Lock
				}
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", entry.Name(), ours, squawk(t, base, head), vet(t, server.URL(), head))
		}
	}
	if err := os.WriteFile(*comparisonTable, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
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

// squawk returns the rules that squawk names for the change.
func squawk(t *testing.T, base string, head *project.Side) string {
	t.Helper()
	var rules []string
	for _, m := range head.Migrations {
		before, err := os.ReadFile(filepath.Join(base, m.File))
		if err == nil && string(before) == m.Text {
			continue
		}
		file := filepath.Join(t.TempDir(), "up.sql")
		if err := os.WriteFile(file, []byte(m.Up.SQL), 0o644); err != nil {
			t.Fatal(err)
		}
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
	}
	slices.Sort(rules)
	return strings.Join(slices.Compact(rules), ", ")
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

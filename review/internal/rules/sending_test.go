package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
)

// A tool decides which statements share a transaction. In it, a validation holds the lock of the statement before, and
// SET LOCAL has an effect.
func TestCheckFollowsHowToolsSend(t *testing.T) {
	const (
		goose, bare, tern = "-- +goose Up\n", "-- +goose NO TRANSACTION\n", "\n---- create above / drop below ----\n"
		notValid          = "ALTER TABLE a ADD CONSTRAINT f CHECK (b > 0) NOT VALID;\n"
		validate          = "ALTER TABLE a VALIDATE CONSTRAINT f;\n"
		local, column     = "SET LOCAL lock_timeout = '2s';\n", "ALTER TABLE a ADD c int;\n"
		block, end        = "-- +goose StatementBegin\n", "-- +goose StatementEnd\n"
	)
	for _, c := range []struct {
		name, file, text string
		validated        bool   // with the lock of the statement before
		advice           string // a part of that about lock_timeout; "": none
	}{
		{"dbmate, one text", "1_a.sql", "-- migrate:up transaction:false\n" + local + notValid + validate + "-- migrate:down\n", true, ""},
		{"goose, a block", "1_a.sql", bare + goose + block + notValid + validate + end, true, "`SET lock_timeout"},
		{"goose, statement by statement", "1_a.sql", bare + goose + notValid + validate, false, "`SET lock_timeout"},
		{"goose, a transaction", "1_a.sql", goose + local + notValid + validate, true, ""},
		{"goose, a transaction without a timeout", "1_a.sql", goose + column, false, "`SET LOCAL lock_timeout"},
		{"goose, SET LOCAL alone", "1_a.sql", bare + goose + local + column, false, "`SET lock_timeout"},
		{"goose, SET", "1_a.sql", bare + goose + strings.Replace(local, "LOCAL ", "", 1) + column, false, ""},
		{"goose, SET LOCAL in a block", "1_a.sql", bare + goose + block + local + column + end, false, ""},
		{"goose, SET LOCAL in a block before", "1_a.sql", bare + goose + block + local + "SELECT 1;\n" + end + column, false, "`SET lock_timeout"},
		{"tern, SET LOCAL alone", "1_a.sql", "---- tern: disable-tx ----\n" + local + column + tern, false, "`SET lock_timeout"},
		{"SQL files, SET LOCAL alone", "migrations/1_a.sql", local + notValid + validate, false, "`SET lock_timeout"},
		{"SQL files, a transaction of their own", "migrations/1_a.sql", "BEGIN;\n" + local + notValid + validate + "COMMIT;\n", true, ""},
		{"SQL files, after their transaction", "migrations/1_a.sql", "BEGIN;\n" + local + notValid + "COMMIT;\n" + validate + column, false, "`SET lock_timeout"},
		{"golang-migrate", "1_a.up.sql", local + notValid + validate, true, ""},
		{"golang-migrate without a timeout", "1_a.up.sql", column, false, "`SET LOCAL lock_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, c.file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			head, err := project.Read(dir, project.Options{})
			if err != nil || len(head.Migrations) != 1 || len(head.Findings) > 0 {
				t.Fatalf("%+v, %v", head, err)
			}
			validated, advice := false, ""
			for _, f := range rules.Check(&project.Side{}, head, nil) {
				validated = validated || f.Rule == "validate-in-same-transaction"
				if f.Rule == "lock-without-timeout" {
					advice = f.Do
				}
			}
			if validated != c.validated {
				t.Errorf("it is validated under the lock: %v", validated)
			}
			if (advice == "") != (c.advice == "") || !strings.Contains(advice, c.advice) {
				t.Errorf("the advice is %q, want %q", advice, c.advice)
			}
		})
	}
}

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The keystore is seeded once, and rotated; secrets come from a file or are made, and are never printed.
func testCLIKeys(t *testing.T, ff cli) {
	_, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "key", "list").succeeds(t, "There are no keys: run `ff key seed`.")
	file := filepath.Join(t.TempDir(), "secret")
	digits := strings.Repeat("5a", 32)
	if err := os.WriteFile(file, []byte(digits+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ff.run(t, databaseURL, "key", "seed", "k1", "--secret-file", file).succeeds(t, "Key k1 signs from now on.")
	ff.run(t, databaseURL, "key", "seed", "k1", "--secret-file", file).succeeds(t, "Key k1 was there already.")
	ff.run(t, databaseURL, "key", "seed", "k1", "--secret-file", file+"2").fails(t, 2, "--secret-file")
	if err := os.WriteFile(file, []byte(digits[1:]), 0o600); err != nil {
		t.Fatal(err)
	}
	ff.run(t, databaseURL, "key", "rotate", "k2", "--grace", "1h", "--secret-file", file).fails(t, 2, "does not have a secret")
	ff.run(t, databaseURL, "key", "seed", "k2").fails(t, 2, `active key "k1"`)
	ff.run(t, databaseURL, "key", "rotate", "k2").fails(t, 2, "--grace is missing")
	ff.run(t, databaseURL, "key", "rotate", "a:b", "--grace", "1h").fails(t, 2, "key id")
	ff.run(t, databaseURL, "key", "rotate", "k2", "--grace", "1h").succeeds(t, "Key k2 signs from now on. Key k1 verifies for 1h0m0s more.")
	ff.run(t, databaseURL, "key", "rotate", "k1", "--grace", "1h").fails(t, 1, "key id is taken")
	rotated := ff.run(t, databaseURL, "key", "rotate", "--grace", "0s", "--json").object(t)
	if rotated["previous"] != "k2" || rotated["deleted"] != 1. {
		t.Error(rotated)
	}
	out := ff.run(t, databaseURL, "key", "list")
	out.fitsATerminal(t)
	out.succeeds(t, rotated["id"].(string))
	keys := ff.run(t, databaseURL, "key", "list", "--json").object(t)["keys"].([]any)
	if len(keys) != 2 || strings.Contains(out.stdout, digits[:8]) {
		t.Error(keys, out.stdout)
	}
}

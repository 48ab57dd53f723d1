package schema

import (
	"strings"
	"testing"
)

func TestLockKey(t *testing.T) {
	const want = 2084436097824492122
	if got := lockKey("flowfabric"); got != want {
		t.Errorf("lock of database flowfabric: %d, want %d", got, want)
	}
}

func TestReadParts_CoverEveryMigrationAfterTheBaseline(t *testing.T) {
	known, err := knownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range known {
		if m.Version <= baseline {
			continue
		}
		parts, err := readParts(m)
		if err != nil {
			t.Error(err)
		}
		if len(parts) == 0 {
			t.Errorf("%s has no object line: it would be recorded without being applied", m.Name)
		}
		for _, p := range parts {
			if seen[p.name] {
				t.Errorf("%s: the object %q occurs twice", m.Name, p.name)
			}
			seen[p.name] = true
			if !strings.Contains(p.sql, ";") || strings.Contains(p.sql, "migrate:") {
				t.Errorf("%s: the object %q holds %q", m.Name, p.name, p.sql)
			}
		}
	}
}

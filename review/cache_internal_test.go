package review

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A cached database is of the build that made it, also if builds have no version.
func TestBuildsDiffer(t *testing.T) {
	dir := t.TempDir()
	of := func(version, text string) string {
		t.Helper()
		name := filepath.Join(dir, "program")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		built, err := buildOf(version, name)
		if err != nil {
			t.Fatal(err)
		}
		return built
	}
	for _, version := range []string{"", "(devel)", "v0.0.0-20261126203102-9e664fda09af+dirty"} {
		first, other, again := of(version, "a"), of(version, "b"), of(version, "a")
		if first == other || first != again {
			t.Errorf("builds of version %q are %q, %q and %q", version, first, other, again)
		}
	}
	if built := of("v1.2.3", "a"); built != "v1.2.3" {
		t.Errorf("a released command is %q", built)
	}
	if built, err := build(); err != nil || strings.Contains(built, "devel") || built == "" {
		t.Errorf("this program is %q, %v", built, err)
	}
	if built, err := buildOf("(devel)", filepath.Join(dir, "none")); err == nil {
		t.Errorf("a missing program is %q", built)
	}
}

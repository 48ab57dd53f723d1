package review

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// A path that leads out of the project is not read, even if a caller lets it through.
func TestChangedReadsInsideTheProject(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"base/a/x.sql": "1", "head/a/x.sql": "1", "base/b/x.sql": "1", "head/b/x.sql": "2", "head/c": "1"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &review{base: &project.Side{Dir: filepath.Join(dir, "base")}, head: &project.Side{Dir: filepath.Join(dir, "head")}}
	for name, want := range map[string]bool{
		"a": false, "a/": false, "a/x.sql": false, "b": true, "c": true, "nowhere": false, ".": true,
		"..": true, "../base": true, "a/../../base": true, filepath.Join(dir, "base"): true,
	} {
		if got := r.changed(name); got != want {
			t.Errorf("%s is changed: %v", name, got)
		}
	}
}

package docs

import (
	"os"
	"path"
	"path/filepath"
	"testing"
)

// TestDocsPicturesExist: pictures in documents exist and are described in words, and every picture is shown.
func TestDocsPicturesExist(t *testing.T) {
	t.Parallel()
	shown := make(map[string]bool)
	for _, d := range documents(t) {
		for picture, words := range d.pictures() {
			file := path.Join(path.Dir(d.path), picture)
			shown[file] = true
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: %v", d.path, err)
			}
			if len(words) < 20 {
				t.Errorf("%s: %s is not told in words", d.path, picture)
			}
		}
	}
	there, err := filepath.Glob(filepath.Join(root, "docs", "internals", "pictures", "*"))
	if err != nil || len(there) == 0 {
		t.Fatalf("%d pictures, %v", len(there), err)
	}
	for _, picture := range there {
		if file := "docs/internals/pictures/" + filepath.Base(picture); !shown[file] {
			t.Errorf("no document shows %s", file)
		}
	}
}

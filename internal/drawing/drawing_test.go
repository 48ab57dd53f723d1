package drawing_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

var update = flag.Bool("update", false, "write what is drawn to testdata")

// Drawings don't change, and equal graphs have equal drawings.
func TestDrawings(t *testing.T) {
	for name, g := range samples.All() {
		for format, draw := range map[string]func() (string, error){
			"mmd":      func() (string, error) { return g.Mermaid(), nil },
			"dot":      func() (string, error) { return g.DOT(), nil },
			"page.svg": g.Page,
		} {
			got, err := draw()
			if err != nil {
				t.Errorf("%s.%s: %v", name, format, err)
				continue
			}
			if again, err := draw(); again != got || err != nil {
				t.Errorf("%s.%s is drawn in another way the second time, %v", name, format, err)
			}
			path := filepath.Join("testdata", name+"."+format)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is now\n%s", path, got)
			}
		}
	}
}

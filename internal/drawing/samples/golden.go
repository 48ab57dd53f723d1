package samples

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

var update = flag.Bool("update", false, "write what is drawn to testdata")

// Golden compares the drawings of all samples with the files of testdata, by format. Each is drawn twice: equal graphs have
// equal drawings.
func Golden(t *testing.T, formats map[string]func(drawing.Graph) (string, error)) {
	t.Helper()
	for name, g := range All() {
		for format, draw := range formats {
			got, err := draw(g)
			if err != nil {
				t.Errorf("%s.%s: %v", name, format, err)
				continue
			}
			if again, err := draw(g); again != got || err != nil {
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

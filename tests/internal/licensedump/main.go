// Command licensedump writes cmd/ff/licenses.txt.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/tests/internal/licenses"
)

func main() {
	root, err := filepath.Abs(".")
	if err != nil {
		log.Fatal(err)
	}
	text, err := licenses.Collect(root)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("cmd", "ff", "licenses.txt"), []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

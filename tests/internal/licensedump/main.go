// Command licensedump writes the licenses.txt of each command.
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
	for _, command := range licenses.Commands {
		text, err := licenses.Collect(root, command)
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, command.File()), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// Command apidump writes api/*.txt.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/tests/internal/api"
)

func main() {
	lists, err := api.Lists(".")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll("api", 0o755); err != nil {
		log.Fatal(err)
	}
	for name, list := range lists {
		if err := os.WriteFile(filepath.Join("api", name+".txt"), []byte(list), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

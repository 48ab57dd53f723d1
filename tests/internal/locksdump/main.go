// Command locksdump writes the tables of docs/internals/locks.md: the levels that each operation locks, and the statements
// of each level.
//
// With -check it writes nothing, and fails if the page differs from its output.
package main

import (
	"bytes"
	"flag"
	"log"
	"os"

	"github.com/flowfabric/flowfabric-go/tests/internal/locks"
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "compare instead of write")
	flag.Parse()
	page, err := locks.Page(".")
	if err != nil {
		log.Fatal("locksdump: ", err)
	}
	if *check {
		held, err := os.ReadFile(locks.Path)
		if err != nil || !bytes.Equal(held, page) {
			log.Fatalf("locksdump: %s is not what `make generate` writes", locks.Path)
		}
		return
	}
	if err := os.WriteFile(locks.Path, page, 0o644); err != nil {
		log.Fatal("locksdump: ", err)
	}
}

// Command rightsdump writes internal/rights/table.go, the rights that each role needs in the database.
//
// With -check it writes nothing, and fails if the file differs from its output.
package main

import (
	"bytes"
	"flag"
	"log"
	"os"

	"github.com/flowfabric/flowfabric-go/tests/internal/needs"
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "compare instead of write")
	flag.Parse()
	table, err := needs.Table(".")
	if err != nil {
		log.Fatal("rightsdump: ", err)
	}
	if *check {
		held, err := os.ReadFile(needs.Path)
		if err != nil || !bytes.Equal(held, table) {
			log.Fatalf("rightsdump: %s is not what `make generate` writes", needs.Path)
		}
		return
	}
	if err := os.WriteFile(needs.Path, table, 0o644); err != nil {
		log.Fatal("rightsdump: ", err)
	}
}

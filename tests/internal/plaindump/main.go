// Command plaindump lowers the budgets in tests/docs/testdata/words.txt to the counts of today. It raises none and adds none;
// without the file it records all. With packages as arguments it prints their counts and the place of each turn instead.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/flowfabric/flowfabric-go/tests/internal/plain"
)

func main() {
	counts, err := plain.Counts(".")
	if err != nil {
		log.Fatal(err)
	}
	for _, room := range os.Args[1:] {
		count := counts[room]
		if count == nil {
			log.Fatalf("there is no package %s", room)
		}
		for i, places := range count.Places {
			for _, place := range places {
				fmt.Printf("%s\t(%s)\n", place, plain.Turns[i].Name)
			}
		}
		fmt.Println(plain.Line(room, count.Rate()), "in", count.Words, "words")
	}
	if len(os.Args) > 1 {
		return
	}
	const path = "tests/docs/testdata/words.txt"
	budgets, err := plain.ReadBudgets(path)
	if err != nil {
		log.Fatal(err)
	}
	text := strings.Join(append(plain.Lowered(counts, budgets), ""), "\n")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

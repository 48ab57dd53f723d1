// Command soaks prints the pattern of the tests that FF_SOAK enlarges: those that call package soak. It takes the root of
// the modules.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"log"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/tests/internal/syntax"
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	folders, err := syntax.Read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	var tests []string
	for _, folder := range folders {
		tests = append(tests, folder.Reaching(func(node ast.Node) bool {
			return syntax.IsCall(node, "soak", "Size", "For", "On")
		})...)
	}
	if len(tests) == 0 {
		log.Fatal("no test calls package soak")
	}
	slices.Sort(tests)
	fmt.Printf("^(%s)$\n", strings.Join(slices.Compact(tests), "|"))
}

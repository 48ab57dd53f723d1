// Command release prepares a release of all released modules, or tidies modules.
//
//	release VERSION            commit and tag the version, and print the command to push them
//	release -tidy FOLDER...    run go mod tidy in the modules of these folders
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/flowfabric/flowfabric-go/tests/internal/modules"
)

func main() {
	tidy := flag.Bool("tidy", false, "run go mod tidy in the modules of the folders")
	flag.Parse()
	if err := run(*tidy, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(tidy bool, args []string) error {
	goWork, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return fmt.Errorf("find go.work: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(goWork)))
	if tidy {
		for _, folder := range args {
			if err := modules.Tidy(root, folder); err != nil {
				return err
			}
		}
		return nil
	}
	if len(args) != 1 {
		return errors.New("name the version, like VERSION=v0.1.0")
	}
	tags, err := modules.Release(root, args[0])
	if err != nil {
		return err
	}
	fmt.Printf("Prepared %s. Nothing has been pushed. To publish it:\n\n  git push --atomic origin HEAD %s\n", args[0], strings.Join(tags, " "))
	return nil
}

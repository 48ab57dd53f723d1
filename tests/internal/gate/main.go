// Command gate runs test binaries in ways without a flag of go test. The Makefile calls it.
//
//	gate built -dir DIR -run PATTERN PACKAGE...   run tests from binaries that stay in DIR, and write events for gotestsum
//	gate alone [-race] FILE                       run the tests that failed in FILE, gotestsum's events, three times alone
//	gate pace [-race] [-base REVISION | -run PATTERN] PACKAGE...
//	                                              run changed tests ten times while two programs use all processors
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// limit ends a hanging binary. The limit is far above the time on a loaded machine: all tests together take 15 minutes.
const limit = "-test.timeout=1h"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{"built": built, "alone": alone, "pace": pace, "burn": burn}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "gate: say built, alone or pace")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

// testPackage is a package with tests.
type testPackage struct{ path, folder string }

// packages returns the packages named by patterns.
func packages(ctx context.Context, patterns ...string) ([]testPackage, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, patterns...)...)
	cmd.Stderr = os.Stderr
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var found []testPackage
	for line := range strings.Lines(string(listed)) {
		importPath, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		found = append(found, testPackage{importPath, folder})
	}
	return found, nil
}

// binary returns the place of the package's test binary in a folder.
func (p testPackage) binary(folder string) string {
	return filepath.Join(folder, strings.ReplaceAll(p.path, "/", "-")+".test")
}

// build builds the package's test binary into a folder, unless the one there is up to date. As with go test, and unlike
// go test -c by itself, there is no debugging information, which takes half of the linker's time.
func (p testPackage) build(ctx context.Context, folder string, flags ...string) error {
	args := slices.Concat([]string{"test", "-vet=off", "-ldflags=-w", "-c", "-o", p.binary(folder)}, flags, []string{p.path})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the tests of %s: %w", p.path, err)
	}
	return nil
}

// command returns a run of the package's test binary in go test's folder. The end of ctx interrupts the run.
func (p testPackage) command(ctx context.Context, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binary(folder), append([]string{limit}, args...)...)
	cmd.Dir = p.folder
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// only returns the pattern of -test.run for tests by name.
func only(names []string) string {
	return "^(" + strings.Join(names, "|") + ")$"
}

// raceFlags are the flags to build with.
func raceFlags(race bool) []string {
	if race {
		return []string{"-race"}
	}
	return nil
}

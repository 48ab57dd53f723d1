// Package sqlctest puts the repository's own sqlc on PATH for tests that review projects.
//
// Otherwise the first review installs an sqlc without C, whose every start compiles its parser: two seconds of processor
// time, twice for each review.
package sqlctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// script runs sqlc, and copies the result of an earlier run on the same files, since many tests share their base. Without a
// C compiler the repository's sqlc is slow to start, too. A review generates each side below a folder base or head.
const script = `#!/bin/sh
root=$PWD
while [ "${root##*/}" != base ] && [ "${root##*/}" != head ] && [ -n "$root" ]; do root=${root%/*}; done
if [ "$1" != generate ] || [ -z "$root" ]; then exec 'TOOL' "$@"; fi
key=$( (echo "$* in ${PWD#"$root"}"; cd "$root" && find . -type f -exec sha256sum {} + | sort) | sha256sum | cut -c 1-64)
kept='KEPT'/$key
if [ -d "$kept" ]; then exec cp -R "$kept/." "$root"; fi
'TOOL' "$@" || exit
cp -R "$root" "$kept.$$" && mv -T "$kept.$$" "$kept" 2>/dev/null || rm -rf "$kept.$$"
`

// Run runs tests with sqlc on PATH, as TestMain does, and returns their exit code.
func Run(tests func() int) int {
	dir, err := onPath()
	if err != nil {
		fmt.Fprintln(os.Stderr, "put sqlc on PATH:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return tests()
}

func onPath() (dir string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "tools", "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("no folder above has tools/go.mod")
		}
		root = filepath.Dir(root)
	}
	command := exec.Command("go", "tool", "-modfile=tools/go.mod", "-n", "sqlc")
	command.Dir = root
	command.Env = append(os.Environ(), "GOWORK=off")
	tool, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find sqlc: %w", err)
	}
	if dir, err = os.MkdirTemp("", "ff-sqlc-"); err != nil {
		return "", err
	}
	text := strings.NewReplacer("TOOL", strings.TrimSpace(string(tool)), "KEPT", filepath.Join(dir, "kept")).Replace(script)
	if err := os.WriteFile(filepath.Join(dir, "sqlc"), []byte(text), 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "kept"), 0o755); err != nil {
		return "", err
	}
	return dir, os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

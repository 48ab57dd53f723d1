// Package sqlctest puts the repository's own sqlc on PATH for tests that review projects.
//
// Otherwise the first review installs an sqlc without C, whose every start compiles its parser: two seconds of processor
// time, twice for each review. See tools/sqlcserver.
package sqlctest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// script runs sqlc, and copies the result of an earlier run on the same files, since many tests share their base. A review
// generates each side below a folder base or head.
const script = `#!/bin/sh
root=$PWD
while [ "${root##*/}" != base ] && [ "${root##*/}" != head ] && [ -n "$root" ]; do root=${root%/*}; done
if [ "$1" != generate ] || [ -z "$root" ]; then exec 'TOOL' ask 'SOCKET' "$@"; fi
key=$( (echo "$* in ${PWD#"$root"}"; cd "$root" && find . -type f -exec sha256sum {} + | sort) | sha256sum | cut -c 1-64)
kept='KEPT'/$key
if [ -d "$kept" ]; then exec cp -R "$kept/." "$root"; fi
'TOOL' ask 'SOCKET' "$@" || exit
cp -R "$root" "$kept.$$" && mv -T "$kept.$$" "$kept" 2>/dev/null || rm -rf "$kept.$$"
`

// Run runs tests with sqlc on PATH, as TestMain does, and returns their exit code.
func Run(tests func() int) int {
	dir, err := os.MkdirTemp("", "ff-sqlc-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "put sqlc on PATH:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stop, err := onPath(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "put sqlc on PATH:", err)
		return 1
	}
	defer stop()
	return tests()
}

// onPath puts a script on PATH that asks the servers, and returns how to stop them.
func onPath(dir string) (stop func(), err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "tools", "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return nil, fmt.Errorf("no folder above has tools/go.mod")
		}
		root = filepath.Dir(root)
	}
	command := exec.Command("go", "tool", "-n", "sqlcserver")
	command.Dir = filepath.Join(root, "tools")
	command.Env = append(os.Environ(), "GOWORK=off")
	path, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("build tools/sqlcserver: %w", err)
	}
	tool, socket, kept := strings.TrimSpace(string(path)), filepath.Join(dir, "socket"), filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o755); err != nil {
		return nil, err
	}
	text := strings.NewReplacer("TOOL", tool, "SOCKET", socket, "KEPT", kept).Replace(script)
	if err := os.WriteFile(filepath.Join(dir, "sqlc"), []byte(text), 0o755); err != nil {
		return nil, err
	}
	if stop, err = serve(tool, socket, dir); err != nil {
		return nil, err
	}
	return stop, os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// serve starts servers, and another one whenever one ends: sqlc ends its process if it can't generate.
func serve(tool, socket, dir string) (stop func(), err error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	file, err := listener.File()
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex // of stopped and running
	var stopped bool
	running := make(map[*exec.Cmd]bool)
	start := func() *exec.Cmd {
		mutex.Lock()
		defer mutex.Unlock()
		server := exec.Command(tool, "serve")
		server.Dir, server.ExtraFiles = dir, []*os.File{file}
		if stopped || server.Start() != nil {
			return nil
		}
		running[server] = true
		return server
	}
	var servers sync.WaitGroup
	for range max(1, min(4, runtime.NumCPU())) {
		servers.Go(func() {
			for server := start(); server != nil; server = start() {
				_ = server.Wait()
				mutex.Lock()
				delete(running, server)
				mutex.Unlock()
			}
		})
	}
	return func() {
		mutex.Lock()
		stopped = true
		for server := range running {
			_ = server.Process.Kill()
		}
		mutex.Unlock()
		servers.Wait()
		_ = file.Close()
		_ = listener.Close()
	}, nil
}

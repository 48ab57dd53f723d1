package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// generatorVersion is the sqlc a review installs if there is none on PATH.
const generatorVersion = "v1.31.1"

// find returns the generator: the one on PATH, else a new one in the user's cache folder. Never one the project's
// modules name: their code is part of the change.
func find(ctx context.Context) (string, error) {
	if found, err := exec.LookPath("sqlc"); err == nil {
		return filepath.Abs(found)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", errNoGenerator
	}
	dir := filepath.Join(cache, "flowfabric-go", "sqlc-"+generatorVersion)
	tool := filepath.Join(dir, "sqlc")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if _, err := os.Stat(tool); err == nil {
		return tool, nil
	}
	compiler, err := exec.LookPath("go")
	if err != nil {
		return "", errNoGenerator
	}
	empty, err := os.MkdirTemp("", "ff-schema-review-sqlc-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(empty) }()
	command := exec.CommandContext(ctx, compiler, "install", "github.com/sqlc-dev/sqlc/cmd/sqlc@"+generatorVersion)
	command.Dir = empty                                                                                 // no module, no workspace
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOBIN="+dir, "CGO_ENABLED=0") // seconds without C, instead of minutes
	if out, err := command.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%w, and cannot be installed: %s", errNoGenerator, lastLine(string(out)))
	}
	if _, err := os.Stat(tool); err != nil {
		return "", errors.Join(errNoGenerator, err)
	}
	return tool, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// environment is the generator's: without variables with a secret, and with process plugins off.
func environment() []string {
	kept := []string{"SQLCDEBUG=processplugins=0", "SQLC_NO_UPDATE=1"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "SYSTEMROOT", "LOCALAPPDATA"} {
		if value, set := os.LookupEnv(name); set {
			kept = append(kept, name+"="+value)
		}
	}
	return kept
}

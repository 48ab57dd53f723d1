package api

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var errNoGenerator = errors.New("sqlc was not found")

// refusedError is sqlc's message about queries it refuses.
type refusedError struct {
	said  string
	place report.Place
}

func (e *refusedError) Error() string { return "sqlc: " + e.said }

// generate writes the package of a side into a copy of sqlc's input, below dir, and returns the copy.
func generate(ctx context.Context, side *project.Side, dir string) (string, error) {
	tool, err := find(ctx)
	if err != nil {
		return "", err
	}
	name := "base"
	if _, err := os.Stat(filepath.Join(dir, "head")); errors.Is(err, fs.ErrNotExist) {
		name = "head"
	}
	made := filepath.Join(dir, name)
	for _, source := range slices.Concat(side.SQLC.Schema, side.SQLC.Queries) {
		if err := copyTree(side.Dir, made, source); err != nil {
			return "", err
		}
	}
	// A pattern may name files not copied yet.
	if err := copySQL(side.Dir, made); err != nil {
		return "", err
	}
	if err := writeConfig(side, made); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, tool, "generate", "--file", configName)
	command.Dir = filepath.Join(made, path.Dir(side.SQLC.Config))
	command.Env = environment()
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		if _, exited := errors.AsType[*exec.ExitError](err); !exited || ctx.Err() != nil {
			return "", err
		}
		said := strings.ReplaceAll(out.String(), made+string(filepath.Separator), "")
		return "", &refusedError{said: strings.TrimSpace(said), place: placeIn(side, said)}
	}
	return made, nil
}

var complaint = regexp.MustCompile(`(?m)^(\S+\.sql):(\d+):`)

// placeIn finds the first line in sqlc's messages.
func placeIn(side *project.Side, said string) report.Place {
	found := complaint.FindStringSubmatch(said)
	if found == nil {
		return report.Place{File: side.SQLC.Config}
	}
	line, _ := strconv.Atoi(found[2])
	return report.Place{File: path.Join(path.Dir(side.SQLC.Config), filepath.ToSlash(found[1])), Line: line}
}

func copyTree(from, to, name string) error {
	return filepath.WalkDir(filepath.Join(from, name), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreMissing(err)
		}
		return copyFile(from, to, file)
	})
}

// copySQL copies every SQL file, so patterns in the configuration find theirs.
func copySQL(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() && strings.HasSuffix(file, ".sql") {
			return copyFile(from, to, file)
		}
		return nil
	})
}

func copyFile(from, to, file string) error {
	relative, err := filepath.Rel(from, file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	target := filepath.Join(to, relative)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, content, 0o644)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func hasGo(side *project.Side) bool {
	found, _ := filepath.Glob(filepath.Join(side.Dir, side.SQLC.Out, "*.go"))
	return len(found) > 0
}

// differs returns a file of the committed package with a difference from the generated one, or without a commit. Empty:
// none.
func differs(side *project.Side, made string) (string, error) {
	files, err := filepath.Glob(filepath.Join(made, side.SQLC.Out, "*.go"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	for _, file := range files {
		now, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name := path.Join(side.SQLC.Out, filepath.Base(file))
		committed, err := os.ReadFile(filepath.Join(side.Dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if !bytes.Equal(now, committed) {
			return name, nil
		}
	}
	return "", nil
}

package review

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// notRead returns the parts of the project that were not read and bear on the change, each with the reason.
func (r *review) notRead() ([]string, error) {
	var parts []string
	for _, side := range []*project.Side{r.head, r.base} {
		for _, u := range side.Unread {
			if u.IfChanged {
				changed, err := r.changed(u.Path)
				if err != nil {
					return nil, err
				}
				if !changed {
					continue
				}
			}
			parts = append(parts, fmt.Sprintf("`%s`: %s", u.Path, u.Why))
		}
	}
	for _, name := range r.SQLCConfigs {
		if _, err := os.Stat(filepath.Join(r.head.Dir, name)); err != nil {
			parts = append(parts, fmt.Sprintf("`%s`: --sqlc-config names it, but the change has no such file", name))
		}
	}
	if r.head.MigrationsDir == "" && !r.byCommand() {
		parts = append(parts, "the schema: no folder of migrations was found; name it with --migrations-dir, or give --migrate-command")
	}
	if r.byCommand() {
		files, err := r.changedSQL()
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			parts = append(parts, fmt.Sprintf("`%s`: %s", file, unknownStatements))
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts), nil
}

const unknownStatements = "a command applies the migrations, so the locks, the scans and the way back of single statements are not known"

// changed reports whether a file, or a file in a folder, differs between the sides.
func (r *review) changed(name string) (bool, error) {
	var all [2]map[string][]byte
	for i, side := range []*project.Side{r.base, r.head} {
		files, err := contents(side.Dir, name, "")
		if err != nil {
			return false, err
		}
		all[i] = files
	}
	return len(differing(all[0], all[1])) > 0, nil
}

// changedSQL returns the changed SQL files other than sqlc's queries and the dump.
func (r *review) changedSQL() ([]string, error) {
	before, err := contents(r.base.Dir, ".", ".sql")
	if err != nil {
		return nil, err
	}
	after, err := contents(r.head.Dir, ".", ".sql")
	if err != nil {
		return nil, err
	}
	files := slices.DeleteFunc(differing(before, after), func(file string) bool { return file == r.head.Dump || file == r.base.Dump })
	for _, side := range []*project.Side{r.base, r.head} {
		for _, q := range side.Queries {
			files = slices.DeleteFunc(files, func(file string) bool { return file == q.Place.File })
		}
	}
	return files, nil
}

func differing(before, after map[string][]byte) []string {
	var files []string
	for file, text := range after {
		if was, had := before[file]; !had || !bytes.Equal(was, text) {
			files = append(files, file)
		}
	}
	for file := range before {
		if _, has := after[file]; !has {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

// contents reads a file, or the files in a folder, with a suffix. It has no entry for a file that is missing.
func contents(dir, name, suffix string) (map[string][]byte, error) {
	files := map[string][]byte{}
	root := filepath.Join(dir, strings.TrimSuffix(name, "/"))
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular() || !strings.HasSuffix(file, suffix):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		files[path.Clean(filepath.ToSlash(relative))] = text
		return err
	})
	return files, err
}

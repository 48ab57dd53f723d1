package review

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// notRead returns the unread parts of the project related to the change, each with the reason.
func (r *review) notRead() []string {
	var parts []string
	for _, side := range []*project.Side{r.head, r.base} {
		for _, u := range side.Unread {
			if u.IfChanged && !r.changed(u.Path) {
				continue
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
	if names := project.ChangedSettings(r.base, r.head); len(names) > 0 && len(r.base.Migrations) > 0 && r.head.Tool == project.Dbmate {
		parts = append(parts, "`.env`: the change of "+strings.Join(names, ", ")+", which decides what dbmate applies and where, was not judged")
	}
	if r.byCommand() {
		for _, file := range r.changedSQL() {
			parts = append(parts, fmt.Sprintf("`%s`: %s", file, unknownStatements))
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// passOver names the folders with changed migrations, if --migrations-dir names another one. The caller chose the
// folder, so the review counts as whole.
func (r *review) passOver() {
	for _, dir := range slices.Concat(r.base.PassedOver, r.head.PassedOver) {
		if r.changed(dir) {
			r.skip("migrations", "the change touches those of %s; --migrations-dir names %s", dir, r.MigrationsDir)
		}
	}
}

const unknownStatements = "a command applies the migrations, so the locks, the scans and the way back of single statements are not known"

// changed reports whether a file, or a file in a folder, differs between the sides. A path that leads out of the project
// is not read, and counts as changed.
func (r *review) changed(name string) bool { return r.changedFrom(name, map[string]bool{}) }

// changedFrom follows the links in the project, each once: seen are the paths compared so far.
func (r *review) changedFrom(name string, seen map[string]bool) bool {
	name = path.Clean(filepath.ToSlash(name))
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	return len(differing(contents(r.base.Dir, name, ""), contents(r.head.Dir, name, ""))) > 0 ||
		project.OmittedChanged(r.base, r.head, name, func(to string) bool { return r.changedFrom(to, seen) })
}

// changedSQL returns the changed SQL files other than sqlc's queries and the dump.
func (r *review) changedSQL() []string {
	before, after := contents(r.base.Dir, ".", ".sql"), contents(r.head.Dir, ".", ".sql")
	files := slices.DeleteFunc(differing(before, after), func(file string) bool { return file == r.head.Dump || file == r.base.Dump })
	for _, side := range []*project.Side{r.base, r.head} {
		for _, q := range side.Queries {
			files = slices.DeleteFunc(files, func(file string) bool { return file == q.Place.File })
		}
	}
	return files
}

// content is a file, for a comparison.
type content struct {
	sum    [sha256.Size]byte
	failed bool // unreadable, so it counts as changed
}

func differing(before, after map[string]content) []string {
	var files []string
	for file, is := range after {
		if was, had := before[file]; !had || is.failed || was != is {
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

// contents sums a file, or the files in a folder, with a suffix. A missing file has no entry.
func contents(dir, name, suffix string) map[string]content {
	files := map[string]content{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return map[string]content{name: {failed: true}}
	}
	defer root.Close()
	tree := root.FS()
	// The function returns no error of a file, so the walk reaches the others.
	_ = fs.WalkDir(tree, name, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			files[file] = content{failed: true}
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.Type().IsRegular() && strings.HasSuffix(file, suffix):
			files[file] = summed(tree, file)
		}
		return nil
	})
	return files
}

func summed(tree fs.FS, name string) content {
	file, err := tree.Open(name)
	if err != nil {
		return content{failed: true}
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return content{failed: true}
	}
	return content{sum: [sha256.Size]byte(hash.Sum(nil))}
}

package project

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Options are facts a project's files do not show.
type Options struct {
	// MigrationsDir is the folder of the migrations, relative to the root. Empty: the only folder with migrations.
	MigrationsDir string
	// PreferredDir is the folder of the migrations on the other side of the comparison. Without MigrationsDir this folder
	// is taken if there are migrations on this side too, so a change does not choose the reviewed folder.
	PreferredDir string
	// MigrationsTable is the migration tool's. Empty: the default, which for dbmate DBMATE_MIGRATIONS_TABLE in .env sets.
	MigrationsTable string
	// Tool applies the migrations. Empty: the files decide. [Command]: the migrations are not read.
	Tool Tool
	// SQLCConfigs are sqlc's configurations, relative to the root. Empty: all of the project.
	SQLCConfigs []string
}

// Files are the files of a project at a revision.
type Files struct {
	dir, revision string
	omitted       map[string]Omitted
}

// Extract writes the files of the project in dir at a revision into a new folder at target. An empty revision means the
// present files, except files ignored by git.
func Extract(ctx context.Context, dir, revision, target string) (*Files, error) {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, err
	}
	copyInto := copyTree
	if revision != "" {
		copyInto = func(ctx context.Context, dir, target string) (map[string]Omitted, error) {
			return archive(ctx, dir, revision, target)
		}
	}
	omitted, err := copyInto(ctx, dir, target)
	if err != nil {
		return nil, err
	}
	return &Files{dir: target, revision: revision, omitted: omitted}, nil
}

// Read reads the project.
func (f *Files) Read(opts Options) (*Side, error) {
	side, err := readWithout(f.dir, opts, f.omitted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", named(f.revision), err)
	}
	side.Revision = f.revision
	return side, nil
}

func named(revision string) string {
	if revision == "" {
		return "the working folder"
	}
	return "revision " + revision
}

// Read reads the project in dir, without a copy.
func Read(dir string, opts Options) (*Side, error) { return readWithout(dir, opts, nil) }

func readWithout(dir string, opts Options, omitted map[string]Omitted) (*Side, error) {
	side := &Side{Dir: dir, Omitted: omitted}
	if err := side.readSQLC(opts.SQLCConfigs); err != nil {
		return nil, err
	}
	if err := side.readMigrations(opts); err != nil {
		return nil, err
	}
	if err := side.readQueries(); err != nil {
		return nil, err
	}
	side.findDump()
	side.unreadOmitted(opts)
	return side, nil
}

// MergeBase returns the newest common ancestor of both revisions: the start of a pull request. An empty revision is
// the working folder's.
func MergeBase(ctx context.Context, dir, base, head string) (string, error) {
	if head == "" {
		head = "HEAD"
	}
	out, err := git(ctx, dir, nil, "merge-base", "--", base, head)
	return strings.TrimSpace(string(out)), err
}

// Commit returns the commit a revision names.
func Commit(ctx context.Context, dir, revision string) (string, error) {
	out, err := git(ctx, dir, nil, "rev-parse", "--verify", "--end-of-options", revision+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// safely are options with precedence over the repository's configuration, which can name programs.
var safely = []string{
	"-c", "core.fsmonitor=false",
	"-c", "core.hooksPath=" + os.DevNull,
	"-c", "core.pager=cat",
	"-c", "core.sshCommand=false",
	"-c", "protocol.allow=never",
	"-c", "uploadpack.packObjectsHook=",
	"-c", "core.attributesFile=" + os.DevNull,
}

func git(ctx context.Context, dir string, input io.Reader, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "git", append(slices.Clone(safely), arguments...)...)
	command.Dir, command.Stdin = dir, input
	command.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_PAGER=cat")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = errors.New(said)
		}
		return nil, fmt.Errorf("git %s: %w", arguments[0], err)
	}
	return stdout.Bytes(), nil
}

// archive writes the files of dir at the revision as in git: without filters, which are programs, and without the
// attributes by which a change could hide files. It returns the symbolic links and submodules, which are left out.
func archive(ctx context.Context, dir, revision, target string) (map[string]Omitted, error) {
	if strings.HasPrefix(revision, "-") {
		return nil, fmt.Errorf("%q is no revision", revision)
	}
	prefix, err := Prefix(ctx, dir)
	if err != nil {
		return nil, err
	}
	tree := revision + ":" + prefix
	listed, err := git(ctx, dir, nil, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return nil, err
	}
	omitted, links := map[string]Omitted{}, map[string]bool{}
	var names []string
	var wanted bytes.Buffer
	for entry := range strings.SplitSeq(string(listed), "\x00") {
		about, name, found := strings.Cut(entry, "\t")
		fields := strings.Fields(about) // mode, type, object
		if !found || len(fields) != 3 {
			continue
		}
		if fields[0] == "160000" {
			omitted[name] = Omitted{Target: fields[2]}
			continue
		}
		links[name] = fields[0] == "120000"
		names = append(names, name)
		fmt.Fprintln(&wanted, fields[2])
	}
	packed, err := git(ctx, dir, &wanted, "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return omitted, unpack(bufio.NewReader(bytes.NewReader(packed)), names, func(name string, content io.Reader) error {
		if !links[name] {
			return write(root, name, content)
		}
		to, err := io.ReadAll(content)
		omitted[name] = Omitted{Link: true, Target: string(to)}
		return err
	})
}

// unpack passes the objects printed by git to take, each after a line with the size.
func unpack(packed *bufio.Reader, names []string, take func(name string, content io.Reader) error) error {
	for _, name := range names {
		head, err := packed.ReadString('\n')
		if err != nil {
			return err
		}
		fields := strings.Fields(head) // object, type, size
		if len(fields) != 3 {
			return fmt.Errorf("git does not have %s: %s", name, strings.TrimSpace(head))
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		if err := take(name, io.LimitReader(packed, size)); err != nil {
			return err
		}
		if _, err := packed.Discard(1); err != nil {
			return err
		}
	}
	return nil
}

func write(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// copyTree copies the files of a folder, in a git repository except ignored ones. It returns the symbolic links and
// submodules, which are left out.
func copyTree(ctx context.Context, dir, target string) (map[string]Omitted, error) {
	names, err := tracked(ctx, dir)
	if err != nil {
		if names, err = all(dir); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	omitted, commits := map[string]Omitted{}, submodules(ctx, dir)
	for _, name := range names {
		name = strings.TrimSuffix(name, "/") // git's mark of a repository that is no submodule yet
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			continue // deleted, but not yet from git's index
		}
		if !info.Mode().IsRegular() {
			if o, is := omit(ctx, path, info, commits[name]); is {
				omitted[filepath.ToSlash(name)] = o
			}
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		err = errors.Join(write(root, name, file), file.Close())
		if err != nil {
			return nil, err
		}
	}
	return omitted, nil
}

func tracked(ctx context.Context, dir string) ([]string, error) {
	out, err := git(ctx, dir, nil, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

func all(dir string) ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

package project

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sqlFiles returns the SQL files a path of sqlc's configuration names: a file, a folder's files, or the matches of a
// pattern. "**" matches folders of any depth.
func (s *Side) sqlFiles(name string) ([]string, error) {
	info, err := os.Stat(filepath.Join(s.Dir, name))
	switch {
	case err == nil && info.IsDir():
		return s.sqlFilesIn(name)
	case err == nil:
		return []string{name}, nil
	case !strings.ContainsAny(name, "*?["):
		return nil, nil
	}
	pattern, err := globPattern(name)
	if err != nil {
		return nil, err
	}
	var files []string
	err = fs.WalkDir(os.DirFS(s.Dir), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !pattern.MatchString(file) {
			return err
		}
		if entry.IsDir() {
			more, err := s.sqlFilesIn(file)
			files = append(files, more...)
			return err
		}
		if strings.HasSuffix(file, ".sql") && path.Base(file)[0] != '.' {
			files = append(files, file)
		}
		return nil
	})
	slices.Sort(files)
	return slices.Compact(files), err
}

func (s *Side) sqlFilesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, dir))
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && strings.HasSuffix(entry.Name(), ".sql") && entry.Name()[0] != '.' {
			files = append(files, path.Join(dir, entry.Name()))
		}
	}
	return files, err
}

// globPattern turns a pattern of paths into an expression.
func globPattern(glob string) (*regexp.Regexp, error) {
	expression := regexp.QuoteMeta(glob)
	for _, by := range [][2]string{
		{`\*\*/`, `(?:.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}, {`\?`, `[^/]`}, {`\[`, `[`}, {`\]`, `]`},
	} {
		expression = strings.ReplaceAll(expression, by[0], strings.ReplaceAll(by[1], "*", "\x00"))
	}
	return regexp.Compile("^" + strings.ReplaceAll(expression, "\x00", "*") + "$")
}

var (
	// configLike are names of files with a possible configuration of sqlc, if a program names the file.
	configLike = regexp.MustCompile(`(?i)^[^/]*sqlc[^/]*\.(ya?ml|json)$`)
	queryLine  = regexp.MustCompile(`(?m)^--\s*name:\s*\w+\s+:\w+`)
)

// unreadQueries reports queries no configuration names: queries beside a configuration of another name, and, without
// any configuration, files like sqlc's.
func (s *Side) unreadQueries() error {
	read := map[string]bool{}
	for _, p := range s.Packages {
		read[p.Config] = true
	}
	return fs.WalkDir(os.DirFS(s.Dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		switch {
		case entry.IsDir() && skipped(base):
			return fs.SkipDir
		case entry.IsDir() || read[name]:
		case configLike.MatchString(base) && s.configures(name):
			s.unread(name, "it looks like a configuration of sqlc: name it with --sqlc-config")
		case len(s.Packages) == 0 && strings.HasSuffix(base, ".sql"):
			text, err := os.ReadFile(filepath.Join(s.Dir, name))
			if err != nil {
				return err
			}
			if queryLine.Match(text) {
				s.unread(path.Dir(name), "it has queries in the form of sqlc, but there is no configuration: name one with --sqlc-config")
			}
		}
		return nil
	})
}

// configures reports whether a file has a package for PostgreSQL.
func (s *Side) configures(name string) bool {
	other := &Side{Dir: s.Dir}
	return other.readConfig(name) == nil && len(other.Packages) > 0
}

// Qualify labels the packages and the queries of all sides, if a side has several packages. A label is the package's
// name, or the folder if a side has several packages of the name.
func Qualify(sides ...*Side) {
	if !slices.ContainsFunc(sides, func(s *Side) bool { return len(s.Packages) > 1 }) {
		return
	}
	shared := map[string]bool{} // names
	for _, s := range sides {
		known := map[string]bool{}
		for _, p := range s.Packages {
			shared[p.Package] = shared[p.Package] || known[p.Package]
			known[p.Package] = true
		}
	}
	for _, s := range sides {
		labels := map[string]string{}
		for _, p := range s.Packages {
			p.Label = p.Package
			if shared[p.Package] {
				p.Label = cmp.Or(p.Out, strings.Join(p.Queries, ","), p.Package)
			}
			labels[p.id()] = p.Label
		}
		for i, q := range s.Queries {
			if label := labels[q.Package]; label != "" {
				s.Queries[i].Name = label + "." + q.Name
			}
		}
	}
}

// bare returns the name without the package's label.
func (q Query) bare() string { return q.Name[strings.LastIndex(q.Name, ".")+1:] }

// Only returns the side as if p was the only package. Nil: no package.
func (s *Side) Only(p *SQLC) *Side {
	only := *s
	only.SQLC, only.Packages, only.Queries = p, nil, nil
	if p == nil {
		return &only
	}
	only.Packages = []*SQLC{p}
	for _, q := range s.Queries {
		if q.Package == p.id() {
			q.Name = q.bare()
			only.Queries = append(only.Queries, q)
		}
	}
	return &only
}

// Counterpart returns the side's package for another side's: the one with the same folder, or else with the same name.
// Nil: there is none.
func (s *Side) Counterpart(of *SQLC) *SQLC {
	for _, same := range []func(p *SQLC) bool{
		func(p *SQLC) bool { return p.Out == of.Out && p.Package == of.Package },
		func(p *SQLC) bool { return p.Out == of.Out && p.Out != "" },
		func(p *SQLC) bool { return p.Package == of.Package },
	} {
		if i := slices.IndexFunc(s.Packages, same); i >= 0 {
			return s.Packages[i]
		}
	}
	return nil
}

package project

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Omitted is a symbolic link or a submodule. Neither is part of a side's copy.
type Omitted struct {
	Link bool
	// Target is the text of a link, or the commit of a submodule.
	Target string
}

// omit returns the entry for a link or a submodule of the working folder. staged is the submodule's commit in git's
// index.
func omit(ctx context.Context, file string, info os.FileInfo, staged string) (Omitted, bool) {
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(file)
		return Omitted{Link: true, Target: target}, err == nil
	case info.IsDir():
		// Without a .git of its own, git would answer for the repository around it.
		if _, err := os.Lstat(filepath.Join(file, ".git")); err == nil {
			if head, err := git(ctx, file, nil, "rev-parse", "HEAD"); err == nil {
				staged = strings.TrimSpace(string(head))
			}
		}
		return Omitted{Target: staged}, true
	}
	return Omitted{}, false
}

// submodules returns the commits of the submodules in git's index. There are none if dir is in no repository.
func submodules(ctx context.Context, dir string) map[string]string {
	listed, err := git(ctx, dir, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return nil
	}
	commits := map[string]string{}
	for entry := range strings.SplitSeq(string(listed), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(about); len(fields) == 3 && fields[0] == "160000" {
			commits[name] = fields[1]
		}
	}
	return commits
}

// unreadOmitted reports the links and submodules with a possible effect on the result. A tool follows a link to a
// migration, so a link counts even if unchanged.
func (s *Side) unreadOmitted(opts Options) {
	for _, name := range slices.Sorted(maps.Keys(s.Omitted)) {
		why := "a submodule, whose files the review does not read"
		if s.Omitted[name].Link {
			why = "a symbolic link, which the review does not follow"
		}
		switch isSQL := strings.HasSuffix(name, ".sql"); {
		case isSQL && s.MigrationsDir != "" && isBelow(name, s.MigrationsDir):
			s.unread(name, why)
		case isSQL && !slices.ContainsFunc(strings.Split(name, "/"), skipped), s.bears(name, opts):
			s.unreadIfChanged(name, why)
		}
	}
}

// bears reports whether a path is read by the review, or leads to such a path.
func (s *Side) bears(name string, opts Options) bool {
	base := path.Base(name)
	if configLike.MatchString(base) || name == ".env" || base == "atlas.sum" || base == "tern.conf" || strings.Contains(strings.ToLower(base), "migrat") {
		return true
	}
	read := []string{s.MigrationsDir, filepath.ToSlash(opts.MigrationsDir), opts.PreferredDir, s.Dump}
	for _, p := range s.Packages {
		read = slices.Concat(read, p.Schema, p.Queries, []string{p.Out})
	}
	return slices.ContainsFunc(read, func(other string) bool {
		if other == "" {
			return false
		}
		if i := strings.IndexAny(other, "*?["); i >= 0 {
			other = path.Dir(other[:i] + "x") // the folder in which the pattern begins
		}
		other = path.Clean(other)
		return isBelow(name, other) || isBelow(other, name)
	})
}

// isBelow reports whether a path is dir or in dir.
func isBelow(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

// OmittedChanged reports whether a link or submodule at a path, or in a folder, differs between the sides. changed does
// so for the target of a link, if in the project.
func OmittedChanged(base, head *Side, name string, changed func(name string) bool) bool {
	for _, side := range []*Side{base, head} {
		for at, o := range side.Omitted {
			if !isBelow(at, name) {
				continue
			}
			was, had := base.Omitted[at]
			if is, has := head.Omitted[at]; had != has || was != is {
				return true
			}
			if to := path.Join(path.Dir(at), filepath.ToSlash(o.Target)); o.Link && !path.IsAbs(o.Target) && isInside(to) && changed(to) {
				return true
			}
		}
	}
	return false
}

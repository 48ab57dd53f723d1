package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a range of lines, both included.
type span struct{ first, last int }

func (s span) overlaps(other span) bool { return s.first <= other.last && other.first <= s.last }

// changedTests returns the names of the tests changed since the working tree left base, by the folder of their package.
func changedTests(ctx context.Context, base string) (map[string][]string, error) {
	top, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	top = strings.TrimSpace(top)
	fork, err := git(ctx, "merge-base", base, "HEAD")
	if err != nil {
		return nil, err
	}
	diff, err := git(ctx, "-C", top, "diff", "--unified=0", "--no-color", "--no-ext-diff", strings.TrimSpace(fork), "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	changes := changedLines(diff)
	added, err := git(ctx, "-C", top, "ls-files", "--others", "--exclude-standard", "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	for _, file := range strings.Fields(added) {
		changes[file] = []span{{1, 1 << 30}}
	}
	changed := make(map[string][]string)
	for file, lines := range changes {
		source, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			return nil, err
		}
		names, err := testsAt(source, lines)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		folder := filepath.Join(top, filepath.Dir(file))
		changed[folder] = append(changed[folder], names...)
	}
	for folder := range changed {
		slices.Sort(changed[folder])
	}
	return changed, nil
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changedLines returns the lines of the new files a diff without context changes. Where lines were only removed, the
// result has the two around the gap. Removed files are left out.
func changedLines(diff string) map[string][]span {
	changes := make(map[string][]span)
	file := ""
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			file = ""
			if name != "/dev/null" {
				file = strings.TrimPrefix(name, "b/")
			}
			continue
		}
		match := hunk.FindStringSubmatch(line)
		if match == nil || file == "" {
			continue
		}
		first, _ := strconv.Atoi(match[1]) // digits
		lines := span{first, first}
		if match[2] == "0" {
			lines.last++
		} else if count, err := strconv.Atoi(match[2]); err == nil {
			lines.last = first + count - 1
		}
		changes[file] = append(changes[file], lines)
	}
	return changes
}

// testsAt returns the tests of a file changed with the lines: the tests with a changed line, or all if another
// declaration does. Imports alone change nothing.
func testsAt(source []byte, lines []span) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	hit := func(from, to token.Pos) bool {
		return slices.ContainsFunc(lines, span{files.Position(from).Line, files.Position(to).Line}.overlaps)
	}
	var all, hits []string
	shared := false
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if isTest(d) {
				all = append(all, d.Name.Name)
				if hit(d.Pos(), d.End()) {
					hits = append(hits, d.Name.Name)
				}
				continue
			}
			shared = shared || hit(d.Pos(), d.End())
		case *ast.GenDecl:
			shared = shared || d.Tok != token.IMPORT && hit(d.Pos(), d.End())
		}
	}
	if shared {
		return all, nil
	}
	return hits, nil
}

// isTest reports whether go test runs the function as a test.
func isTest(f *ast.FuncDecl) bool {
	rest, ok := strings.CutPrefix(f.Name.Name, "Test")
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && f.Recv == nil && f.Name.Name != "TestMain" && !unicode.IsLower(first)
}

// matching returns the package's tests whose names match a pattern of -test.run.
func (p testPackage) matching(run string) ([]string, error) {
	top, _, _ := strings.Cut(run, "/")
	pattern, err := regexp.Compile(top)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(p.folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		tests, err := testsAt(source, []span{{1, 1 << 30}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, test := range tests {
			if pattern.MatchString(test) {
				names = append(names, test)
			}
		}
	}
	return names, nil
}

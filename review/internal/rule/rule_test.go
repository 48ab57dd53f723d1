package rule_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const module = "../.."

func TestRulesAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rule.All() {
		if seen[r.Name] {
			t.Errorf("two rules have the name %s", r.Name)
		}
		seen[r.Name] = true
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r.Name) {
			t.Errorf("%q is no name", r.Name)
		}
		if len(r.Severities) == 0 || r.About == "" || strings.HasSuffix(r.About, ".") {
			t.Errorf("%s lacks a severity or a sentence: %+v", r.Name, r)
		}
		for _, name := range r.Severities {
			if _, err := report.ParseSeverity(name); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	}
}

// The table of docs/schema-review.md has exactly the rules here, with all severities and the sentence of each.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(module, "../docs/schema-review.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Rules\n")
	var documented []string
	for line := range strings.Lines(table) {
		if row := strings.TrimSpace(line); strings.HasPrefix(row, "| ") && !strings.HasPrefix(row, "| rule ") && !strings.HasPrefix(row, "| --- ") {
			documented = append(documented, row)
		}
	}
	var want []string
	for _, r := range rule.All() {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", r.Name, strings.Join(r.Severities, ", "), r.About))
	}
	for _, row := range want {
		if !slices.Contains(documented, row) {
			t.Errorf("docs/schema-review.md lacks the row\n%s", row)
		}
	}
	if len(documented) != len(want) {
		t.Errorf("docs/schema-review.md has %d rules, want %d", len(documented), len(want))
	}
}

// The code takes the names of rules from this package, and uses each.
func TestCodeUsesTheRegistry(t *testing.T) {
	used := map[string]bool{}
	eachFile(t, func(file string, tree *ast.File) {
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					if _, known := rule.ByName(text); known {
						t.Errorf("%s has the name of a rule as a text: %s", file, n.Value)
					}
				}
			case *ast.KeyValueExpr:
				if key, is := n.Key.(*ast.Ident); is && key.Name == "Rule" {
					if text, is := n.Value.(*ast.BasicLit); is {
						t.Errorf("%s has a rule that is not in the registry: %s", file, text.Value)
					}
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					field, is := to.(*ast.SelectorExpr)
					if is && field.Sel.Name == "Rule" && i < len(n.Rhs) {
						if text, is := n.Rhs[i].(*ast.BasicLit); is {
							t.Errorf("%s has a rule that is not in the registry: %s", file, text.Value)
						}
					}
				}
			case *ast.SelectorExpr:
				if from, is := n.X.(*ast.Ident); is && from.Name == "rule" {
					used[n.Sel.Name] = true
				}
			}
			return true
		})
	})
	for name, in := range declared(t) {
		if !used[name] {
			t.Errorf("nothing finds %s of %s", name, in)
		}
	}
}

// declared returns the variables of this package that hold rules, with their files.
func declared(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if is && len(spec.Values) == 1 && len(spec.Names) == 1 && spec.Names[0].IsExported() {
				names[spec.Names[0].Name] = file
			}
			return true
		})
	}
	if len(names) != len(rule.All()) {
		t.Errorf("%d variables have %d rules", len(names), len(rule.All()))
	}
	return names
}

// eachFile visits the module's files, without tests and this package.
func eachFile(t *testing.T, visit func(file string, tree *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(module, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || file == filepath.Join(module, "internal/rule")):
			return filepath.SkipDir
		case !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err == nil {
			visit(file, tree)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The cases of the corpus name rules that exist, and severities that these have.
func TestCorpusNamesRules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(module, "testdata/corpus/*/*/expected.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Rule, Severity string }
		if err := yaml.Unmarshal(text, &want); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want.Rule == "" {
			continue
		}
		r, known := rule.ByName(want.Rule)
		if !known || want.Severity != "" && !slices.Contains(r.Severities, want.Severity) {
			t.Errorf("%s: no rule is %s %s", file, want.Severity, want.Rule)
		}
	}
}

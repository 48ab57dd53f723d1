package docs

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/go/packages"
)

// configured are the types whose fields have defaults.
var configured = []string{
	"engine.Config", "engine.ExecutionSpec", "engine.FlowSpec", "engine.Node", "engine.Edge", "engine.Growth", "engine.EdgeStaging", "engine.StagedEdge", "engine.Kind", "engine.ClaimSpec",
	"interop.GrantSpec", "interop.WorkerSpec", "interop.GrantedClaim", "interop.ResumedClaim", "interop.Reclaim", "interop.EligibleFilter",
	"id.Partitions", "policy.Execution", "policy.Retry", "worker.Config", "reconcile.Config", "schema.Options", "events.Options", "events.Filter", "events.Consumer",
}

// notYet are constants that this version does not have.
var notYet = []string{"id.MaxSignalKey", "id.MaxUsageKey"}

// TestDocsDefaultsMatchTheCode compares the tables of docs/defaults.md with the fields, their comments, and the constants.
func TestDocsDefaultsMatchTheCode(t *testing.T) {
	t.Parallel()
	rooms := sources(t)
	document := readDocument(t, "docs/defaults.md")

	listed := make(map[string]bool)
	used := make(map[string]bool) // constants
	for _, row := range document.table("Field", "Default", "Constant") {
		field, value, name := row[0], row[1], row[2]
		if listed[field] {
			t.Errorf("%s stands there twice", field)
		}
		listed[field] = true
		comment, ok := fieldComment(rooms, field)
		if !ok {
			t.Errorf("there is no %s", field)
			continue
		}
		if name == "" {
			continue
		}
		used[name] = true
		held, ok := constantValue(rooms, name)
		if !ok {
			t.Errorf("%s: there is no %s", field, name)
			continue
		}
		if value != held && !sameValue(value, held) {
			t.Errorf("%s: the table says %s, %s is %s", field, value, name, held)
		}
		_, short, _ := strings.Cut(name, ".")
		said := regexp.MustCompile(`[Dd]efault:? ` + regexp.QuoteMeta(value) + `(\W|$)|\[(\w+\.)?` + short + `\]`).MatchString(comment)
		if strings.Contains(comment, "efault") && !said {
			t.Errorf("%s: the table says %s, its comment: %s", field, value, comment)
		}
	}
	for _, row := range document.table("Limit", "Value", "Of") {
		name, value := row[0], row[1]
		used[name] = true
		if comment, ok := fieldComment(rooms, name); ok { // without a constant of its own
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`).MatchString(comment) {
				t.Errorf("the table says %s, the comment of %s: %s", value, name, comment)
			}
		} else if held, ok := constantValue(rooms, name); !ok {
			t.Errorf("there is no %s", name)
		} else if !sameValue(value, held) {
			t.Errorf("the table says %s, %s is %s", value, name, held)
		}
	}
	for _, typeName := range configured {
		room, name, _ := strings.Cut(typeName, ".")
		structure := rooms[room].Types.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		for field := range structure.Fields() {
			if field.Exported() && !listed[typeName+"."+field.Name()] {
				t.Errorf("%s.%s is missing", typeName, field.Name())
			}
		}
	}
	limit := regexp.MustCompile(`^(?:Default|Max)[A-Z]|^[A-Z][a-z]+Limit$`)
	for room, p := range rooms {
		if !isPublic(room) {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			full := room + "." + name
			c, ok := p.Types.Scope().Lookup(name).(*types.Const)
			number := ok && c.Val().Kind() != constant.String // no name of an action
			if number && c.Exported() && limit.MatchString(name) && !used[full] && !slices.Contains(notYet, full) {
				t.Errorf("%s is missing", full)
			}
			if ok && used[full] && !isApplied(rooms, c) {
				t.Errorf("nothing applies %s", full)
			}
		}
	}
}

// fieldComment returns the comment of a field, such as engine.Config.Log.
func fieldComment(rooms map[string]*packages.Package, field string) (comment string, ok bool) {
	path := strings.Split(field, ".")
	if len(path) != 3 || rooms[path[0]] == nil {
		return "", false
	}
	for _, file := range rooms[path[0]].Syntax {
		for node := range ast.Preorder(file) {
			spec, isType := node.(*ast.TypeSpec)
			if !isType || spec.Name.Name != path[1] {
				continue
			}
			structure, isStruct := spec.Type.(*ast.StructType)
			if !isStruct {
				continue
			}
			for _, f := range structure.Fields.List {
				if slices.ContainsFunc(f.Names, func(name *ast.Ident) bool { return name.Name == path[2] }) {
					text := strings.Fields(f.Doc.Text() + " " + f.Comment.Text())
					return strings.Join(text, " "), true
				}
			}
		}
	}
	return "", false
}

// constantValue returns the value of a constant such as engine.MaxBatch: a duration in the form of time.
func constantValue(rooms map[string]*packages.Package, name string) (string, bool) {
	room, name, _ := strings.Cut(name, ".")
	if rooms[room] == nil {
		return "", false
	}
	c, ok := rooms[room].Types.Scope().Lookup(name).(*types.Const)
	if !ok {
		return "", false
	}
	if c.Type().String() == "time.Duration" {
		ns, _ := constant.Int64Val(c.Val())
		return time.Duration(ns).String(), true
	}
	return c.Val().ExactString(), true
}

// sameValue reports whether a value as people write it, "1,000", "64 KiB", "1.5 s", is that of a constant.
func sameValue(written, held string) bool {
	unit := 1
	if number, ok := strings.CutSuffix(written, " MiB"); ok {
		written, unit = number, 1<<20
	} else if number, ok := strings.CutSuffix(written, " KiB"); ok {
		written, unit = number, 1<<10
	}
	if n, err := strconv.Atoi(strings.ReplaceAll(written, ",", "")); err == nil {
		return strconv.Itoa(n*unit) == held
	}
	d, err := time.ParseDuration(strings.ReplaceAll(written, " ", ""))
	return err == nil && d.String() == held
}

// isApplied reports whether any package uses a constant, or the internal one from which it has its value.
func isApplied(rooms map[string]*packages.Package, c *types.Const) bool {
	for _, p := range rooms {
		for _, object := range p.TypesInfo.Uses {
			if object.Name() == c.Name() && object.Pkg() != nil &&
				(object.Pkg().Path() == c.Pkg().Path() || strings.HasPrefix(object.Pkg().Path(), module+"/internal/")) {
				return true
			}
		}
	}
	return false
}

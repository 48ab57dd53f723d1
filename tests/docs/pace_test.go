package docs

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/tests/internal/syntax"
)

// A test that depends on the pace of the machine gets a comment on the line, the line before or its function, which says
// why:
//
//	time.Sleep(d) //pace:allow the test is about the pause itself
const allowance = "//pace:allow"

// shortestTimeout is the length from which on a context's timeout only ends tests that hang.
const shortestTimeout = 10 * time.Minute

// TestNoTestDependsOnThePace refuses code that makes a test fail on a slow machine, or wait longer than it has to:
// sleeping, timers, comparisons of how long something took, and contexts with short timeouts. Package
// internal/pgtest/progress waits for progress. In a bubble of testing/synctest the clock is the test's own, so
// everything is allowed.
func TestNoTestDependsOnThePace(t *testing.T) {
	t.Parallel()
	folders, err := syntax.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		for _, complaint := range paceOf(folder) {
			t.Error(complaint)
		}
	}
}

func TestPaceCheckFindsEachCase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ source, want string }{
		"sleep":                 {`func TestA(t *testing.T) { time.Sleep(1) }`, "time.Sleep"},
		"since":                 {`func TestA(t *testing.T) { if time.Since(began) > time.Second { } }`, "compares"},
		"since, kept":           {`func TestA(t *testing.T) { took := time.Since(began); if took > time.Second { } }`, "compares"},
		"since, derived":        {`func TestA(t *testing.T) { took := int(time.Since(began) / 20); if most := took + 1; n > most { } }`, "compares"},
		"since, in a loop":      {`func TestA(t *testing.T) { for time.Since(began) < time.Second { } }`, "compares"},
		"sub":                   {`func TestA(t *testing.T) { if time.Now().Sub(began) > time.Second { } }`, "compares"},
		"after":                 {`func TestA(t *testing.T) { if time.Now().After(deadline) { } }`, "compares"},
		"since, logged":         {`func TestA(t *testing.T) { took := time.Since(began); t.Log(took) }`, ""},
		"a deadline":            {`func TestA(t *testing.T) { select { case <-c: case <-time.After(time.Minute): t.Fatal() } }`, "time.After"},
		"a timer":               {`func TestA(t *testing.T) { time.AfterFunc(time.Minute, stop) }`, "time.AfterFunc"},
		"timeout":               {`func TestA(t *testing.T) { context.WithTimeout(ctx, 9*time.Minute) }`, "context.WithTimeout"},
		"timeout by name":       {`const d = time.Second; func TestA(t *testing.T) { context.WithTimeout(ctx, d) }`, "context.WithTimeout"},
		"timeout, unknown":      {`func TestA(t *testing.T) { context.WithTimeout(ctx, f()) }`, "context.WithTimeout"},
		"timeout, long":         {`const d = 10; func TestA(t *testing.T) { context.WithTimeout(ctx, d*time.Minute) }`, ""},
		"deadline":              {`func TestA(t *testing.T) { context.WithDeadline(ctx, time.Now().Add(time.Hour)) }`, "context.WithDeadline"},
		"allowed":               {"func TestA(t *testing.T) {\n\ttime.Sleep(1) //pace:allow for a reason\n}", ""},
		"allowed above":         {"func TestA(t *testing.T) {\n\t//pace:allow for a reason\n\ttime.Sleep(1)\n}", ""},
		"allowed in a function": {"//pace:allow for a reason\nfunc TestA(t *testing.T) {\n\n\ttime.Sleep(1)\n}", ""},
		"allowed elsewhere":     {"func TestA(t *testing.T) {\n\ttime.Sleep(1)\n\n\t//pace:allow for a reason\n}", "time.Sleep; nothing needs"},
		"no reason":             {"func TestA(t *testing.T) {\n\ttime.Sleep(1) //pace:allow\n}", "no reason"},
		"nothing to allow":      {"func TestA(t *testing.T) {\n\tf() //pace:allow for a reason\n}", "nothing needs"},
		"a bubble":              {`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		"beside a bubble":       {`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { }); time.Sleep(1) }`, "time.Sleep"},
		"a helper of bubbles":   {`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { f() }) }; func f() { time.Sleep(1) }`, ""},
		"a helper of others":    {`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { f() }); f() }; func f() { time.Sleep(1) }`, "time.Sleep"},
		"a function that makes bubbles": {`func TestA(t *testing.T) { in(t, func() { time.Sleep(1) }) }
			func in(t *testing.T, f func()) { synctest.Test(t, func(t *testing.T) { f() }) }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "a_test.go", "package a\n"+c.source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(paceOf(&syntax.Folder{Fset: fset, Files: map[string]*ast.File{"a_test.go": file}}), "; ")
			if c.want == "" && got != "" {
				t.Errorf("refused: %s", got)
			}
			for want := range strings.SplitSeq(c.want, "; ") {
				if !strings.Contains(got, want) {
					t.Errorf("got %q, want a complaint with %q", got, want)
				}
			}
		})
	}
}

// pace is the check of one folder.
type pace struct {
	*syntax.Folder
	bubbles    []ast.Node // the code that runs in bubbles
	allowances []*allowed
	constants  map[string]ast.Expr
	complaints []string
}

// allowed is a comment that allows something in its lines.
type allowed struct {
	file        string
	line        int
	first, last int
	used        bool
}

// paceOf returns the places in a folder's tests that depend on the pace of the machine.
func paceOf(folder *syntax.Folder) []string {
	p := &pace{Folder: folder, constants: make(map[string]ast.Expr)}
	p.findBubbles()
	for _, file := range folder.Files {
		p.findAllowances(file)
		p.findConstants(file)
	}
	for _, path := range slices.Sorted(maps.Keys(folder.Files)) {
		for _, declaration := range folder.Files[path].Decls {
			p.check(declaration)
		}
	}
	for _, a := range p.allowances {
		if !a.used {
			p.complaints = append(p.complaints, fmt.Sprintf("%s:%d: nothing needs this %s", a.file, a.line, allowance))
		}
	}
	return p.complaints
}

// check looks at a declaration.
func (p *pace) check(declaration ast.Decl) {
	measured := measurements(declaration)
	for node := range ast.Preorder(declaration) {
		switch {
		case syntax.IsCall(node, "time", "Sleep", "After", "AfterFunc", "NewTimer"):
			p.refuse(node, fmt.Sprintf("time.%s: wait for progress with package progress", node.(*ast.CallExpr).Fun.(*ast.SelectorExpr).Sel.Name))
		case syntax.IsCall(node, "context", "WithTimeout", "WithTimeoutCause"):
			if d, ok := p.duration(node.(*ast.CallExpr).Args[1]); !ok || d < shortestTimeout {
				p.refuse(node, fmt.Sprintf("context.WithTimeout of less than %v: a slow machine misses it", shortestTimeout))
			}
		case syntax.IsCall(node, "context", "WithDeadline", "WithDeadlineCause"):
			p.refuse(node, "context.WithDeadline: a slow machine misses it")
		case isComparison(node, measured):
			p.refuse(node, "compares how long something took")
		}
	}
}

// refuse complains of a node, unless it stands in a bubble or is allowed.
func (p *pace) refuse(node ast.Node, what string) {
	for _, bubble := range p.bubbles {
		if bubble.Pos() <= node.Pos() && node.End() <= bubble.End() {
			return
		}
	}
	at := p.Fset.Position(node.Pos())
	for _, a := range p.allowances {
		if a.file == at.Filename && a.first <= at.Line && at.Line <= a.last {
			a.used = true
			return
		}
	}
	p.complaints = append(p.complaints, fmt.Sprintf("%s:%d: %s", filepath.ToSlash(at.Filename), at.Line, what))
}

func (p *pace) findAllowances(file *ast.File) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			reason, ok := strings.CutPrefix(comment.Text, allowance)
			if !ok {
				continue
			}
			at := p.Fset.Position(comment.Pos())
			if strings.TrimSpace(reason) == "" {
				p.complaints = append(p.complaints, fmt.Sprintf("%s:%d: %s has no reason", at.Filename, at.Line, allowance))
			}
			a := &allowed{file: at.Filename, line: at.Line, first: at.Line, last: at.Line}
			if at.Column == 1 || strings.TrimLeft(lineBefore(p.Fset, file, comment), "\t") == "" {
				a.last++
			}
			for _, declaration := range file.Decls {
				if function, ok := declaration.(*ast.FuncDecl); ok && function.Doc == group {
					a.last = p.Fset.Position(function.End()).Line
				}
			}
			p.allowances = append(p.allowances, a)
		}
	}
}

// lineBefore returns "" if a comment stands alone on its line.
func lineBefore(fset *token.FileSet, file *ast.File, comment *ast.Comment) string {
	line := fset.Position(comment.Pos()).Line
	for node := range ast.Preorder(file) {
		switch node.(type) {
		case *ast.File, *ast.Comment, *ast.CommentGroup, *ast.BlockStmt, *ast.FuncDecl, *ast.FuncLit:
			continue
		}
		if node.Pos() < comment.Pos() && fset.Position(node.End()).Line == line {
			return "code"
		}
	}
	return ""
}

// findBubbles notes the function literals that run in bubbles, and the functions that are used nowhere else.
func (p *pace) findBubbles() {
	makers := p.makersOfBubbles()
	makes := func(call *ast.CallExpr) bool {
		if syntax.IsCall(call, "synctest", "Test") {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			return makers[fun.Name]
		case *ast.SelectorExpr:
			return makers[fun.Sel.Name]
		}
		return false
	}
	for _, file := range p.Files {
		for node := range ast.Preorder(file) {
			if call, ok := node.(*ast.CallExpr); ok && makes(call) {
				for _, argument := range call.Args {
					if literal, ok := argument.(*ast.FuncLit); ok {
						p.bubbles = append(p.bubbles, literal)
					}
				}
			}
		}
	}
	for again := len(p.bubbles) > 0; again; {
		before := len(p.bubbles)
		for _, function := range p.Functions() {
			if !slices.Contains(p.bubbles, ast.Node(function)) && p.usedOnlyInBubbles(function) {
				p.bubbles = append(p.bubbles, function)
			}
		}
		again = len(p.bubbles) > before
	}
}

// makersOfBubbles returns the names of the functions that run a function which they are given in a bubble.
func (p *pace) makersOfBubbles() map[string]bool {
	makers := make(map[string]bool)
	for range 3 { // one that calls one that calls synctest.Test
		for _, function := range p.Functions() {
			takesFunction := slices.ContainsFunc(function.Type.Params.List, func(field *ast.Field) bool {
				_, ok := field.Type.(*ast.FuncType)
				return ok
			})
			for node := range ast.Preorder(function) {
				call, ok := node.(*ast.CallExpr)
				if !ok || !takesFunction {
					continue
				}
				name, _ := call.Fun.(*ast.Ident)
				if syntax.IsCall(call, "synctest", "Test") || name != nil && makers[name.Name] {
					makers[function.Name.Name] = true
				}
			}
		}
	}
	return makers
}

// usedOnlyInBubbles reports whether a function is used, and nowhere but in bubbles. Methods are known by name.
func (p *pace) usedOnlyInBubbles(function *ast.FuncDecl) bool {
	if function.Name.IsExported() && !strings.HasSuffix(p.Fset.Position(function.Pos()).Filename, "_test.go") {
		return false // other folders use it
	}
	used := false
	for _, file := range p.Files {
		for node := range ast.Preorder(file) {
			name, ok := node.(*ast.Ident)
			if !ok || name.Name != function.Name.Name || p.isDeclared(name) {
				continue
			}
			inside := slices.ContainsFunc(p.bubbles, func(bubble ast.Node) bool {
				return bubble.Pos() <= name.Pos() && name.End() <= bubble.End()
			})
			if !inside {
				return false
			}
			used = true
		}
	}
	return used
}

// isDeclared reports whether a name is that of a function in its declaration.
func (p *pace) isDeclared(name *ast.Ident) bool {
	return slices.ContainsFunc(p.Functions(), func(function *ast.FuncDecl) bool { return function.Name == name })
}

// measurements returns the names of the variables of a declaration that come from how long something took.
func measurements(declaration ast.Decl) map[string]bool {
	measured := make(map[string]bool)
	for again := true; again; {
		before := len(measured)
		for node := range ast.Preorder(declaration) {
			assignment, ok := node.(*ast.AssignStmt)
			if !ok {
				continue
			}
			for i, value := range assignment.Rhs {
				if len(assignment.Lhs) == len(assignment.Rhs) && isMeasured(value, measured) {
					if name, ok := assignment.Lhs[i].(*ast.Ident); ok && name.Name != "_" {
						measured[name.Name] = true
					}
				}
			}
		}
		again = len(measured) > before
	}
	return measured
}

// isMeasured reports whether an expression comes from how long something took.
func isMeasured(expression ast.Expr, measured map[string]bool) bool {
	found := false
	ast.Inspect(expression, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit, *ast.CompositeLit:
			return false
		case *ast.Ident:
			found = found || measured[node.Name]
		case *ast.CallExpr:
			found = found || syntax.IsCall(node, "time", "Since", "Until") || isOfNow(node, "Sub")
		}
		return true
	})
	return found
}

// isOfNow reports whether a call is that of a method of time.Now().
func isOfNow(node ast.Node, names ...string) bool {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(names, selector.Sel.Name) && syntax.IsCall(selector.X, "time", "Now")
}

// isComparison reports whether a node compares a measurement with something.
func isComparison(node ast.Node, measured map[string]bool) bool {
	if isOfNow(node, "After", "Before", "Compare") {
		return true
	}
	binary, ok := node.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	switch binary.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
		return isMeasured(binary.X, measured) || isMeasured(binary.Y, measured)
	}
	return false
}

func (p *pace) findConstants(file *ast.File) {
	for node := range ast.Preorder(file) {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
			for i, name := range spec.Names {
				p.constants[name.Name] = spec.Values[i]
			}
		}
	}
}

// duration returns the value of a duration that is written with numbers, units and constants of the folder.
func (p *pace) duration(expression ast.Expr) (time.Duration, bool) {
	value := p.value(expression, 0)
	d, exact := constant.Int64Val(constant.ToInt(value))
	return time.Duration(d), exact
}

func (p *pace) value(expression ast.Expr, depth int) constant.Value {
	if depth > 20 {
		return constant.MakeUnknown()
	}
	switch x := expression.(type) {
	case *ast.ParenExpr:
		return p.value(x.X, depth+1)
	case *ast.BasicLit:
		return constant.MakeFromLiteral(x.Value, x.Kind, 0)
	case *ast.Ident:
		if known := p.constants[x.Name]; known != nil {
			return p.value(known, depth+1)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{
			"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second,
			"Minute": time.Minute, "Hour": time.Hour,
		}
		if unit, ok := units[x.Sel.Name]; ok {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.BinaryExpr:
		a, b := p.value(x.X, depth+1), p.value(x.Y, depth+1)
		if (x.Op == token.MUL || x.Op == token.ADD || x.Op == token.SUB) && a.Kind() == constant.Int && b.Kind() == constant.Int {
			return constant.BinaryOp(a, x.Op, b)
		}
	}
	return constant.MakeUnknown()
}

package core

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// Every error of this package and of engine is a signal, whose text is never returned, or one of those listed.
var (
	testedSignals = map[string]error{
		"ErrFellThrough": ErrFellThrough, "ErrFlowLock": ErrFlowLock, "ErrManyFlows": ErrManyFlows, "ErrRefused": ErrRefused, "ErrRepeated": ErrRepeated,
		"ErrFlowBusy": ErrFlowBusy,
	}
	shown = []string{
		"ErrBusyRow", "ErrBusyFlow", // around ErrBusy
		"errNegative", "errNoCount", "errNoText", "errNoObject", "errNoEdge", // the fault of a value, in a CorruptionError
		"ErrUndecided",   // in the log
		"errNotToEnd",    // to fn of InTx
		"errNotOneValue", // the fault of arguments, in ErrInvalidInput
	}
)

func TestInternalErrorsAreRegistered(t *testing.T) {
	var found []string
	own, _ := filepath.Glob("*.go")
	engines, _ := filepath.Glob("../../engine/*.go")
	if len(own) == 0 || len(engines) == 0 {
		t.Fatal("the sources are not where they were")
	}
	for _, path := range slices.Concat(own, engines) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			values, ok := declaration.(*ast.GenDecl)
			if !ok || values.Tok != token.VAR {
				continue
			}
			for _, spec := range values.Specs {
				for i, name := range spec.(*ast.ValueSpec).Names {
					if isError(spec.(*ast.ValueSpec), i) {
						found = append(found, name.Name)
					}
				}
			}
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(shown), maps.Keys(testedSignals)))); !slices.Equal(found, want) {
		t.Errorf("the packages have the errors %q, known are %q", found, want)
	}
	for name, signal := range testedSignals {
		if !slices.Contains(Signals, signal) {
			t.Errorf("%s is not among the signals", name)
		}
	}
}

// isError reports whether a variable is made by errors.New or fmt.Errorf, or has the name of an error.
func isError(spec *ast.ValueSpec, i int) bool {
	if strings.HasPrefix(strings.ToLower(spec.Names[i].Name), "err") {
		return true
	}
	if i >= len(spec.Values) {
		return false
	}
	call, ok := spec.Values[i].(*ast.CallExpr)
	if !ok {
		return false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (function.Sel.Name == "New" && fmt.Sprint(function.X) == "errors" || function.Sel.Name == "Errorf")
}

// A signal that leaves a part of an operation is still known to the operation, and its text is hidden from callers.
func TestWrapHidesSignals(t *testing.T) {
	for name, signal := range testedSignals {
		for _, err := range []error{
			signal, fmt.Errorf("inside: %w", signal), errors.Join(signal, errors.New("closed")), Wrap("inner", signal),
		} {
			got := Wrap("claim", err)
			if !errors.Is(got, signal) || !errors.Is(got, fferr.ErrContention) {
				t.Errorf("%s: %v is not itself any more, or no contention", name, got)
			}
			if text := got.Error(); !strings.HasPrefix(text, "claim: ") || strings.Contains(text, signal.Error()) {
				t.Errorf("%s: the text is %q", name, text)
			}
			for inner := got; inner != nil; inner = errors.Unwrap(inner) {
				if inner == signal {
					t.Errorf("%s can be had from what is returned", name)
				}
			}
		}
	}
}

// Without a slow path, the server's text is the error.
func TestWrapReportsTheServersErrorWithoutASlowPath(t *testing.T) {
	refused := &pgconn.PgError{Code: SQLUniqueViolation, Message: "taken"}
	got := Wrap("promote delayed", FellThrough(refused))
	if cause, ok := errors.AsType[*pgconn.PgError](got); !ok || cause != refused || !errors.Is(got, fferr.ErrTransport) {
		t.Errorf("got %v, want what the server said", got)
	}
	if !errors.Is(got, ErrFellThrough) {
		t.Errorf("%v: the operation does not know that it may fall through", got)
	}
	if strings.Contains(got.Error(), ErrFellThrough.Error()) {
		t.Errorf("the text is %q", got)
	}
}

// Every sentinel is recognised by its type. When a list named them, ErrPruned was missing and reported as ErrTransport too.
func TestWrapKeepsASentinel(t *testing.T) {
	err := Wrap("grow flow", &fferr.MemberError{Err: fferr.ErrPruned})
	if !errors.Is(err, fferr.ErrPruned) || errors.Is(err, fferr.ErrTransport) {
		t.Errorf("%v is %v: %t, %v: %t", err, fferr.ErrPruned, errors.Is(err, fferr.ErrPruned), fferr.ErrTransport, errors.Is(err, fferr.ErrTransport))
	}
}

package executions

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// innerTexts are the texts of the signals between the parts of an operation: those of the variables that the engine
// lists as its signals.
func innerTexts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../internal/core/*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts, signals := make(map[string]string), []string(nil)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for node := range ast.Preorder(file) {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				continue
			}
			switch value := spec.Values[0].(type) {
			case *ast.CompositeLit:
				if spec.Names[0].Name == "Signals" {
					for _, element := range value.Elts {
						signals = append(signals, element.(*ast.Ident).Name)
					}
				}
			case *ast.CallExpr:
				if literal, ok := value.Args[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					texts[spec.Names[0].Name], _ = strconv.Unquote(literal.Value)
				}
			}
		}
	}
	var inner []string
	for _, name := range signals {
		if texts[name] == "" {
			t.Fatalf("%s has no text", name)
		}
		inner = append(inner, texts[name])
	}
	if len(inner) < 5 {
		t.Fatalf("the signals are %q", signals)
	}
	return inner
}

func wantOuter(t *testing.T, err error, inner []string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, text := range inner {
		if strings.Contains(err.Error(), text) {
			t.Errorf("the error tells of the inside: %v", err)
		}
	}
}

// In every situation, on a pool or in a caller's transaction, the signals between an operation's parts stay inside.
// The rows are such that every fast path falls through and every slow path refuses.
func TestInternalErrorsNeverEscape(t *testing.T) {
	inner := innerTexts(t)
	odd := map[string]string{
		"as it should be": "ffx_lease_epoch = ffx_lease_epoch", "a pointer beside the attempts": "attempt_index = 1",
		"cancelled": fixture.ForeignCancel, "an unknown phase": "lifecycle_phase = 'who knows'", "an unknown outcome": "public_state = 'x'",
	}
	for name, assignments := range odd {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			for call, do := range fixture.HolderCalls {
				for _, bound := range []bool{false, true} {
					f.Draw(t, nil, "a>b")
					f.Create(t)
					for _, c := range f.ClaimN(t, 2) {
						f.SetExecution(t, c.ID, assignments)
						e, end := f.Engine, func() {}
						if bound {
							tx := f.BeginTx(t)
							e, end = f.WithTx(tx), func() { _ = tx.Rollback(t.Context()) }
						}
						wantOuter(t, errors.Join(holderErrors(t, e, c.Lease, do)...), inner)
						end()
						if t.Failed() {
							t.Fatalf("%s, in a transaction %t", call, bound)
						}
					}
				}
			}
		})
	}
}

// holderErrors are the answers to calls with a lease and with a stale one, one and many at a time.
func holderErrors(t *testing.T, e *engine.Engine, l engine.Lease, do func(*testing.T, *engine.Engine, engine.Lease) error) []error {
	ctx := t.Context()
	stale := l
	stale.Epoch++
	completions := []engine.Completion{{Lease: stale}, {Lease: l}, {Lease: l}}
	errs, err := e.CompleteExecutions(ctx, completions[:1])
	errs = append(errs, err, do(t, e, stale), do(t, e, l))
	completed, err := e.CompleteExecutions(ctx, completions)
	errs = append(append(errs, err), completed...)
	failed, err := e.FailExecutions(ctx, []engine.AttemptFailure{{Lease: stale}, {Lease: l}})
	errs = append(errs, err)
	for _, o := range failed {
		errs = append(errs, o.Err)
	}
	renewed, err := e.RenewLeases(ctx, []engine.Renewal{{Lease: stale}, {Lease: l}})
	errs = append(errs, err)
	for _, o := range renewed {
		errs = append(errs, o.Err)
	}
	return errs
}

// A trigger's error looks like a fast path falling through, in operations that have no slow path. The server's
// message is the error then, and it names the operation.
func TestFallThroughWithoutASlowPathReportsTheError(t *testing.T) {
	inner := innerTexts(t)
	f := fixture.NewCloned(t)
	x := f.Create(t)
	for _, state := range []string{"22012", "23505"} {
		f.Exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN RAISE EXCEPTION 'not in this house' USING ERRCODE = '`+state+`'; END$$`)
		f.Exec(t, "CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON ff_exec_core FOR EACH ROW EXECUTE FUNCTION refuse()")
		for _, bound := range []bool{false, true} {
			e, end := f.Engine, func() {}
			if bound {
				tx := f.BeginTx(t)
				e, end = f.WithTx(tx), func() { _ = tx.Rollback(t.Context()) } // tables stay locked until then
			}
			err := e.SetExecutionTag(t.Context(), x, "app.set", "v")
			wantOuter(t, err, inner)
			refused, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || refused.Code != state || !strings.Contains(err.Error(), "set execution tag") {
				t.Errorf("state %s, in a transaction %t: %v", state, bound, err)
			}
			_, err = e.Claim(t.Context(), f.Worker(), 1)
			wantOuter(t, err, inner)
			if err == nil || !strings.Contains(err.Error(), "claim") {
				t.Errorf("state %s, in a transaction %t: claim: %v", state, bound, err)
			}
			end()
		}
	}
}

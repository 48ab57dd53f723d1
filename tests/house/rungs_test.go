package house

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// A rung is a floor of a package, with the files on it. A declaration uses those of its own rung and of the rungs below.
type rung struct{ name, files string }

// rungs has the rungs of each package that has them, lowest first. A new file gets its place here.
var rungs = map[string][]rung{"internal/core": coreRungs, "engine": engineRungs}

var coreRungs = []rung{
	{"ground", "core observe observed signing_key limit_rule creator errors arrays tx tx_callers notifications key_cache batch check page retention retention_streams handle row_position pages " +
		"breaches budget lease_fence lease_memory stream_written stream_limits codec"},
	{"resolve", "flow_locks flow_dependencies flow_passed_over settle_endings execution_cancel flow_cancel_members call_resume job lease_expiry signal_resume fair settle_retries sequence gate_spec gate_locks gate_count gate_hand_over limit_hold attempt"},
	{"change", "budget_cancel execution_cancel_each transition execution_held execution_lock settle"},
}

var engineRungs = []rung{
	{"ground", "doc engine business_key check tx_callers notifications page"},
	{"resolve", "flow_eligibility"},
	{"spec", "execution_spec unique unique_key execution_middleware execution_create_scope flow_spec claim_spec lease_types policy lanes " +
		"suspension_spec step_spec sequence_spec fair_spec fair gate_spec limit_spec stream_config"},
	{"lease", "lease"},
	{"settle", "settle_children settle_completions settle_failures settle_returns lease_progress suspension"},
	{"claim", "claim claim_claimer claim_each claim_slow"},
	{"held", "execution_cancel signal_resume"},
	{"cancel", "flow_cancel flow_cancel_members flow_cancel_backlog flow_clean_ups"},
	{"create", "execution_create execution_create_admitted execution_create_alike execution_create_checked execution_create_keys execution_create_ahead execution_create_delay execution_create_memory " +
		"execution_create_business execution_create_unique execution_create_unique_lean execution_create_limits execution_create_run execution_create_steps creator sequence_seats " +
		"retention_shortest"},
	{"flows", "flow_create flow_grow flow_growing flow_graph flow_edges flow_linking flow_stage"},
	{"reads", "execution_describe execution_list execution_keys execution_reads execution_attempts flow_reads " +
		"flow_list flow_progress flow_tags flow_drawing await await_look " +
		"suspension_reads suspension_list business_key_find sequence_reads worker worker_list"},
	{"grants", "signal signal_each signal_take signal_tokens waitpoint step step_tx call"},
	{"operator", "queue_waiting rights"},
	{"engine", "new prepare prepare_partitions kind signal_kind"},
}

// aboveAll are the declarations that join all families, and so may use every rung.
var aboveAll = []string{"shared", "Config"}

// TestReferencesPointDown keeps the rungs.
func TestReferencesPointDown(t *testing.T) {
	t.Parallel()
	for room, rungs := range rungs {
		t.Run(room, func(t *testing.T) { checkRungs(t, room, rungs) })
	}
}

func checkRungs(t *testing.T, room string, rungs []rung) {
	rungOf := map[string]int{}
	for i, rung := range rungs {
		for file := range strings.FieldsSeq(rung.files) {
			rungOf[file+".go"] = i
		}
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
		Dir:  "../..",
	}, "./"+room)
	if err != nil || len(loaded) != 1 || len(loaded[0].Errors) > 0 {
		t.Fatalf("loading %s: %v", room, err)
	}
	p := loaded[0]
	fileOf := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }

	seen, references := map[string]bool{}, 0
	for _, file := range p.Syntax {
		name := fileOf(file.Pos())
		rung, known := rungOf[name]
		if !known {
			t.Errorf("%s/%s is on no rung", room, name)
			continue
		}
		seen[name] = true
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && slices.Contains(aboveAll, spec.Name.Name) {
				return false
			}
			ident, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			used := p.TypesInfo.Uses[ident]
			if !declared(p.Types, used) {
				return true
			}
			references++
			if home := fileOf(used.Pos()); rungOf[home] > rung {
				t.Errorf("%s: %s of rung %s uses %s of %s, rung %s above it: move the helper down or the file up",
					p.Fset.Position(ident.Pos()), name, rungs[rung].name, used.Name(), home, rungs[rungOf[home]].name)
			}
			return true
		})
	}
	for file := range rungOf {
		if !seen[file] {
			t.Errorf("there is no %s/%s", room, file)
		}
	}
	if references < 150 {
		t.Errorf("only %d references were found", references)
	}
}

// declared reports whether an object is a function, a method, or something else declared at the level of the package.
func declared(p *types.Package, object types.Object) bool {
	if object == nil || object.Pkg() != p {
		return false
	}
	if _, ok := object.(*types.Func); ok {
		return true
	}
	return object.Parent() == p.Scope()
}

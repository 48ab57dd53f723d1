package document

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/flowfabric/flowfabric-go/policy"
)

func needAll() Group                              { return GroupOf(policy.AllOf()) }
func needAny(on policy.OnSatisfied) Group         { return GroupOf(policy.AnyOf(on)) }
func needSome(k int, on policy.OnSatisfied) Group { return GroupOf(policy.Quorum(k, on)) }
func needFailure() Group                          { return GroupOf(policy.OnFailure()) }
func needEnd() Group                              { return GroupOf(policy.Always()) }

func TestGroupEvaluate(t *testing.T) {
	tests := []struct {
		name          string
		group         Group
		n, s, f, skip int64
		want          Decision
	}{
		{"all_succeeded", needAll(), 3, 3, 0, 0, Satisfied},
		{"all_waiting", needAll(), 3, 2, 0, 0, Undecided},
		{"all_one_failed", needAll(), 3, 2, 1, 0, Impossible},
		{"all_one_skipped", needAll(), 3, 0, 0, 1, Impossible},
		{"any_one_succeeded", needAny(policy.LetRun), 3, 1, 2, 0, Satisfied},
		{"any_waiting", needAny(policy.LetRun), 3, 0, 2, 0, Undecided},
		{"any_none_left", needAny(policy.LetRun), 3, 0, 2, 1, Impossible},
		{"quorum_reached", needSome(2, policy.LetRun), 3, 2, 0, 1, Satisfied},
		{"quorum_waiting", needSome(2, policy.LetRun), 3, 1, 1, 0, Undecided},
		{"quorum_out_of_reach", needSome(2, policy.LetRun), 3, 0, 1, 1, Impossible},
		{"quorum_three_of_five_lost", needSome(3, policy.LetRun), 5, 0, 3, 0, Impossible},
		{"quorum_still_reachable", needSome(3, policy.LetRun), 5, 2, 2, 0, Undecided},
		{"quorum_above_n", needSome(3, policy.LetRun), 2, 1, 0, 0, Undecided},
		{"quorum_above_n_after_a_failure", needSome(3, policy.LetRun), 2, 0, 1, 0, Impossible},
		{"on_failure_waiting", needFailure(), 3, 0, 2, 0, Undecided},
		{"on_failure_one_failed", needFailure(), 3, 2, 1, 0, Satisfied},
		{"on_failure_one_skipped", needFailure(), 3, 2, 0, 1, Satisfied},
		{"on_failure_none", needFailure(), 3, 3, 0, 0, Impossible},
		{"always_waiting", needEnd(), 3, 1, 1, 0, Undecided},
		{"always_ended", needEnd(), 3, 1, 1, 1, Satisfied},
		{"on_failure_of_nothing", needFailure(), 0, 0, 0, 0, Undecided},
		{"always_after_nothing", needEnd(), 0, 0, 0, 0, Undecided},
		{"all_of_nothing", needAll(), 0, 0, 0, 0, Undecided},
		{"any_of_nothing", needAny(policy.LetRun), 0, 0, 0, 0, Undecided},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.group.Evaluate(tt.n, tt.s, tt.f, tt.skip); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// smallGroups returns every policy of a group of up to 8 upstreams.
func smallGroups() []Group {
	groups := []Group{needAll(), needFailure(), needEnd()}
	for _, on := range OnSatisfiedValues() {
		groups = append(groups, needAny(on))
		for k := range 8 {
			groups = append(groups, needSome(k+1, on))
		}
	}
	return groups
}

// In every order of the ends, a group is decided at most once, according to its policy. If it needs no more
// upstreams than there are, the last one decides it at the latest.
func TestGroupDecidesOnce(t *testing.T) {
	check := func(g Group, ends []string) {
		n := int64(len(ends))
		counts := map[string]int64{}
		decision := Undecided
		for _, end := range ends {
			counts[end]++
			next := g.Evaluate(n, counts["success"], counts["fail"], counts["skip"])
			if decision != Undecided && next != decision {
				t.Fatalf("%v: %s became %s at %v", g, decision, next, counts)
			}
			decision = next
		}
		needed := int64(g.KTarget(n))
		want := Impossible
		switch {
		case g == needEnd(), g == needFailure() && counts["success"] < n:
			want = Satisfied
		case g == needFailure():
		case counts["success"] >= needed:
			want = Satisfied
		case counts["success"] == n: // all succeeded, and more may be added
			want = Undecided
		}
		if decision != want {
			t.Fatalf("%v ends %s at %v, want %s", g, decision, counts, want)
		}
	}
	groups := smallGroups()
	var add func(ends []string)
	add = func(ends []string) { // checks every order of ends that begins with these
		for _, end := range []string{"success", "fail", "skip"} {
			longer := append(ends, end)
			for _, g := range groups {
				check(g, longer)
			}
			if len(longer) < 8 {
				add(longer)
			}
		}
	}
	add(nil)
}

func TestGroupKTarget(t *testing.T) {
	tests := []struct {
		group Group
		n     int64
		want  int32
	}{
		{needAll(), 7, 7},
		{needAll(), 0, 0},
		{needAny(""), 7, 1},
		{needSome(3, ""), 7, 3},
		{needSome(3, ""), 2, 3},
		{needAll(), math.MaxInt64, math.MaxInt32},
		{needFailure(), 7, 1_000_000_000},
		{needEnd(), 7, 1_000_000_000},
	}
	for _, tt := range tests {
		if got := tt.group.KTarget(tt.n); got != tt.want {
			t.Errorf("%v of %d: got %d, want %d", tt.group, tt.n, got, tt.want)
		}
	}
}

func TestGroupCancelsRemaining(t *testing.T) {
	for g, want := range map[Group]bool{needAll(): false, needFailure(): false, needEnd(): false, needAny(""): true, needAny(policy.LetRun): false, needSome(2, policy.CancelRemaining): true} {
		if got := g.CancelsRemaining(); got != want {
			t.Errorf("%v: got %v", g, got)
		}
	}
}

func TestGroupStoredForm(t *testing.T) {
	for g, want := range map[Group]string{
		{}:                         `{"kind":"all_of"}`,
		needAny(""):                `{"kind":"any_of","on_satisfied":"cancel_remaining"}`,
		needSome(2, policy.LetRun): `{"kind":"quorum","k":2,"on_satisfied":"let_run"}`,
		needFailure():              `{"kind":"quorum","k":1000000000,"on_satisfied":"let_run","ffx_when":"on_failure"}`,
		needEnd():                  `{"kind":"quorum","k":1000000000,"on_satisfied":"let_run","ffx_when":"always"}`,
	} {
		if got, err := json.Marshal(g); string(got) != want || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
		if stored, err := GroupFromStored([]byte(want)); stored != g || err != nil {
			t.Errorf("%s: got %v, %v", want, stored, err)
		}
		if again := GroupOf(g.Policy()); again != g {
			t.Errorf("%v became %v", g, again)
		}
	}
}

// TestUnknownStoredPolicyIsCorrupt_I41: an unknown policy is not taken for the default.
func TestUnknownStoredPolicyIsCorrupt_I41(t *testing.T) {
	for _, document := range []string{
		`{"kind":"threshold","k":3}`, `{"kind":"AllOf"}`, `{"kind":1}`, `{"kind":"quorum","k":-1}`, `{"kind":"quorum","k":4294967296}`,
		`{"kind":"quorum","k":2.0}`, `{"kind":"quorum","k":"2"}`, `{"kind":"quorum","k":null}`, `null`, `[]`,
		`{"kind":"quorum","k":2,"ffx_when":"always"}`, `{"kind":"quorum","k":1000000000,"ffx_when":"never"}`,
		`{"kind":"quorum","k":1000000000,"ffx_when":null}`,
	} {
		g, err := GroupFromStored([]byte(document))
		var refused *DecodeError
		if !errors.As(err, &refused) || g != (Group{}) {
			t.Errorf("%s: got %v, %v", document, g, err)
		}
	}
	if g, err := GroupFromStored([]byte(`{"kind":"quorum","k":4294967295}`)); err != nil || g.KTarget(1) != math.MaxInt32 {
		t.Errorf("largest k: got %v, %v", g, err)
	}
}

// FlowFabric reads an unknown policy as a quorum that no end decides, since the stored count of running upstreams is
// too high.
func TestGroupsOfThisLibraryAreLeftAloneByFlowFabric(t *testing.T) {
	for _, g := range []Group{needFailure(), needEnd()} {
		for _, n := range []int64{1, 2, 10_000} {
			for ended := range min(n, 100) + 1 {
				for success := range ended + 1 {
					lost, stored := ended-success, int64(g.StoredRunning(n-ended))
					if g.Running(stored) != n-ended {
						t.Fatalf("%d are stored as %d and read as %d", n-ended, stored, g.Running(stored))
					}
					asQuorum := needSome(int(g.KTarget(n)), policy.LetRun)
					if got := asQuorum.Evaluate(success+lost+stored, success, lost, 0); got != Undecided {
						t.Fatalf("%d of %d, %d of them well: %s", ended, n, success, got)
					}
				}
			}
		}
		if got := g.Running(0); got != 0 {
			t.Errorf("%d run where another program has set the count", got)
		}
	}
	if got := needAll().Running(int64(needAll().StoredRunning(3))); got != 3 {
		t.Errorf("got %d", got)
	}
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte(`{"kind":"all_of"}`))
	f.Add([]byte(`{"kind":"any_of","on_satisfied":"let_run"}`))
	f.Add([]byte(`{"kind":"quorum","k":2,"on_satisfied":"cancel_remaining"}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var strict Group
		if strict.UnmarshalJSON(document) != nil {
			return
		}
		stored, err := GroupFromStored(document)
		if err != nil || stored != strict {
			t.Fatalf("%s: strictly %v, stored %v, %v", document, strict, stored, err)
		}
		encoded, err := json.Marshal(strict)
		if err != nil {
			t.Fatal(err)
		}
		var again Group
		if err := json.Unmarshal(encoded, &again); err != nil || again != strict {
			t.Fatalf("%s became %s, %v", document, encoded, err)
		}
	})
}

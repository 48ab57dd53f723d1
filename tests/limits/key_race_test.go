package limits

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// While one creator of a new key holds its transaction open, 63 others commit, and are admitted.
func TestCreatorsOfANewKeyWaitForNone(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(64))
	created(t, f.Engine, kind, sync{Tenant: "first"}) // declares the limit
	complete(t, f, wantClaimable(t, f, 1, "the first")...)
	open := f.BeginTx(t)
	created(t, f.WithTx(open), kind, sync{Tenant: "new"})
	var waits []func() error
	for range 63 {
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			_, err := kind.Create(ctx, f.Engine, sync{Tenant: "new"})
			return err
		}))
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	wantClaimable(t, f, 63, "while the transaction is open")
	fixture.Commit(t, open)
	wantClaimable(t, f, 1, "after its commit")
}

// A creation doesn't wait for a process that makes the row of its key, whether that commits or not: the gate admits it.
func TestCreationOfAKeyThatIsBeingMade(t *testing.T) {
	for name, commits := range map[string]bool{"commits": true, "rolls back": false} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			created(t, f.Engine, kind, sync{Tenant: "first"}) // declares the limit
			complete(t, f, wantClaimable(t, f, 1, "the first")...)
			g := gateOf("default", "sync/tenant", "new")
			maker := f.BeginTx(t)
			fixture.ExecIn(t, maker, `INSERT INTO ffx_gate (partition_key, gate_id, namespace, limit_name, key, used_at_ms)
				VALUES ($1, $2, 'default', 'sync/tenant', 'new', $3)`, int16(g[0]), g, f.Time().UnixMilli())
			for range 2 {
				if x := created(t, f.Engine, kind, sync{Tenant: "new"}); x.State != state.PublicRateLimited {
					t.Errorf("it is %s beside the maker of its key", x.State)
				}
			}
			wantClaimable(t, f, 0, "while the row is being made")
			f.End(t, maker, commits)
			wantOneByOne(t, f, 2)
		})
	}
}

// gateOf computes the id of a key by its definition.
func gateOf(namespace, name, key string) uuid.UUID {
	digest := sha256.Sum256([]byte(namespace + "\x00" + name + "\x00" + key + "\x00"))
	return uuid.UUID(digest[:16])
}

// storedGates creates an execution for each triple of namespace, name and key, and returns the ids of their limits.
func storedGates(t *testing.T, f *fixture.Fixture, triples [][3]string) (gates []string) {
	t.Helper()
	for _, triple := range triples {
		namespace, name, key := id.Namespace(triple[0]), triple[1], triple[2]
		if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Namespace: namespace, Name: name, Units: 1}); err != nil {
			t.Fatal(err)
		}
		x := ok(f.CreateExecution(t.Context(), engine.ExecutionSpec{
			Namespace: namespace, Lane: f.Lane, Kind: "test", Limits: []engine.LimitKey{{Name: name, Key: key}},
		}))(t)
		gates = append(gates, fixture.Texts(t, f.Pool, "SELECT ffx_limit_ids[1]::text FROM ff_exec_core WHERE execution_id = $1", x.ID.UUID())...)
	}
	return gates
}

// The id of a key never changes: others compute it too.
func TestKeysHaveFixedIDs(t *testing.T) {
	f := fixture.NewCloned(t)
	want := []string{
		"80171b2d-294f-f7aa-2732-9b44195aa4a5", "1cded28f-76ee-7357-4ae7-b15d63bafe56", "13e22856-7e82-49fc-e533-37f25d7970de",
		"4bbc5699-44dc-8421-7307-1b439fc56b9b",
	}
	got := storedGates(t, f, [][3]string{
		{"default", "sync/tenant", "acme"}, {"default", "sync/tenant", ""}, {"a", "b", "c"}, {"ä", "é/ü", "\u2028"},
	})
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %s, want %s", i, got[i], want[i])
		}
	}
}

// No two keys share an id, wherever the namespace ends and the name begins.
func TestKeysDontCollide(t *testing.T) {
	f := fixture.NewCloned(t)
	fixture.Check(t, func(r *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', '/', '.', 'é'}), 1, 3, -1)
		triple := [3]string{text.Draw(r, "namespace"), text.Draw(r, "name"), strings.TrimPrefix(text.Draw(r, "key"), "b")}
		all := strings.Join(triple[:], "")
		// The same text, cut at other places.
		runes := []rune(all)
		first := rapid.IntRange(1, len(runes)-1).Draw(r, "first cut")
		second := rapid.IntRange(first, len(runes)).Draw(r, "second cut")
		other := [3]string{string(runes[:first]), string(runes[first:second]), string(runes[second:])}
		if other[1] == "" {
			r.Skip("a limit has a name")
		}
		gates := storedGates(t, f, [][3]string{triple, other})
		if (gates[0] == gates[1]) != (triple == other) {
			r.Errorf("%q has %s, %q has %s", triple, gates[0], other, gates[1])
		}
		if want := gateOf(triple[0], triple[1], triple[2]).String(); gates[0] != want {
			r.Errorf("%q has %s, want %s", triple, gates[0], want)
		}
	})
}

// idleKey returns a kind with a key that was not in use for an hour.
func idleKey(t *testing.T) (*fixture.Fixture, engine.Kind[sync, struct{}]) {
	t.Helper()
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	created(t, f.Engine, kind, sync{Tenant: "acme"})
	complete(t, f, wantClaimable(t, f, 1, "to make the key")...)
	f.Advance(2 * time.Hour)
	return f, kind
}

func forgets(t *testing.T, eng *engine.Engine, want int) {
	t.Helper()
	if n, err := upkeep.Of(eng).ForgetLimitKeys(t.Context(), 100); n != want || err != nil {
		t.Fatalf("forgot %d, %v, want %d", n, err, want)
	}
}

// An idle key is forgotten between the creation of an execution that names it and the commit, or between the commit and the
// admission, and the key is made again. If an execution waits there the key stays.
func TestIdleKeyIsForgottenBesideACreation(t *testing.T) {
	t.Run("before the commit", func(t *testing.T) {
		f, kind := idleKey(t)
		tx := f.BeginTx(t)
		created(t, f.WithTx(tx), kind, sync{Tenant: "acme"})
		forgets(t, f.Engine, 1)
		fixture.Commit(t, tx)
		created(t, f.Engine, kind, sync{Tenant: "acme"})
		wantOneByOne(t, f, 2)
	})
	t.Run("after the commit", func(t *testing.T) {
		f, kind := idleKey(t)
		created(t, f.Engine, kind, sync{Tenant: "acme"})
		forgets(t, f.Engine, 0)
		wantOneByOne(t, f, 1)
	})
	t.Run("the execution is committed while the key is deleted", func(t *testing.T) {
		f, kind := idleKey(t)
		tx := f.BeginTx(t)
		forgets(t, f.WithTx(tx), 1)
		for range 2 {
			created(t, f.Engine, kind, sync{Tenant: "acme"})
		}
		if n := admit(t, f.Engine); n != 0 || upkeep.Of(f.Engine).NextAdmission().IsZero() {
			t.Errorf("admitted %d beside the deletion, next look at %v", n, upkeep.Of(f.Engine).NextAdmission())
		}
		fixture.Commit(t, tx)
		wantOneByOne(t, f, 2)
	})
	t.Run("the execution is committed after the key was found idle", func(t *testing.T) {
		f, kind := idleKey(t)
		r := f.StoppedBefore(t, "DropIdleGates")
		done := fixture.Async(t, func(ctx context.Context) error {
			n, err := upkeep.Of(r.Engine).ForgetLimitKeys(ctx, 100)
			if n != 0 {
				t.Errorf("forgot %d", n)
			}
			return err
		})
		r.AwaitStop(t)
		for range 2 {
			created(t, f.Engine, kind, sync{Tenant: "acme"})
		}
		if n := admit(t, f.Engine); n != 0 {
			t.Errorf("admitted %d beside the job", n)
		}
		r.Resume()
		if err := done(); err != nil {
			t.Fatal(err)
		}
		wantOneByOne(t, f, 2)
	})
	t.Run("the key is deleted beside an admission", func(t *testing.T) {
		f, kind := idleKey(t)
		tx := f.BeginTx(t) // in which nothing is admitted
		for range 2 {
			created(t, f.WithTx(tx), kind, sync{Tenant: "acme"})
		}
		fixture.Commit(t, tx)
		r := f.StoppedBefore(t, "AdmitExecutions")
		pass := passing(t, r.Engine)
		r.AwaitStop(t)
		forgets(t, f.Engine, 0)
		r.Resume()
		if n := pass(); n != 1 {
			t.Errorf("admitted %d", n)
		}
		wantOneByOne(t, f, 2)
	})
}

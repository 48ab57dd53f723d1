package transactions

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// With any settings of the pool's sessions, each transaction of the engine waits for locks as long as its kind does
// and is on the disk when it returns. Stricter settings are kept.
func TestSettingsOfEveryTransaction(t *testing.T) {
	const note = `INSERT INTO seen SELECT DISTINCT current_setting('application_name'), name, current_setting(name)
		FROM unnest(ARRAY['lock_timeout', 'synchronous_commit']) AS name`
	shortWait := []string{"complete and claim", "release", "delay in a batch", "wait for children in a batch", "cancel in a batch", "suspend in a batch", "record steps in a batch", "grant to a worker"}
	sessions := []struct {
		locks, commit, wantWait, wantShortWait, wantCommit string

		own bool // the connections have the settings for the session
	}{
		{"0", "off", "2s", "50ms", "on", false},
		{"1h", "local", "2s", "50ms", "local", false},
		{"20ms", "remote_write", "20ms", "20ms", "remote_write", false},
		{"0", "off", "2s", "50ms", "on", true},
		{"20ms", "remote_write", "20ms", "20ms", "remote_write", true},
	}
	eachCommit(t, note, func(t *testing.T, o fixture.Operation, on *fixture.Fixture) {
		for _, s := range sessions {
			f := fixture.On(t, on.Pool, on.Url)
			l := o.Arrange(t, f)
			application := "settings-" + f.Name
			e := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
				params := config.ConnConfig.RuntimeParams
				params["application_name"], params["lock_timeout"], params["synchronous_commit"] = application, s.locks, s.commit
				if s.own {
					config.AfterConnect = pgtx.SetForSession
				}
			}), engine.Config{})
			if err := o.Do(t.Context(), f, e, l); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"lock_timeout": s.wantWait, "synchronous_commit": s.wantCommit}
			if o.Whole && !o.Patient || slices.Contains(shortWait, o.Name) {
				want["lock_timeout"] = s.wantShortWait
			}
			if o.Lazy {
				want["synchronous_commit"] = "off"
			}
			if o.Plain && !s.own {
				want = map[string]string{"lock_timeout": s.locks, "synchronous_commit": s.commit}
			}
			for name, want := range want {
				got := fixture.Texts(t, f.Pool, "SELECT DISTINCT setting FROM seen WHERE application = $1 AND name = $2", application, name)
				if !slices.Equal(got, []string{want}) {
					t.Errorf("%s is %q where the session has %q and %q, want %q", name, got, s.locks, s.commit, want)
				}
			}
		}
	}, "CREATE TABLE seen (application text, name text, setting text)")
}

// A lane that a caller's transaction registered, and took back, is registered by the next creation on it.
func TestLaneIsRegisteredAgainAfterARollback(t *testing.T) {
	f := fixture.New(t)
	for name, create := range map[string]func(t *testing.T, eng *engine.Engine, lane id.LaneID){
		"execution": func(t *testing.T, eng *engine.Engine, lane id.LaneID) {
			if _, err := eng.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: lane}); err != nil {
				t.Fatal(err)
			}
		},
		"flow": func(t *testing.T, eng *engine.Engine, lane id.LaneID) {
			nodes := []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: lane}}}
			if _, err := eng.CreateFlow(t.Context(), engine.FlowSpec{Kind: "test", Nodes: nodes}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			lane := id.LaneID(f.Name + "-" + name)
			registered := func() int {
				return len(fixture.Texts(t, f.Pool, "SELECT lane_id FROM ff_lane_registry WHERE lane_id = $1", string(lane)))
			}
			tx := f.BeginTx(t)
			create(t, f.WithTx(tx), lane)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := registered(); got != 0 {
				t.Fatalf("%d rows after the rollback", got)
			}
			create(t, f.Engine, lane)
			if got := registered(); got != 1 {
				t.Errorf("the lane has %d rows, want 1: it was remembered though its transaction was rolled back", got)
			}
		})
	}
}

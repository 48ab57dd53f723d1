package explain

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// place is a database of its own, where a test makes causes, with further readers.
type place struct {
	*fixture.Fixture
	readers []reader
}

// reader explains executions on another connection than the fixture's.
type reader struct {
	name  string
	eng   *engine.Engine
	await func(t *testing.T) // until the reader sees the commits so far
}

func atOnce(*testing.T) {}

// scenarios make all causes, except locks of other sessions.
var scenarios = []struct {
	name string
	test func(t *testing.T, f *place)
}{
	{"AnUnknownExecutionIsNotFound", anUnknownExecutionIsNotFound},
	{"EndedExecutionsSayHowTheyEnded", endedExecutionsSayHowTheyEnded},
	{"ARunningExecutionNamesItsWorker", aRunningExecutionNamesItsWorker},
	{"DelaysSayUntilWhen", delaysSayUntilWhen},
	{"SuspendedExecutionsSayWhatTheyWaitFor", suspendedExecutionsSayWhatTheyWaitFor},
	{"ACallLeadsToTheCauseOfTheCallee", aCallLeadsToTheCauseOfTheCallee},
	{"SequencesNameTheirFirstMember", sequencesNameTheirFirstMember},
	{"OperatorsAreNamed", operatorsAreNamed},
	{"ASkippedExecutionNamesItsUpstream", aSkippedExecutionNamesItsUpstream},
	{"UpstreamsAreNamedWithTheirStates", upstreamsAreNamedWithTheirStates},
	{"AFullLimitNamesItsHolders", aFullLimitNamesItsHolders},
	{"AFullRateSaysWhenItHasRoom", aFullRateSaysWhenItHasRoom},
	{"AHeldKeyNamesItsHolder", aHeldKeyNamesItsHolder},
	{"AUsedUpBudgetIsNamed", aUsedUpBudgetIsNamed},
	{"MissingWorkersAreNamed", missingWorkersAreNamed},
	{"ExecutionsInLineAreCounted", executionsInLineAreCounted},
	{"TheLoadOfWorkersIsNamed", theLoadOfWorkersIsNamed},
	{"LanesAreExplained", lanesAreExplained},
	{"ALostQueueEntryIsNoticed", aLostQueueEntryIsNoticed},
	{"RoutesAndLanesBlock", routesAndLanesBlock},
	{"AGrantNamesItsWorker", aGrantNamesItsWorker},
}

func TestCausesForAReadersRole(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			role := f.Stranger(t)
			t.Cleanup(func() {
				if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", role)); err != nil {
					t.Error(err)
				}
			})
			sql, err := schema.Grants(role, schema.GrantOptions{Reader: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["role"] = role })
			s.test(t, &place{f, []reader{{"a reader's role", f.EngineOn(t, pool, engine.Config{}), atOnce}}})
		})
	}
}

func TestPgBouncerCauses(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				f := fixture.Clone(t)
				eng := f.EngineOn(t, open(t, f.Url), engine.Config{NoListener: true})
				s.test(t, &place{f, []reader{{"through PgBouncer", eng, atOnce}}})
			})
		}
	})
}

// Explanations on a hot standby are the primary's.
func TestCausesOnAStandby(t *testing.T) {
	t.Parallel()
	servers, err := pgserver.StartReplicated(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Stop(); err != nil {
			t.Error(err)
		}
	})
	primary, standby := on(t, servers.Primary.URL(), "postgres"), on(t, servers.Standby.URL(), "postgres")
	create(t, primary, "migrated", "template0")
	if _, err := schema.Migrate(t.Context(), on(t, servers.Primary.URL(), "migrated"), schema.Options{}); err != nil {
		t.Fatal(err)
	}
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			name := fmt.Sprintf("causes_%d", i)
			create(t, primary, name, "migrated")
			address := on(t, servers.Primary.URL(), name)
			f := fixture.On(t, fixture.OpenPool(t, address, nil), address)
			replica := fixture.OpenPool(t, standby, nil)
			caughtUp := func(t *testing.T) {
				t.Helper()
				lsn := fixture.Texts(t, f.Pool, "SELECT pg_current_wal_lsn()::text")[0]
				fixture.Await(t, "the standby to replay", func() bool {
					return fixture.Texts(t, replica, "SELECT (pg_last_wal_replay_lsn() >= '"+lsn+"')::text")[0] == "true"
				})
			}
			caughtUp(t)
			eng := f.EngineOn(t, fixture.OpenPool(t, on(t, servers.Standby.URL(), name), nil), engine.Config{NoListener: true})
			s.test(t, &place{f, []reader{{"on the standby", eng, caughtUp}}})
		})
	}
}

// on returns the URL of a database of a server.
func on(t *testing.T, server, database string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

func create(t *testing.T, server, name, template string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("CREATE DATABASE %q TEMPLATE %q", name, template)); err != nil {
		t.Fatal(err)
	}
}

package claims

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// eachWay runs a test of a claim four times: claiming from the head of the lane, together with claims from other lanes,
// after scan positions, and after these one by one.
func eachWay(t *testing.T, test func(t *testing.T, f *fixture.Fixture)) {
	t.Helper()
	eachWayOn(t, fixture.New, test)
}

func eachWayOn(t *testing.T, newFixture func(*testing.T) *fixture.Fixture, test func(t *testing.T, f *fixture.Fixture)) {
	t.Helper()
	t.Parallel()
	t.Run("from the head", func(t *testing.T) { test(t, newFixture(t)) })
	t.Run("together with other lanes", func(t *testing.T) {
		f := newFixture(t)
		f.Together = true
		test(t, f)
	})
	for _, oneByOne := range []bool{false, true} {
		t.Run(fmt.Sprintf("after positions, one by one %t", oneByOne), func(t *testing.T) {
			f := newFixture(t)
			f.After = f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = fixture.FullScanGuard{} }), engine.Config{})
			f.OneByOne = oneByOne
			test(t, f)
		})
	}
}

package schema

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A database in another encoding than UTF8 cannot store all text. It is refused, and where one is in use all the same, a
// failure whose text it cannot store ends its attempt.
func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	f := fixture.New(t)
	name := "encoding_" + strings.ReplaceAll(f.Name, "-", "_")
	f.Exec(t, "CREATE DATABASE "+name+" ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() {
		if _, err := pgtest.Pool(t).Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	address, err := url.Parse(f.Url)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/" + name
	pool := fixture.OpenPool(t, address.String(), nil)

	refused := func(call string, err error) {
		t.Helper()
		stateErr, ok := errors.AsType[*schema.StateError](err)
		if !ok || !errors.Is(err, fferr.ErrEncoding) || !strings.Contains(stateErr.Error(), "EUC_JP") {
			t.Errorf("%s: got %v, want %v", call, err, fferr.ErrEncoding)
		}
	}
	_, err = schema.Migrate(t.Context(), pool, schema.Options{})
	refused("migrate", err)
	_, err = schema.Plan(t.Context(), pool, schema.Options{})
	refused("plan", err)
	refused("check", schema.Check(t.Context(), pool, schema.Options{}))
	if got := fixture.Texts(t, pool, "SELECT relname FROM pg_class WHERE relname ~ '^ff'"); len(got) > 0 {
		t.Errorf("it has %q", got)
	}

	// Another migrator may have made the tables, or an older version.
	steps, err := schema.SQL(schema.SQLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if _, err := pool.Exec(t.Context(), step.Up); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
	}
	refused("check of a migrated one", schema.Check(t.Context(), pool, schema.Options{}))
	other := fixture.On(t, pool, address.String())
	if err := other.Prepare(t.Context()); !errors.Is(err, fferr.ErrEncoding) || !strings.Contains(err.Error(), "EUC_JP") {
		t.Errorf("prepare: got %v, want %v", err, fferr.ErrEncoding)
	}
	c := other.Start(t)
	failure := engine.Failure{Message: "no luck \U0001F642 日本", Detail: "\U0001F642", Class: policy.Permanent}
	if _, err := other.FailExecution(t.Context(), c.Lease, failure); err != nil {
		t.Fatal(err)
	}
	ended, ok := errors.AsType[*fferr.EndedError](second(other.ExecutionResult(t.Context(), c.ID)))
	if !ok || ended.Failure != `no luck \U0001f642 \u65e5\u672c` {
		t.Errorf("it ended as %+v", ended)
	}
}

func second[T any](_ T, err error) error { return err }

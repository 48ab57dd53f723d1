package fftest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// patience limits the start of the server: an image may have to be pulled.
const patience = 10 * time.Minute

// clockSQL gives a database a clock that only moves when set. The planner replaces a call of ffx_now_ms by its body,
// like the library's own. A subquery in the body would prevent this, and each statement would parse and plan the
// function again.
const clockSQL = `
CREATE TABLE fftest_clock (now_ms bigint NOT NULL);
INSERT INTO fftest_clock VALUES (0);
CREATE FUNCTION fftest_now_ms() RETURNS bigint
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
BEGIN
    RETURN (SELECT c.now_ms FROM public.fftest_clock AS c);
END
$$;
CREATE OR REPLACE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT coalesce($1, public.fftest_now_ms());
$$;
CREATE OR REPLACE FUNCTION ffx_now_locked_ms(now_ms bigint) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$
    SELECT coalesce($1, public.fftest_now_ms());
$$;`

// server has the databases of this process. The server starts with the first test, or with [Main].
var server = sync.OnceValues(func() (*databases, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	opened, err := pgtest.OpenDatabases(ctx, "ff_kit", clockSQL)
	if err != nil {
		return nil, err
	}
	return &databases{Databases: opened, template: opened.Template()}, nil
})

// databases are the databases of this process and their template.
type databases struct {
	*pgtest.Databases
	template string
}

// MainOption is an option of [Main].
type MainOption func(*mainOptions)

type mainOptions struct {
	migrate func(ctx context.Context, databaseURL string) error
}

// Migrate adds the application's own tables to the template, once for the test binary.
func Migrate(migrate func(ctx context.Context, databaseURL string) error) MainOption {
	return func(o *mainOptions) { o.migrate = migrate }
}

// Main runs the tests of a package and exits. It starts the server and makes the template before the first test. A
// package without [Migrate] does not need Main: the first [New] starts the server.
//
//	func TestMain(m *testing.M) { fftest.Main(m, fftest.Migrate(shop.Migrate)) }
func Main(m *testing.M, options ...MainOption) {
	os.Exit(run(m, options))
}

func run(m *testing.M, options []MainOption) int {
	var o mainOptions
	for _, option := range options {
		option(&o)
	}
	on, err := server()
	if err == nil && o.migrate != nil {
		err = on.derive(o.migrate)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fftest:", err)
		return 1
	}
	code := m.Run()
	if o.migrate != nil {
		if err := on.Drop(context.Background(), on.template); err != nil {
			fmt.Fprintln(os.Stderr, "fftest:", err)
		}
	}
	return code
}

// derive replaces the template by a copy to which migrate adds tables.
func (d *databases) derive(migrate func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, err := d.Create(ctx, d.template)
	if err != nil {
		return err
	}
	if err := migrate(ctx, d.URL(name)); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	d.template = name
	return nil
}

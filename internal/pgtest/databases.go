package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/schema"
)

// Databases are the databases of a test kit: copies of one template, on the server of the library's tests or a similar
// one.
type Databases struct{ r *run }

// OpenDatabases finds or starts the server, and makes the template unless another test binary did: a database with the
// library's schema on which sql has run. prefix begins the names of the databases.
func OpenDatabases(ctx context.Context, prefix, sql string) (*Databases, error) {
	hash, err := migrationsKey(sql)
	if err != nil {
		return nil, err
	}
	r, err := begin(ctx, layout{prefix: prefix, hash: hash, make: func(ctx context.Context, databaseURL string) error {
		if _, err := schema.Migrate(ctx, databaseURL, silent); err != nil {
			return err
		}
		return execute(ctx, databaseURL, sql)
	}})
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, fmt.Errorf("prepare the databases of the tests: %w", err)
	}
	return &Databases{r}, nil
}

func execute(ctx context.Context, databaseURL, sql string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Source is one sentence about the choice of the server.
func (d *Databases) Source() string { return d.r.server.Source() }

// Template returns the name of the template.
func (d *Databases) Template() string { return d.r.template() }

// Create copies a template, and returns the name of the copy. The next run drops the copy if this process doesn't.
func (d *Databases) Create(ctx context.Context, template string) (string, error) {
	return d.r.create(ctx, template)
}

// Drop drops a database and ends its sessions.
func (d *Databases) Drop(ctx context.Context, name string) error { return d.r.drop(ctx, name) }

// URL returns the URL of a database.
func (d *Databases) URL(name string) string { return d.r.databaseURL(name) }

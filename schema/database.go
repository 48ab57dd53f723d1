package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is the database for an operation of this package.
//
// The operation borrows one connection from a pool and returns the connection unchanged, since a migration's settings
// last for one transaction only. A single connection must not be in a transaction, and the operation uses the
// connection exclusively. For a string, the URL postgres://user:password@host:port/database, the operation connects by
// itself.
//
// Migrate, Adopt and Rollback open and close one more connection for the lock: as the pool connects, with
// BeforeConnect, or like the given connection.
type Database interface {
	*pgxpool.Pool | *pgxpool.Conn | *pgx.Conn | string
}

// source provides the connections of an operation.
type source struct {
	// another opens a separate connection.
	another func(context.Context) (*pgx.Conn, error)
	// borrow returns the connection to work on and a function to return the connection.
	borrow func(context.Context) (*pgx.Conn, func(), error)
	// inTx is set if the given connection is in a transaction, so a change cannot use it.
	inTx bool
}

func sourceOf[D Database](database D, opts Options) (source, error) {
	if err := checkSchemaName(opts.Schema); err != nil {
		return source{}, err
	}
	switch database := any(database).(type) {
	case *pgxpool.Pool:
		return poolSource(database), nil
	case *pgxpool.Conn:
		return connSource(database.Conn()), nil
	case *pgx.Conn:
		return connSource(database), nil
	case string:
		return urlSource(database)
	}
	return source{}, fmt.Errorf("schema: %T is not a database", database) // unreachable: the constraint has no other type
}

func poolSource(pool *pgxpool.Pool) source {
	return source{
		another: func(ctx context.Context) (*pgx.Conn, error) {
			config := pool.Config()
			if config.BeforeConnect != nil {
				if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
					return nil, classify("connect", err)
				}
			}
			return open(ctx, config.ConnConfig)
		},
		borrow: func(ctx context.Context) (*pgx.Conn, func(), error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, nil, classify("connect", err)
			}
			return conn.Conn(), conn.Release, nil
		},
	}
}

func connSource(conn *pgx.Conn) source {
	return source{
		another: func(ctx context.Context) (*pgx.Conn, error) { return open(ctx, conn.Config()) },
		borrow:  func(context.Context) (*pgx.Conn, func(), error) { return conn, func() {}, nil },
		inTx:    !conn.IsClosed() && conn.PgConn().TxStatus() != 'I',
	}
}

func urlSource(databaseURL string) (source, error) {
	config, err := PoolConfig(databaseURL, "")
	if err != nil {
		return source{}, err
	}
	another := func(ctx context.Context) (*pgx.Conn, error) { return open(ctx, config.ConnConfig.Copy()) }
	return source{
		another: another,
		borrow: func(ctx context.Context) (*pgx.Conn, func(), error) {
			conn, err := another(ctx)
			if err != nil {
				return nil, nil, err
			}
			return conn, func() { closeConn(ctx, conn) }, nil
		},
	}, nil
}

func open(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, classify("connect", err)
	}
	return conn, nil
}

// closeConn closes conn even if ctx has ended. The server gets a second to answer.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errURL does not quote the URL: a malformed one may have the password anywhere.
var errURL = errors.New("schema: the database URL is not of the form postgres://user:password@host:port/database")

// PoolConfig parses a database URL like every operation of this package, and sets the schema. A nonempty schema becomes
// the search_path, replacing one in the URL. The rest of the URL applies unchanged.
//
// Errors describe the problem and never quote the URL.
func PoolConfig(databaseURL, schema string) (*pgxpool.Config, error) {
	if !strings.HasPrefix(databaseURL, "postgres://") && !strings.HasPrefix(databaseURL, "postgresql://") {
		return nil, errURL
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errURL
	}
	if err := checkSchemaName(schema); err != nil {
		return nil, err
	}
	if schema != "" {
		config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	}
	return config, nil
}

// checkSchemaName refuses a dot: dbmate, which also applies the migrations, takes a dot for the end of the name.
func checkSchemaName(schema string) error {
	if strings.Contains(schema, ".") {
		return fmt.Errorf("schema: the schema name %q contains a dot", schema)
	}
	return nil
}

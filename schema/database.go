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

// Database is what the operations of this package work on.
//
// A pool lends one connection, and gets it back as it was: what a migration sets holds for its transaction only.
// So does a connection, which the operation uses alone while it lasts, and which must not be in a transaction. A
// string is the URL of a database, postgres://user:password@host:port/database; the operation connects by itself.
//
// Migrate, Adopt and Rollback open one connection more, for the lock, and close it: as the pool connects, with its
// BeforeConnect, or as the given connection did.
type Database interface {
	*pgxpool.Pool | *pgxpool.Conn | *pgx.Conn | string
}

// source is where an operation gets its connections.
type source struct {
	// another opens a connection of the operation's own.
	another func(context.Context) (*pgx.Conn, error)
	// borrow returns the connection to work on, and what gives it back.
	borrow func(context.Context) (*pgx.Conn, func(), error)
	// inTx is a given connection that a change cannot work on.
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
	return source{}, fmt.Errorf("schema: %T is no database", database) // cannot be: the constraint names no other type
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

// closeConn closes conn even when ctx has ended; a polite goodbye may take a second.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errURL does not quote what it complains about: a malformed URL may show its password anywhere.
var errURL = errors.New("schema: the database URL is not of the form postgres://user:password@host:port/database")

// PoolConfig reads a database URL as every operation of this package does, and chooses the schema: one that is not
// empty becomes the search_path, whatever search_path the URL names. All else in the URL holds as it is written.
//
// An error says what is wrong and repeats nothing of the URL.
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

// checkSchemaName refuses a dot: dbmate, which applies the migrations as well, takes it for the end of the name.
func checkSchemaName(schema string) error {
	if strings.Contains(schema, ".") {
		return fmt.Errorf("schema: the schema name %q contains a dot", schema)
	}
	return nil
}

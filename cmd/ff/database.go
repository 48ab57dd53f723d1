package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) databaseFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "database to use, postgres://user:password@host:port/database (default $DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "schema to use (default the first of the search_path)")
}

// namedDatabase returns the URL of the database from the flag or the environment, or "" if neither is set.
func (a *app) namedDatabase() (string, error) {
	raw, from := a.databaseURL, "--database-url"
	if raw == "" {
		raw, from = a.env("DATABASE_URL"), "DATABASE_URL"
	}
	if raw == "" {
		return "", nil
	}
	const form = "is not a URL of the form postgres://user:password@host:port/database"
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The password may be anywhere in a malformed URL, so quote nothing of it.
		return "", &usageError{problem: from + " " + form}
	}
	a.keepSecret(u)
	if _, err := pgxpool.ParseConfig(raw); err != nil {
		return "", &usageError{problem: fmt.Sprintf("%s cannot be used (%s)", from, oneLine(err))}
	}
	if strings.Contains(a.schema, ".") {
		return "", &usageError{problem: fmt.Sprintf("--schema: the name %q contains a dot", a.schema)}
	}
	return raw, nil
}

// requireDatabase is namedDatabase for commands on a database.
func (a *app) requireDatabase() (string, error) {
	named, err := a.namedDatabase()
	if err == nil && named == "" {
		err = &usageError{problem: "no database is given", next: "set DATABASE_URL or pass --database-url; `ff dev` starts a database"}
	}
	return named, err
}

// schemaOptions returns the options of package schema. It logs nothing: a command prints its own output.
func (a *app) schemaOptions() schema.Options {
	return schema.Options{Schema: a.schema, Log: slog.New(slog.DiscardHandler)}
}

// withEngine runs fn on the named database if its schema can be read. A standby is enough.
func (a *app) withEngine(ctx context.Context, fn func(*engine.Engine) error) error {
	return a.withPool(ctx, func(_ *pgxpool.Pool, eng *engine.Engine) error { return fn(eng) })
}

// withPool is withEngine, and also passes the pool.
func (a *app) withPool(ctx context.Context, fn func(*pgxpool.Pool, *engine.Engine) error) error {
	named, err := a.requireDatabase()
	if err != nil {
		return err
	}
	config, err := schema.PoolConfig(named, a.schema)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := schema.Check(ctx, pool, a.schemaOptions()); err != nil && !errors.Is(err, fferr.ErrReadOnly) {
		return err
	}
	eng, err := engine.New(pool, engine.Config{Log: slog.New(slog.DiscardHandler)}) // the command prints its own output
	if err != nil {
		return err
	}
	return fn(pool, eng)
}

// keepSecret records a URL's password for redact, unless it equals another part of the URL.
func (a *app) keepSecret(u *url.URL) {
	password, _ := u.User.Password()
	for _, secret := range []string{password, u.Query().Get("password")} {
		switch secret {
		case "", u.User.Username(), u.Hostname(), strings.TrimPrefix(u.Path, "/"):
		default:
			a.secrets = append(a.secrets, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}
	if u.User != nil && password != "" {
		a.secrets = append(a.secrets, u.User.String())
	}
}

// redact masks the recorded passwords.
func (a *app) redact(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return text
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) devCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dev",
		Short: "Keep a migrated PostgreSQL running for development",
		Long: `dev starts an embedded PostgreSQL, migrates its database, prints a line that sets DATABASE_URL in other
shells to standard output, and keeps the server running until it is interrupted. Data, port and password
are kept for the next start.

The first start downloads PostgreSQL to the user's cache folder. FF_POSTGRES_VERSION selects the major
version, 14 to 18. If DATABASE_URL is set, dev migrates that database instead, unless FF_POSTGRES=embedded
is set.`,
		Example: `  ff dev
  FF_POSTGRES_VERSION=18 ff dev`,
		Args: noArgs,
		RunE: a.does(a.dev),
	}
}

func (a *app) dev(ctx context.Context, _ []string) (err error) {
	server, err := a.startServer(ctx, pgserver.Dev)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
	}()
	if _, err := schema.Migrate(ctx, server.URL(), a.schemaOptions()); err != nil {
		return err
	}
	if a.named(server) {
		fmt.Fprintln(a.stderr, "The database of DATABASE_URL is migrated; there is no server to keep running.")
		return nil
	}
	fmt.Fprintln(a.stdout, exportLine(server.URL()))
	fmt.Fprintln(a.stderr, "The database is migrated. The server runs until this command is interrupted (Ctrl-C).")
	<-ctx.Done()
	return nil
}

// exportLine returns a line for a shell to set DATABASE_URL.
func exportLine(databaseURL string) string {
	return "export DATABASE_URL='" + strings.ReplaceAll(databaseURL, "'", `'\''`) + "'"
}

// startServer finds or starts a server and prints which one.
func (a *app) startServer(ctx context.Context, purpose pgserver.Purpose) (*pgserver.Server, error) {
	if _, err := a.namedDatabase(); err != nil {
		return nil, err
	}
	server, err := pgserver.Start(ctx, pgserver.Options{Purpose: purpose, Log: a.stderr})
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(a.stderr, server.Source())
	return server, nil
}

// named reports whether DATABASE_URL names the server. Otherwise its URL may be printed, since its password is generated.
func (a *app) named(server *pgserver.Server) bool { return server.URL() == a.env("DATABASE_URL") }

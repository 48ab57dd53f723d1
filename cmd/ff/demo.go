package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/demo"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/schema"
)

const (
	demoWorkerName = "demo-worker"
	// demoSchema is the schema of the demo in a database named by the user.
	demoSchema = "flowfabric_demo"
	maxWorkers = 32
)

// demoFlags has the flags of `ff demo`.
type demoFlags struct {
	keep     bool
	workers  int
	packages string
}

func (a *app) demoCommand() *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Hash Go's standard library as one durable flow, with a crash",
		Long: `demo reads the import graph of the Go standard library from the go command, creates it as one flow (a
package is an execution, an import a dependency) and runs it with several worker processes. An execution
hashes its package's source files and the results of the imported packages, so the last result is a
Merkle hash of the library. Halfway, demo kills one worker process; when its leases have expired, the
others take over its work. At the end, demo computes the hash again without the database. It prints
the last line, and exits with 0, only if both are equal.

Without a database, demo starts an embedded PostgreSQL and removes it at the end. In the database of
--database-url or DATABASE_URL, it works in the schema ` + demoSchema + `, or in that of
--schema; it creates the schema and leaves it there.`,
		Example: `  ff demo
  ff demo --workers 8
  ff demo --keep`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if flags.workers < 2 || flags.workers > maxWorkers {
				return &usageError{problem: fmt.Sprintf("--workers is %d, want 2 to %d, since one is killed", flags.workers, maxWorkers)}
			}
			return a.demo(ctx, flags)
		}),
	}
	a.databaseFlags(cmd)
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "leave the embedded server running and print its URL")
	cmd.Flags().IntVar(&flags.workers, "workers", 4, "number of worker processes")
	cmd.Flags().StringVar(&flags.packages, "packages", "std", "pattern of the packages to hash")
	_ = cmd.Flags().MarkHidden("packages")
	return cmd
}

// demoWorkerCommand is the command for the worker processes of `ff demo`.
func (a *app) demoWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    demoWorkerName,
		Short:  "Run a worker process of `ff demo`",
		Hidden: true,
		Args:   noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return demo.RunWorker(ctx, a.stdin, a.stdout, a.stderr)
		}),
	}
}

func (a *app) demo(ctx context.Context, flags demoFlags) error {
	graph, err := demo.Load(ctx, flags.packages)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	database, err := a.demoDatabase(ctx, flags.keep)
	if err != nil {
		return err
	}
	display := a.newDisplay()
	summary, err := demo.Run(ctx, graph, demo.Options{
		DatabaseURL: database.url,
		Schema:      a.schema,
		Workers:     flags.workers,
		Command: func(ctx context.Context) *exec.Cmd {
			return exec.CommandContext(ctx, program, demoWorkerName)
		},
		Progress: display.progress,
		Event:    display.event,
	})
	display.close()
	if err == nil {
		fmt.Fprint(a.stdout, database.farewell(summary.Flow))
	}
	if err := errors.Join(err, database.close()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, summary)
	return err
}

// demoDatabase is the database of a demo.
type demoDatabase struct {
	url      string
	farewell func(id.FlowID) string // the text to print at the end
	close    func() error
}

// demoDatabase finds or starts a migrated database.
func (a *app) demoDatabase(ctx context.Context, keep bool) (demoDatabase, error) {
	if a.databaseURL != "" {
		named, err := a.namedDatabase()
		if err != nil {
			return demoDatabase{}, err
		}
		return a.ownersDatabase(ctx, named)
	}
	server, err := a.startServer(ctx, pgserver.Demo)
	if err != nil {
		return demoDatabase{}, err
	}
	if keep {
		server.Keep()
	}
	var database demoDatabase
	if a.named(server) {
		database, err = a.ownersDatabase(ctx, server.URL())
	} else {
		database, err = a.migrated(ctx, server.URL())
	}
	if err != nil {
		return demoDatabase{}, errors.Join(err, server.Stop())
	}
	database.close = server.Stop
	if keep && !a.named(server) {
		database.farewell = func(flow id.FlowID) string {
			return fmt.Sprintf("The server keeps running until the next `ff demo` without --keep ends. To look at the flow:\n"+
				"  %s\n  %s\n", exportLine(server.URL()), a.showCommand(flow))
		}
	}
	return database, nil
}

// ownersDatabase migrates a schema of the user's own database, and leaves it there.
func (a *app) ownersDatabase(ctx context.Context, databaseURL string) (demoDatabase, error) {
	if a.schema == "" {
		a.schema = demoSchema
	}
	database, err := a.migrated(ctx, databaseURL)
	database.farewell = func(flow id.FlowID) string {
		return fmt.Sprintf("The flow stays in the database; `%s` shows it.\n", a.showCommand(flow))
	}
	return database, err
}

func (a *app) showCommand(flow id.FlowID) string {
	command := "ff flow show " + flow.String()
	if a.schema != "" {
		command += " --schema " + a.schema
	}
	return command
}

func (a *app) migrated(ctx context.Context, databaseURL string) (demoDatabase, error) {
	if _, err := schema.Migrate(ctx, databaseURL, a.schemaOptions()); err != nil {
		return demoDatabase{}, err
	}
	return demoDatabase{
		url:      databaseURL,
		farewell: func(id.FlowID) string { return "" },
		close:    func() error { return nil },
	}, nil
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) migrateCommand() *cobra.Command {
	cmd := group("migrate", "Create, inspect and drop the tables of a database", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(
		a.migrateUpCommand(), a.migrateAdoptCommand(), a.migrateRepairCommand(), a.migrateDownCommand(),
		a.migrateStatusCommand(), a.migrateCheckCommand(), a.migrateSQLCommand(), a.migrateGrantsCommand(),
	)
	return cmd
}

func (a *app) migrateUpCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a database to the newest version",
		Long: `up applies the pending migrations, if any. Several processes may run it at once: they wait for each other.
Programs of this version keep running. Stop older programs first if a migration excludes their version.`,
		Example: `  DATABASE_URL=postgres://localhost/app ff migrate up
  ff migrate up --schema flowfabric
  ff migrate up --dry-run`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if dryRun {
				return a.plan(ctx)
			}
			return a.change(ctx, schema.Migrate)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the migrations to apply, without changing anything")
	return cmd
}

func (a *app) plan(ctx context.Context) error {
	databaseURL, err := a.requireDatabase()
	if err != nil {
		return err
	}
	result, err := schema.Plan(ctx, databaseURL, a.schemaOptions())
	if err != nil {
		return err
	}
	for _, name := range result.Applied {
		fmt.Fprintln(a.stdout, "would apply", name)
	}
	_, err = fmt.Fprintf(a.stdout, "The database is at version %s and would be at %s. Nothing was changed.\n",
		orNone(result.From), result.To)
	return err
}

func (a *app) migrateAdoptCommand() *cobra.Command {
	var (
		dropOld    bool
		partitions id.Partitions
	)
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Convert a database made by FlowFabric 0.15",
		Long: `adopt converts a database made by FlowFabric 0.15 to one of this library. It
renames FlowFabric's tables to old_..., copies their rows to new ones, compares
counts and checksums, and converts the copies to this library's form. Both can
work on it afterwards.

Stop FlowFabric and all programs of this library first, make a backup, and have
free disk space for a second copy. No program can use the database until adopt is
done. If it is interrupted, run it again to continue.

The partition counts must be those that FlowFabric used. Once you are satisfied,
--drop-old drops the old tables.`,
		Example: `  ff migrate adopt
  ff migrate adopt --budget-partitions 64
  ff migrate adopt --drop-old`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if dropOld {
				return a.dropAdopted(ctx)
			}
			return a.adopt(ctx, partitions)
		}),
	}
	cmd.Flags().BoolVar(&dropOld, "drop-old", false, "drop the tables that were set aside")
	cmd.Flags().Uint16Var(&partitions.Flow, "flow-partitions", id.DefaultFlowPartitions, "FlowFabric's FF_FLOW_PARTITIONS")
	cmd.Flags().Uint16Var(&partitions.Budget, "budget-partitions", id.DefaultBudgetPartitions, "FlowFabric's FF_BUDGET_PARTITIONS")
	cmd.Flags().Uint16Var(&partitions.Quota, "quota-partitions", id.DefaultQuotaPartitions, "FlowFabric's FF_QUOTA_PARTITIONS")
	return cmd
}

func (a *app) adopt(ctx context.Context, partitions id.Partitions) error {
	databaseURL, err := a.requireDatabase()
	if err != nil {
		return err
	}
	result, err := schema.Adopt(ctx, databaseURL, schema.AdoptOptions{
		Options:    schema.Options{Schema: a.schema, Log: slog.New(slog.NewTextHandler(a.stderr, nil))},
		Partitions: partitions,
	})
	if err != nil {
		return err
	}
	for _, t := range result.Tables {
		fmt.Fprintf(a.stdout, "%s: copied %d, rewrote %d\n", t.Table, t.Copied, t.Rewritten)
	}
	for _, text := range result.Unread {
		fmt.Fprintf(a.stdout, "could not be decoded: %s\n", text)
	}
	return a.report(result.Result, "applied")
}

func (a *app) dropAdopted(ctx context.Context) error {
	databaseURL, err := a.requireDatabase()
	if err != nil {
		return err
	}
	result, err := schema.DropAdopted(ctx, databaseURL, a.schemaOptions())
	if err != nil {
		return err
	}
	if len(result.Applied) == 0 {
		_, err = fmt.Fprintln(a.stdout, "Nothing to do.")
		return err
	}
	for _, table := range result.Applied {
		fmt.Fprintln(a.stdout, "dropped", table)
	}
	return nil
}

func (a *app) migrateRepairCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "repair",
		Short: "Correct the functions of a renamed or restored schema",
		Long: `repair is for a schema that was renamed, or restored under another name. Some functions of this library
name their schema. repair corrects those that name another one, if any.`,
		Example: "  ff migrate repair --schema flowfabric",
		Args:    noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			databaseURL, err := a.requireDatabase()
			if err != nil {
				return err
			}
			result, err := schema.Repair(ctx, databaseURL, a.schemaOptions())
			if err != nil {
				return err
			}
			for _, function := range result.Applied {
				fmt.Fprintln(a.stdout, "repaired", function)
			}
			if len(result.Applied) == 0 {
				fmt.Fprintln(a.stdout, "Nothing to do.")
			}
			return nil
		}),
	}
}

func (a *app) change(ctx context.Context, change func(context.Context, string, schema.Options) (schema.Result, error)) error {
	databaseURL, err := a.requireDatabase()
	if err != nil {
		return err
	}
	result, err := change(ctx, databaseURL, a.schemaOptions())
	if err != nil {
		return err
	}
	if result.To > schema.Version {
		fmt.Fprintf(a.stdout, "A newer ff migrated the database, and this one, of version %s, may work on it: nothing to do.\n", schema.Version)
	}
	return a.report(result, "applied")
}

func (a *app) report(result schema.Result, done string) error {
	for _, name := range result.Applied {
		fmt.Fprintln(a.stdout, done, name)
	}
	_, err := fmt.Fprintf(a.stdout, "The database is at version %s.\n", orNone(result.To))
	return err
}

func orNone(version string) string {
	if version == "" {
		return "none"
	}
	return version
}

func (a *app) migrateDownCommand() *cobra.Command {
	var (
		steps int
		all   bool
	)
	cmd := &cobra.Command{
		Use:   "down --steps N | --all",
		Short: "Revert migrations, with the data in their tables and columns",
		Long:  `down reverts the newest migrations. It drops the tables and columns they created, with the data in them.`,
		Example: `  ff migrate down --steps 1
  ff migrate down --all`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if all == (steps > 0) || steps < 0 {
				return &usageError{problem: "ff migrate down loses data and needs either --all or --steps with a number from 1"}
			}
			return a.down(ctx, steps, all)
		}),
	}
	cmd.Flags().IntVar(&steps, "steps", 0, "number of migrations to revert")
	cmd.Flags().BoolVar(&all, "all", false, "revert every migration")
	return cmd
}

func (a *app) down(ctx context.Context, steps int, all bool) error {
	databaseURL, err := a.requireDatabase()
	if err != nil {
		return err
	}
	opts := a.schemaOptions()
	target := ""
	if !all {
		state, err := schema.Status(ctx, databaseURL, opts)
		if err != nil {
			return err
		}
		target = stepsBack(state, steps)
	}
	result, err := schema.Rollback(ctx, databaseURL, target, opts)
	if err != nil {
		return err
	}
	return a.report(result, "reverted")
}

// stepsBack returns the version after reverting the newest applied migrations, or "" for none.
func stepsBack(state schema.State, steps int) string {
	var applied []string
	for _, m := range state.Migrations {
		if m.Applied {
			applied = append(applied, m.Version)
		}
	}
	if steps >= len(applied) {
		return ""
	}
	return applied[len(applied)-steps-1]
}

func (a *app) migrateStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the migrations of a database",
		Long: `status shows the migrations of the database, and whether this version can work on it. It changes
nothing, and exits with 0 for any result as long as the database answers.`,
		Example: `  ff migrate status
  ff migrate status --json | jq -r .problem`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			databaseURL, err := a.requireDatabase()
			if err != nil {
				return err
			}
			state, err := schema.Status(ctx, databaseURL, a.schemaOptions())
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(newMigrationStatus(state))
			}
			return a.printStatus(state)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// migrationStatus is the JSON of `ff migrate status`.
type migrationStatus struct {
	Database   string            `json:"database"`
	Schema     string            `json:"schema"`
	Origin     string            `json:"origin"` // none, own, reference, converting or adopted
	Version    string            `json:"version"`
	UsableFrom string            `json:"usable_from,omitempty"` // the oldest version of ff allowed to use it
	Usable     bool              `json:"usable"`
	Problem    string            `json:"problem,omitempty"`
	Warnings   []string          `json:"warnings"`
	Migrations []migrationRecord `json:"migrations"`
}

type migrationRecord struct {
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func newMigrationStatus(state schema.State) migrationStatus {
	status := migrationStatus{
		Database:   state.Database,
		Schema:     state.Schema,
		Origin:     string(state.Origin),
		Version:    state.Version,
		UsableFrom: state.UsableFrom,
		Usable:     state.Err == nil,
		Warnings:   append([]string{}, state.Warnings...),
		Migrations: []migrationRecord{},
	}
	if state.Err != nil {
		status.Problem, _ = inWords(state.Err)
	}
	for _, m := range state.Migrations {
		status.Migrations = append(status.Migrations, migrationRecord{Name: m.Name, Applied: m.Applied})
	}
	return status
}

func (a *app) printStatus(state schema.State) error {
	status := newMigrationStatus(state)
	t := newTable(table.Row{"MIGRATION", "STATE"})
	for _, m := range status.Migrations {
		applied := "pending"
		if m.Applied {
			applied = "applied"
		}
		t.AppendRow(table.Row{m.Name, applied})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "database %s, schema %s, version %s, origin %s\n\n%s\n",
		printable(status.Database), printable(status.Schema), orNone(status.Version), status.Origin, t.Render())
	for _, warning := range status.Warnings {
		fmt.Fprintf(&text, "\nWarning: %s\n", warning)
	}
	if status.Problem != "" {
		fmt.Fprintf(&text, "\nNot usable: %s\n", status.Problem)
	}
	_, err := fmt.Fprint(a.stdout, text.String())
	return err
}

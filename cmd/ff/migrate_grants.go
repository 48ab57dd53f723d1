package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) migrateGrantsCommand() *cobra.Command {
	var (
		role    string
		options schema.GrantOptions
	)
	cmd := &cobra.Command{
		Use:   "grants --role ROLE",
		Short: "Print the GRANTs that a role of the database needs",
		Long: `grants prints statements that let a role of the database work on the tables. The
owner of the tables runs them, again after each migration. They grant only the
rights that the statements of this version need. The role that migrates owns the
tables and needs no grants.

Select the tasks of the role's programs; each task includes reading. grants needs
no database. The schema is public, or that of --schema.`,
		Example: `  ff migrate grants --role shop --creator | psql postgres://localhost/app
  ff migrate grants --role shop-worker --creator --worker
  ff migrate grants --role support --operator --schema flowfabric`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(context.Context, []string) error {
		switch {
		case cmd.Flags().Changed("database-url"):
			return &usageError{problem: "ff migrate grants works without a database, but --database-url names one", next: "pipe its output to psql"}
		case role == "":
			return &usageError{problem: "ff migrate grants needs the name of a role", next: "pass --role"}
		case !options.Reader && !options.Creator && !options.Worker && !options.Operator:
			return &usageError{
				problem: "ff migrate grants needs the tasks of the role's programs",
				next:    "pass one or more of --reader, --creator, --worker and --operator",
			}
		}
		options.Schema = a.schema
		sql, err := schema.Grants(role, options)
		if err != nil {
			return &usageError{problem: oneLine(err), next: "correct --role or --schema"}
		}
		_, err = fmt.Fprint(a.stdout, sql)
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "role of the database")
	flags.BoolVar(&options.Reader, "reader", false, "reads executions, flows, lanes and events")
	flags.BoolVar(&options.Creator, "creator", false, "creates and cancels executions and flows")
	flags.BoolVar(&options.Worker, "worker", false, "claims, settles, runs background work")
	flags.BoolVar(&options.Operator, "operator", false, "replays, pauses, revokes and so on")
	return cmd
}

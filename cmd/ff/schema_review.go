package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

func (a *app) schemaCommand() *cobra.Command {
	cmd := group("schema", "Review changes to the schema and the queries of a project", "")
	cmd.AddCommand(a.schemaReviewCommand())
	return cmd
}

// reviewError reports the findings of a review. The exit code is their severity.
type reviewError struct {
	code    int
	problem string
}

func (e *reviewError) Error() string { return e.problem }

// writeReview writes a report in one of the formats.
func (a *app) writeReview(format string, r *report.Report, failOn report.Severity) error {
	switch format {
	case "json":
		return report.WriteJSON(a.stdout, r, failOn)
	case "sarif":
		return report.WriteSARIF(a.stdout, r)
	}
	return report.WriteMarkdown(a.stdout, r, failOn)
}

func (a *app) schemaReviewCommand() *cobra.Command {
	config := review.Config{Log: a.stderr}
	format, failOn := "md", report.Blocking
	cmd := &cobra.Command{
		Use:   "review --base REVISION",
		Short: "Report the effects of a change on rows, queries and the Go API",
		Long: `review compares a revision of a project that uses sqlc and dbmate with the revision at which it branched off
--base. It creates a database for each on the server of DATABASE_URL, or on a server that it starts, runs the new
migrations on rows, and drops the databases again. It changes nothing in the project.

It prints the report to standard output. The exit code is the result:

  0    nothing to do
  8    there is advice, and nothing of the severity --fail-on or worse
  9    there is something of that severity

The severities are note, advice, risk, and blocking for changes that break programs, lose rows or stop writers on a
database of any size. A comment before its statement accepts a finding:

  -- review: allow lock-blocks-writers until 2027-01-31: the table is empty everywhere`,
		Example: `  ff schema review --base main
  ff schema review --base origin/main --head HEAD --format sarif --fail-on risk`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if config.Base == "" {
				return &usageError{problem: "ff schema review needs --base, the revision to merge the change into"}
			}
			if !slices.Contains([]string{"md", "json", "sarif"}, format) {
				return &usageError{problem: fmt.Sprintf("%q is not a format of a report: use md, json or sarif", format)}
			}
			if config.Rows < 0 {
				return &usageError{problem: fmt.Sprintf("--rows is %d, but must not be negative", config.Rows)}
			}
			// Only for its password, which errors must not print.
			if _, err := a.namedDatabase(); err != nil {
				return err
			}
			r, err := review.Run(ctx, config)
			if err != nil {
				return err
			}
			if err := a.writeReview(format, r, failOn); err != nil {
				return err
			}
			switch verdict := r.Verdict(failOn); verdict {
			case report.Clean:
				return nil
			case report.Advisory:
				return &reviewError{verdict.ExitCode(), "the change may be merged, with advice"}
			default:
				return &reviewError{verdict.ExitCode(), fmt.Sprintf("there are findings of severity %s or worse", failOn)}
			}
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&config.Base, "base", "", "revision to merge the change into")
	flags.StringVar(&config.Head, "head", "", "last revision of the change (default the working folder, committed or not)")
	flags.StringVar(&config.Dir, "dir", ".", "folder of the project")
	flags.StringVar(&config.Seed, "seed", "", "file that describes the rows (default seed.yaml beside the migrations' folder, if there is one)")
	flags.IntVar(&config.Rows, "rows", 0, "total number of rows (default from the seed file)")
	flags.StringVar(&config.MigrationsDir, "migrations-dir", "", "folder of the migrations (default the only one with migrations)")
	flags.StringVar(&config.MigrationsTable, "migrations-table", "", "dbmate's table (default DBMATE_MIGRATIONS_TABLE in .env, else schema_migrations)")
	flags.StringVar(&format, "format", format, "md, json or sarif")
	flags.TextVar(&failOn, "fail-on", failOn, "lowest severity with exit code 9: advice, risk or blocking")
	return cmd
}

package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// licenses is written by `make licenses`.
//
//go:embed licenses.txt
var licenses string

// The lines have at most 80 columns, which a test checks.
const about = `schema-review compares a revision of a project with the revision at which it
branched off --base. It creates a database for each on the server of
DATABASE_URL, or on a server that it starts, runs the new migrations on rows,
and drops the databases again. Some of --base stay there for later reviews. It
changes nothing in the project.

It prints the report to standard output, and progress to standard error. The
exit code is the result:

  0    nothing to do
  1    the review failed
  2    wrong usage: an unknown flag, a malformed DATABASE_URL
  8    there is advice, and nothing of the severity --fail-on or worse
  9    there is something of that severity
  10   there is not, but a part of the project was not read
  130  interrupted

The severities are note, advice, risk, and blocking for changes that break
programs, lose rows or stop writers on a database of any size. A comment before
its statement accepts a finding:

  -- review: allow lock-blocks-writers until 2027-01-31: the table is empty`

const examples = `  schema-review --base main
  schema-review --base origin/main --head HEAD --format sarif --fail-on risk`

// formats are the values of --format, with the functions that write them.
var formats = map[string]func(io.Writer, *report.Report, report.Severity) error{
	"md":   report.WriteMarkdown,
	"json": report.WriteJSON,
	"sarif": func(w io.Writer, r *report.Report, _ report.Severity) error {
		return report.WriteSARIF(w, r)
	},
}

// options are the flags.
type options struct {
	review.Config
	format   string
	failOn   report.Severity
	also     []string // FORMAT=FILE
	licenses bool
}

// check returns an error for the first wrong flag.
func (o *options) check() error {
	if o.Base == "" {
		return usageError{"--base is missing, the revision to merge the change into"}
	}
	if formats[o.format] == nil {
		return usageError{fmt.Sprintf("%q is not a format of a report: use md, json or sarif", o.format)}
	}
	for _, also := range o.also {
		if _, _, err := splitAlso(also); err != nil {
			return err
		}
	}
	if o.Rows < 0 {
		return usageError{fmt.Sprintf("--rows is %d, but must not be negative", o.Rows)}
	}
	return nil
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, env func(string) string) int {
	var hidden secrets
	began := false
	cmd := newCommand(func(ctx context.Context, o options) error {
		began = true
		return runReview(ctx, o, &hidden, stdout, stderr, env)
	})
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !began { // the flags' parser refused the command line
		err = usageError{err.Error()}
	}
	sentence, code := explain(ctx, err)
	fmt.Fprintf(stderr, "schema-review: %s\n", hidden.redact(sentence))
	return code
}

// runReview reviews the change, and writes the report. A verdict that is not clean is a [verdictError].
func runReview(ctx context.Context, o options, hidden *secrets, stdout, stderr io.Writer, env func(string) string) error {
	if o.licenses {
		_, err := io.WriteString(stdout, licenses)
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := hidden.read(env); err != nil {
		return err
	}
	o.Log = redactor{hidden, stderr}
	r, err := review.Run(ctx, o.Config)
	if err != nil {
		return err
	}
	hidden.redactReport(r)
	if err := writeReports(stdout, r, o); err != nil {
		return err
	}
	if verdict := r.Verdict(o.failOn); verdict != report.Clean {
		return verdictError{verdict, o.failOn}
	}
	return nil
}

// newCommand returns the command, which calls do with the flags.
func newCommand(do func(context.Context, options) error) *cobra.Command {
	o := options{format: "md", failOn: report.Blocking}
	cmd := &cobra.Command{
		Use:     "schema-review --base REVISION",
		Short:   "Report the effects of a change on rows, queries and the Go API",
		Long:    about,
		Example: examples,
		Version: version(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("it takes no arguments, but got %q", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), o) },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetVersionTemplate("schema-review {{.Version}}\n")
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "FlagUsages", "FlagUsagesWrapped 80"))
	cmd.Flags().SortFlags = false
	addFlags(cmd, &o)
	return cmd
}

func addFlags(cmd *cobra.Command, o *options) {
	flags := cmd.Flags()
	flags.StringVar(&o.Base, "base", "", "revision to merge the change into")
	flags.StringVar(&o.Head, "head", "", "last revision of the change (default the working folder, committed or not)")
	flags.StringVar(&o.Dir, "dir", ".", "folder of the project")
	flags.StringVar(&o.Seed, "seed", "", "file that describes the rows (default seed.yaml beside the migrations' folder, if there is one)")
	flags.IntVar(&o.Rows, "rows", 0, "total number of rows (default from the seed file)")
	flags.StringVar(&o.MigrationsDir, "migrations-dir", "", "folder of the migrations (default the only one with migrations)")
	flags.StringVar(&o.MigrationsTable, "migrations-table", "", "the migration tool's table (default the tool's; dbmate's from .env)")
	flags.StringSliceVar(&o.SQLCConfigs, "sqlc-config", nil, "configuration of sqlc (default each sqlc.yaml, .yml and .json)")
	flags.StringVar(&o.Tool, "tool", "", "dbmate, goose, golang-migrate, tern, flyway, atlas or sql (default by the files)")
	flags.StringVar(&o.MigrateCommand, "migrate-command", "", "shell command that migrates the database of DATABASE_URL")
	flags.BoolVar(&o.TrustSQL, "trust-sql", false, "run the project's SQL as the role of DATABASE_URL, if it may not create roles: only for changes that you trust")
	flags.BoolVar(&o.NoCache, "no-cache", false, "make all databases anew, and keep none on the server")
	flags.StringVar(&o.format, "format", o.format, "md, json or sarif")
	flags.StringArrayVar(&o.also, "also", nil, "write the report to a file, too: FORMAT=FILE; may be repeated")
	flags.TextVar(&o.failOn, "fail-on", o.failOn, "lowest severity with exit code 9: advice, risk or blocking")
	flags.BoolVar(&o.licenses, "licenses", false, "print the licenses of the command and its dependencies")
}

// version returns the module's version, and Go's.
func version() string {
	of := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		of = info.Main.Version
	}
	return of + ", " + runtime.Version()
}

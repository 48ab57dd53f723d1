package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) migrateSQLCommand() *cobra.Command {
	var (
		options   schema.SQLOptions
		format    string
		directory string
		down      bool
	)
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the migrations as SQL for another migrator",
		Long: `sql prints the migrations as one SQL file, for psql or for your program's own migrator. With --dir it
writes a file, or a pair of files, for each migration instead. It needs no database.

ff and the library can work on a database migrated this way, since the SQL writes their ledger too.
Pass the version from "ff migrate status" to --from to get only newer migrations.

Formats:
  plain           for psql or any other program, with BEGIN and COMMIT
  goose           up and down in one file, with goose's annotations
  golang-migrate  NAME.up.sql and NAME.down.sql; leave x-multi-statement off
  atlas           the way up; run "atlas migrate hash" afterwards

The files of --dir are named after this library's versions. Keep them in a separate folder, and their
migrator's records in a separate table, or print one file and give it the next version of your own
migrations.`,
		Example: `  ff migrate sql | psql -v ON_ERROR_STOP=1 postgres://localhost/app
  ff migrate sql --format goose --from 20261125000015 > 00042_flowfabric.sql
  ff migrate sql --format golang-migrate --dir migrations/flowfabric`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(_ context.Context, _ []string) error {
		if cmd.Flags().Changed("database-url") {
			return &usageError{problem: "ff migrate sql works without a database, but --database-url names one"}
		}
		options.Schema = a.schema
		steps, err := schema.SQL(options)
		if err != nil {
			return &usageError{problem: oneLine(err)}
		}
		if len(steps) == 0 {
			fmt.Fprintf(a.stderr, "There is no migration after %s.\n", options.From)
			return nil
		}
		switch {
		case directory == "":
			return a.printSQL(schema.Join(steps), schema.Format(format), down)
		case down:
			return &usageError{problem: "--dir writes both directions, but --down asks for one"}
		}
		return a.writeSQL(steps, schema.Format(format), directory)
	})
	flags := cmd.Flags()
	flags.StringVar(&options.From, "from", "", "current version of the database (default none)")
	flags.StringVar(&options.To, "to", "", "last version to print (default the newest)")
	flags.StringVar(&format, "format", string(schema.Plain), "plain, goose, golang-migrate or atlas")
	flags.StringVar(&directory, "dir", "", "folder for a file, or a pair of files, for each migration")
	flags.BoolVar(&down, "down", false, "print the way down, if the format has a file for it")
	return cmd
}

func (a *app) printSQL(step schema.Step, format schema.Format, down bool) error {
	files, err := step.Files(format)
	if err != nil {
		return &usageError{problem: oneLine(err)}
	}
	file := files[0]
	if down {
		if len(files) == 1 {
			return &usageError{problem: fmt.Sprintf("the format %s has no file for the way down", format)}
		}
		file = files[1]
	}
	_, err = fmt.Fprint(a.stdout, file.Text)
	return err
}

// writeSQL writes the files. It accepts existing files with the same content and never overwrites others.
func (a *app) writeSQL(steps []schema.Step, format schema.Format, directory string) error {
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return err
	}
	for _, step := range steps {
		files, err := step.Files(format)
		if err != nil {
			return &usageError{problem: oneLine(err)}
		}
		for _, file := range files {
			if err := a.writeFile(filepath.Join(directory, file.Name), file.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) writeFile(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		held, err := os.ReadFile(name)
		if err == nil && string(held) != text {
			err = fmt.Errorf("%s exists with another content", name)
		}
		return err
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, "wrote", name)
	return nil
}

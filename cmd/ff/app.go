package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitDatabase    = 4
	exitPending     = 5 // only for `ff migrate check`, like the next two
	exitTooNew      = 6
	exitUnreachable = 7
	exitInterrupted = 130
)

const about = `ff shows FlowFabric at work and manages its databases.

The database is the one in --database-url or, without that flag, in the environment variable
DATABASE_URL. Prefer the variable: other users of the machine can read a command line.

Exit codes:
  0    done
  1    failed or refused, for example because of the execution's state
  2    wrong usage: an unknown command or flag, a malformed id or URL, no database
  3    the flow, execution or lane does not exist
  4    the database cannot be used: it does not answer, refuses the login, does not exist, is not
       migrated, too old, too new, distributed, read-only, or not this library's
  5-7  of "ff migrate check"; see its help
  130  interrupted`

// app is one run of the command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string

	databaseURL, schema string // flags
	secrets             []string
	began               bool // a command has run, so an error is not a usage error
}

// run runs one command line and returns its exit code. When ctx ends, run cleans up and returns early.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	root := a.command()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if !a.began {
		err = &usageError{problem: err.Error()}
	}
	if usage, ok := errors.AsType[*usageError](err); ok && usage.next == "" {
		usage.next = fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	}
	sentence, code := inWords(err)
	fmt.Fprintf(stderr, "ff: %s\n", a.redact(sentence))
	return code
}

func (a *app) command() *cobra.Command {
	root := group("ff", "Durable execution on Postgres", about)
	root.Example = `  ff demo
  ff migrate up --database-url postgres://localhost/app
  ff flow show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --json
  ff execution list --state failed --since 24h`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(
		a.demoCommand(), a.demoWorkerCommand(), a.devCommand(), a.migrateCommand(),
		a.flowCommand(), a.executionCommand(), a.whyCommand(), a.laneCommand(), a.scheduleCommand(), a.sequenceCommand(), a.budgetCommand(), a.limitCommand(), a.workerCommand(), a.jobCommand(), a.consoleCommand(), a.leaseCommand(), a.kindCommand(), a.retentionCommand(), a.logCommand(),
		a.keyCommand(), a.waitCommand(), a.waitpointCommand(), a.eventCommand(), a.streamCommand(), a.consumerCommand(), a.licensesCommand(), a.versionCommand(),
	)
	root.Version = version()
	root.SetVersionTemplate("{{.Version}}\n")
	fitHelp(root)
	return root
}

// group returns a command for subcommands only.
func group(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.HasParent() {
				return fmt.Errorf("%s needs a command", cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
}

// oneID checks the arguments of commands with one id.
func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one id, not %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// noArgs checks the arguments of commands with only flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// does returns fn as the body of a command. Errors before it are the parser's.
func (a *app) does(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		err := fn(cmd.Context(), args)
		if err != nil && cmd.Context().Err() != nil {
			return errors.Join(errInterrupted, err)
		}
		return err
	}
}

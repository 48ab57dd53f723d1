package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// whereHelp is the common part of the help for commands on many executions.
const whereHelp = `

Each --where NAME=VALUE selects executions like the flag of "ff execution list" with this name: namespace,
lane, kind, state, tag, since, until, worker or instance. An execution has to match every filter. --dry-run only counts
the matches.

The executions are changed in batches, while workers go on. Those whose state doesn't allow the change are
refused, and those that another session holds are left out; the exit code is then 1. A run that stops early
prints how to continue.`

// whereFlags has the flags of a command on the executions matching a filter.
type whereFlags struct {
	where       []string
	after       string
	batch       int
	dryRun, yes bool
}

func (f *whereFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.where, "where", nil, "select executions by `NAME=VALUE`; may be repeated")
	flags.StringVar(&f.after, "after", "", "continue after the cursor that a run with the same --where printed")
	flags.IntVar(&f.batch, "batch", operator.DefaultBulkBatch, "executions of a transaction")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count the executions, without changing anything")
	flags.BoolVar(&f.yes, "yes", false, "don't ask before the change")
}

// idOrWhere checks that a command has either an id and the named arguments, or --where and these arguments.
func idOrWhere(where *[]string, rest ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch given := len(args) - len(rest); {
		case given == 1 && len(*where) == 0, given == 0 && len(*where) > 0:
			return nil
		case given == 1:
			return fmt.Errorf("%s takes either an id or --where", cmd.CommandPath())
		default:
			return fmt.Errorf("%s takes %s, or --where for many", cmd.CommandPath(), strings.Join(append([]string{"one id"}, rest...), " and "))
		}
	}
}

// onlyWhere checks that a command has --where, and no arguments.
func onlyWhere(where *[]string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || len(*where) == 0 {
			return fmt.Errorf("%s takes --where, and no arguments", cmd.CommandPath())
		}
		return nil
	}
}

// list converts the conditions to the flags of `ff execution list`.
func (f *whereFlags) list() (*listFlags, error) {
	l := &listFlags{order: "oldest"}
	fields := map[string]*string{
		"namespace": &l.namespace, "lane": &l.lane, "kind": &l.kind, "state": &l.state, "tag": &l.tag, "since": &l.since, "until": &l.until,
		"worker": &l.worker, "instance": &l.instance,
	}
	for _, condition := range f.where {
		name, value, _ := strings.Cut(condition, "=")
		field, ok := fields[name]
		switch {
		case !ok:
			return nil, &usageError{
				problem: fmt.Sprintf("--where: there is no condition on %q", name),
				next:    "use NAME=VALUE with namespace, lane, kind, state, tag, since, until, worker or instance",
			}
		case value == "":
			return nil, &usageError{problem: fmt.Sprintf("--where %q is not NAME=VALUE", condition)}
		case *field != "":
			return nil, &usageError{problem: fmt.Sprintf("--where: %s is given twice", name)}
		}
		*field = value
	}
	return l, nil
}

// bulkChange is a change of many executions, in words such as "cancel", and its operation.
type bulkChange struct {
	words string
	run   func(*engine.Engine, engine.ExecutionFilter, operator.Bulk) (operator.BulkProgress, error)
}

// bulkView is the JSON of a change of many executions.
type bulkView struct {
	Matched int  `json:"matched"`
	Changed int  `json:"changed"`
	Refused int  `json:"refused"`
	Busy    int  `json:"busy"`
	DryRun  bool `json:"dry_run"`
}

// changeWhere changes the executions matching the conditions, after a confirmation.
func (a *app) changeWhere(ctx context.Context, f whereFlags, asJSON bool, change bulkChange) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	if _, err := list.filter(time.Now()); err != nil {
		return asUsageOfWhere(err)
	}
	if !f.dryRun && !f.yes && !isTerminal(a.stdin) {
		return &usageError{
			problem: "there is no terminal to confirm the change", next: "pass --yes to make it, or --dry-run to count the executions",
		}
	}
	return a.withEngine(ctx, func(eng *engine.Engine) error {
		defer eng.Flush()
		now, err := eng.Now(ctx)
		if err != nil {
			return err
		}
		filter, err := list.filter(now)
		if err != nil {
			return err
		}
		bulk, total := operator.Bulk{DryRun: true, Batch: f.batch, After: f.after}, 0
		if !f.dryRun && !f.yes {
			would, err := change.run(eng, filter, bulk)
			if err != nil {
				return asUsageOfWhere(err)
			}
			if total = would.Matched; total > 0 {
				if err := a.confirm(ctx, fmt.Sprintf("%s %s?", change.words, countOf(total))); err != nil {
					return err
				}
			}
		}
		bulk.DryRun = f.dryRun
		return a.runWhere(eng, filter, bulk, total, asJSON, change)
	})
}

// runWhere runs the operation with its progress on the standard error, and prints the counts.
func (a *app) runWhere(
	eng *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk, total int, asJSON bool, change bulkChange,
) error {
	shown := newBulkDisplay(a.stderr, total)
	bulk.Progress = func(p operator.BulkProgress) error {
		shown.progress(p)
		return nil
	}
	got, err := change.run(eng, filter, bulk)
	shown.close()
	switch {
	case err != nil && got.Next != bulk.After:
		fmt.Fprintf(a.stderr, "%s\nContinue with --after %s\n", counts(got), got.Next)
		return asUsageOfWhere(err)
	case err != nil:
		return asUsageOfWhere(err)
	case asJSON:
		err = a.writeJSON(bulkView{got.Matched, got.Changed, got.Refused, got.Busy, bulk.DryRun})
	case bulk.DryRun:
		_, err = fmt.Fprintf(a.stdout, "%s matched. Those whose state doesn't allow the change are refused then.\n", countOf(got.Matched))
	default:
		_, err = fmt.Fprintln(a.stdout, counts(got))
	}
	switch {
	case err != nil:
		return err
	case got.Busy > 0:
		return &stepError{fmt.Errorf("%s: %d busy, %d refused", countOf(got.Matched), got.Busy, got.Refused), "run it again for the busy ones", exitFailed}
	case got.Refused > 0:
		return &stepError{fmt.Errorf("%d of %s were refused", got.Refused, countOf(got.Matched)), "look at them with `ff execution list`", exitFailed}
	}
	return nil
}

// asUsageOfWhere converts an argument error from the engine to an error with --where, or the flag.
func asUsageOfWhere(err error) error {
	usage, ok := errors.AsType[*usageError](asUsage(err))
	if !ok {
		return err
	}
	for _, flag := range []string{"--after", "--reason", "--batch", "--to"} {
		if strings.HasPrefix(usage.problem, flag) {
			return usage
		}
	}
	return &usageError{problem: "--where: " + strings.TrimPrefix(usage.problem, "--"), next: usage.next}
}

func countOf(n int) string {
	if n == 1 {
		return "1 execution"
	}
	return fmt.Sprintf("%d executions", n)
}

// counts returns the counts of a run in words.
func counts(p operator.BulkProgress) string {
	return fmt.Sprintf("%s matched: %d changed, %d refused, %d busy.", countOf(p.Matched), p.Changed, p.Refused, p.Busy)
}

func (a *app) executionDeleteCommand() *cobra.Command {
	var (
		f      whereFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "delete --where NAME=VALUE",
		Short: "Delete ended executions before their retention does",
		Long: `delete deletes ended executions with their attempts, steps, waits and keys. Those that have not ended are
refused, and so are members of flows: a flow is kept and deleted as a whole.` + whereHelp,
		Example: `  ff execution delete --where kind=import --where state=failed --dry-run
  ff execution delete --where lane=tests --where until=720h --yes`,
		Args: onlyWhere(&f.where),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.changeWhere(ctx, f, asJSON, bulkChange{
				"Delete", func(o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
					return operator.DeleteWhere(ctx, o, filter, bulk)
				},
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd)
	return cmd
}

func (a *app) executionMoveCommand() *cobra.Command {
	var (
		f      whereFlags
		to     string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "move --where NAME=VALUE --to LANE",
		Short: "Move executions that are ready to be claimed to another lane",
		Long: `move moves executions that are ready to be claimed to another lane, with their priority and age. Delayed,
blocked, waiting and running ones are refused.` + whereHelp,
		Example: `  ff execution move --where lane=images --where kind=thumbnail --to thumbnails`,
		Args:    onlyWhere(&f.where),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if err := id.LaneID(to).Validate(); err != nil {
				return &usageError{problem: fmt.Sprintf("--to: %v", err), next: "pass the lane to move to"}
			}
			return a.changeWhere(ctx, f, asJSON, bulkChange{
				"Move", func(o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
					return operator.MoveWhere(ctx, o, filter, id.LaneID(to), bulk)
				},
			})
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the lane")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd)
	return cmd
}

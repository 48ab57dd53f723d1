package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

// retryFlags has the flags of `ff execution retry` and `ff flow retry` as given.
type retryFlags struct {
	completed, dryRun, asJSON bool
	from                      string // the first step to run again
	noSteps                   bool
}

// options converts the flags to options of a replay.
func (f *retryFlags) options() []operator.ReplayOption {
	var options []operator.ReplayOption
	if f.completed {
		options = append(options, operator.ReplayCompleted)
	}
	if f.noSteps {
		options = append(options, operator.ReplayWithoutSteps)
	}
	if f.from != "" {
		options = append(options, operator.ReplayFromStep(f.from))
	}
	return options
}

func (a *app) executionRetryCommand() *cobra.Command {
	var (
		r retryFlags
		f = listFlags{order: "oldest"}
		w whereFlags
	)
	cmd := &cobra.Command{
		Use:   "retry ID | --where NAME=VALUE",
		Short: "Run ended executions again, and delayed ones at once",
		Long: `retry runs a failed, expired, cancelled or skipped execution again: with the same
payload, all its retries, and without its earlier results. An execution that
waits for its next attempt becomes ready at once.

Finished steps are kept, so a handler continues with the step that failed.
--from STEP runs this step and those that began after it again, --no-steps all
of them.

Completed executions are refused, since their effects would happen again, unless
--completed is given.

A few are selected by --state failed with --lane, --kind, --tag, --since, --until
or --limit: each is retried by itself and printed, the oldest first, and so are
refused ones with the reason. The exit code is then 1. --dry-run only lists them.
Many are selected by --where.` + whereHelp,
		Example: `  ff execution retry 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff execution retry 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --from charge
  ff execution retry --state failed --kind send-invoice --limit 100
  ff execution retry --where state=failed --where lane=mail --where since=24h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%s takes one id, not %d; use --where to select many", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		var chosen []string
		for _, name := range []string{"where", "lane", "kind", "state", "tag", "since", "until", "limit", "dry-run"} {
			if cmd.Flags().Changed(name) {
				chosen = append(chosen, "--"+name)
			}
		}
		r.dryRun = w.dryRun
		switch {
		case r.from != "" && r.noSteps:
			return &usageError{problem: "ff execution retry takes either --from or --no-steps"}
		case r.from != "" && len(args) == 0:
			return &usageError{problem: "--from needs the id of one execution"}
		case len(args) == 1 && len(chosen) > 0:
			return &usageError{problem: fmt.Sprintf("ff execution retry takes either an id or %s", strings.Join(chosen, ", "))}
		case len(args) == 1:
			return a.operate(ctx, args[0], r.asJSON, func(eng *engine.Engine, x id.ExecutionID) error { return retryOne(ctx, eng, x, r) })
		case len(w.where) > 0 && len(chosen) > 1 && chosen[1] != "--dry-run":
			return &usageError{problem: fmt.Sprintf("ff execution retry takes either --where or %s", strings.Join(chosen[1:], ", "))}
		case len(w.where) > 0:
			return a.retryWhere(ctx, w, r)
		case f.state == "":
			return &usageError{problem: "ff execution retry needs an id, or --where or --state for many", next: "pass --where state=failed, expired, cancelled, skipped or completed"}
		}
		return a.retryMany(ctx, f, r)
	})
	f.filterFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&r.completed, "completed", false, "also run completed ones again, with all their effects")
	flags.StringVar(&r.from, "from", "", "run this step and later ones again")
	flags.BoolVar(&r.noSteps, "no-steps", false, "run all steps again")
	flags.IntVar(&f.limit, "limit", 0, "largest number to retry, 0 for all")
	flags.BoolVar(&r.asJSON, "json", false, "print JSON")
	w.add(cmd)
	return cmd
}

// retryOne replays an execution, or ends its delay.
func retryOne(ctx context.Context, eng *engine.Engine, x id.ExecutionID, r retryFlags) error {
	_, err := operator.Replay(ctx, eng, x, r.options()...)
	if !errors.Is(err, fferr.ErrNotEnded) || r.noSteps || r.from != "" {
		return err
	}
	now, clockErr := eng.Now(ctx)
	if clockErr != nil {
		return clockErr
	}
	return operator.Delay(ctx, eng, x, now)
}

// checkState checks that executions in a state can be retried.
func (r *retryFlags) checkState(given string) error {
	switch public := state.PublicState(given); {
	case public == state.PublicCompleted && !r.completed:
		return &usageError{problem: "retrying completed executions repeats their effects", next: "pass --completed to do so anyway"}
	case slices.Contains(state.PublicStates(), public) && !public.Terminal():
		return &usageError{problem: fmt.Sprintf("--state %s is not the state of an ended execution", public), next: "use failed, expired, cancelled, skipped or completed"}
	}
	return nil
}

// retryWhere replays the executions matching the conditions, in batches.
func (a *app) retryWhere(ctx context.Context, w whereFlags, r retryFlags) error {
	list, err := w.list()
	if err != nil {
		return err
	}
	if err := r.checkState(list.state); err != nil {
		return asUsageOfWhere(err)
	}
	return a.changeWhere(ctx, w, r.asJSON, bulkChange{
		"Retry", func(o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
			return operator.ReplayWhere(ctx, o, filter, bulk, r.options()...)
		},
	})
}

// retryMany replays the executions selected by the flags.
func (a *app) retryMany(ctx context.Context, f listFlags, r retryFlags) error {
	if err := r.checkState(f.state); err != nil {
		return err
	}
	if _, err := f.filter(time.Now()); err != nil {
		return err
	}
	return a.withEngine(ctx, func(eng *engine.Engine) error {
		now, err := eng.Now(ctx)
		if err != nil {
			return err
		}
		filter, err := f.filter(now)
		if err != nil {
			return err
		}
		b := newBulk(a, eng, r)
		for x, err := range eng.Executions(ctx, filter) {
			if err != nil {
				return asUsage(err)
			}
			if f.limit > 0 && b.seen == f.limit {
				break
			}
			if err := b.retry(ctx, x.ID, ""); err != nil {
				return err
			}
		}
		return b.end()
	})
}

// bulk retries one execution after the other.
type bulk struct {
	a   *app
	eng *engine.Engine
	retryFlags

	seen int
	view retriedView
}

// retriedView is the JSON of a retry of many, and of `ff flow retry`.
type retriedView struct {
	Retried []id.ExecutionID `json:"retried"` // with --dry-run, to be retried
	Refused []refusedView    `json:"refused"`
}

type refusedView struct {
	ID    id.ExecutionID `json:"id"`
	Error string         `json:"error"`
}

func newBulk(a *app, eng *engine.Engine, r retryFlags) *bulk {
	return &bulk{a: a, eng: eng, retryFlags: r, view: retriedView{Retried: []id.ExecutionID{}, Refused: []refusedView{}}}
}

// retry retries one execution. It returns an error only if the others cannot be tried either. name is the node's name, or
// empty.
func (b *bulk) retry(ctx context.Context, x id.ExecutionID, name string) error {
	b.seen++
	var err error
	if !b.dryRun {
		_, err = operator.Replay(ctx, b.eng, x, b.options()...)
	}
	switch {
	case err == nil:
		b.view.Retried = append(b.view.Retried, x)
	case ctx.Err() != nil, errors.Is(err, fferr.ErrUnavailable), errors.Is(err, fferr.ErrTransport), errors.Is(err, fferr.ErrDenied),
		errors.Is(err, fferr.ErrReadOnly), errors.Is(err, fferr.ErrFlowTerminal):
		return err
	default:
		b.view.Refused = append(b.view.Refused, refusedView{x, oneLine(err)})
	}
	if b.asJSON {
		return nil
	}
	if name != "" {
		name = " (" + printable(name) + ")"
	}
	switch {
	case err != nil:
		_, err = fmt.Fprintf(b.a.stdout, "%s%s is refused: %s\n", x.UUID(), name, oneLine(err))
	case b.dryRun:
		_, err = fmt.Fprintf(b.a.stdout, "%s%s would run again\n", x.UUID(), name)
	default:
		_, err = fmt.Fprintf(b.a.stdout, "%s%s runs again\n", x.UUID(), name)
	}
	return err
}

// end prints the total. It returns an error if some were refused.
func (b *bulk) end() error {
	b.eng.Flush()
	var err error
	if b.asJSON {
		err = b.a.writeJSON(b.view)
	} else if b.seen == 0 {
		_, err = fmt.Fprintln(b.a.stdout, "None found.")
	}
	if err == nil && len(b.view.Refused) > 0 {
		err = &stepError{
			fmt.Errorf("%d of %d executions were refused", len(b.view.Refused), b.seen), "look at them with `ff execution show`", exitFailed,
		}
	}
	return err
}

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// consumersView is the JSON of `ff consumer list`.
type consumersView struct {
	Consumers []consumerView `json:"consumers"`
}

type consumerView struct {
	Outbox    events.Outbox `json:"outbox"`
	Name      string        `json:"name"`
	Position  events.Cursor `json:"position"`
	Head      events.Cursor `json:"head"`
	Lag       int64         `json:"lag"`
	Gone      bool          `json:"gone"`
	Stale     bool          `json:"stale"`
	UpdatedAt string        `json:"updated_at"`
	Holder    string        `json:"holder,omitempty"`
	Failing   *failingView  `json:"failing,omitempty"`
	SetAside  int64         `json:"set_aside"`

	updated time.Time
}

type failingView struct {
	Event   events.Cursor `json:"event"`
	Tries   int           `json:"tries"`
	NextTry string        `json:"next_try,omitempty"`
	Error   string        `json:"error"`
}

func (a *app) consumerListCommand() *cobra.Command {
	var asJSON, wide bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the named consumers and how far behind they are",
		Long: `list prints each named consumer with the largest number of events that it may still have to handle, the
time of its last activity, the number of failures on its current event, and the number of events set
aside. A consumer without activity for seven days no longer keeps events from being deleted.`,
		Example: `  ff consumer list
  ff consumer list --json | jq '.consumers[] | select(.lag > 1000)'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				consumers, err := events.Consumers(ctx, eng)
				if err != nil {
					return err
				}
				view := &consumersView{Consumers: []consumerView{}}
				for _, c := range consumers {
					view.Consumers = append(view.Consumers, newConsumerView(c))
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, wide)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wide, "wide", false, "print more than 80 columns: whole names and errors")
	return cmd
}

func newConsumerView(c events.ConsumerStatus) consumerView {
	v := consumerView{
		Outbox: c.Outbox, Name: c.Name, Position: c.Position, Head: c.Head, Lag: c.Lag, Gone: c.Gone, Stale: c.Stale,
		UpdatedAt: timestamp(c.UpdatedAt), Holder: c.Holder, SetAside: c.SetAside, updated: c.UpdatedAt,
	}
	if f := c.Failing; f != nil {
		v.Failing = &failingView{f.Event, f.Tries, timestamp(f.NextTry), f.Error}
	}
	return v
}

func (v *consumersView) print(to io.Writer, now time.Time, wide bool) error {
	if len(v.Consumers) == 0 {
		_, err := io.WriteString(to, "There are no consumers.\n")
		return err
	}
	fit := shortened
	if wide {
		fit = func(text string, _ int) string { return text }
	}
	var remarks strings.Builder
	t := newTable(table.Row{"CONSUMER", "OUTBOX", "LAG", "SEEN", "TRIES", "SET ASIDE", ""})
	for _, c := range v.Consumers {
		name := fit(printable(c.Name), 20)
		tries, remark := "", ""
		if c.Failing != nil {
			tries = fmt.Sprint(c.Failing.Tries)
			remarks.WriteString(fit(fmt.Sprintf("%s fails at %s: %s", name, c.Failing.Event, printable(c.Failing.Error)), columns) + "\n")
		}
		switch {
		case c.Gone:
			remark = "gone"
			remarks.WriteString(fit(name+" has lost events: run `ff consumer move`", columns) + "\n")
		case c.Stale:
			remark = "stale"
		case c.Holder == "":
			remark = "idle"
		}
		t.AppendRow(table.Row{name, c.Outbox, c.Lag, ago(now.Sub(c.updated)), tries, c.SetAside, remark})
	}
	_, err := io.WriteString(to, t.Render()+"\n"+remarks.String())
	return err
}

func (a *app) consumerCommand() *cobra.Command {
	cmd := group("consumer", "List, move and remove named consumers of events", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.consumerListCommand(), a.consumerMoveCommand(), a.consumerRemoveCommand(), a.consumerSetAsideCommand())
	return cmd
}

// consumerArguments checks for an outbox and a name.
func consumerArguments(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s takes an outbox, completion, lease, signal or operator, and a name", cmd.CommandPath())
	}
	return nil
}

func (a *app) consumerMoveCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "move OUTBOX NAME --to CURSOR",
		Short: "Make a consumer continue after another event",
		Long: `move makes a consumer continue after a cursor, as printed by "ff event tail". The consumer may be running.
"--to oldest" goes back to the oldest event that is kept; "--to head" skips all present events.
Events handled again have their effects again.`,
		Example: `  ff consumer move completion billing --to 020000000000000042
  ff consumer move completion billing --to oldest`,
		Args: consumerArguments,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				outbox, name := events.Outbox(args[0]), args[1]
				cursor, err := targetOf(ctx, eng, outbox, name, to)
				if err == nil {
					err = events.MoveConsumer(ctx, eng, outbox, name, cursor)
				}
				if err != nil {
					return tailError(err)
				}
				_, err = fmt.Fprintf(a.stdout, "Consumer %s continues after %s.\n", printable(name), cursor)
				return err
			})
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the cursor, oldest, or head")
	return cmd
}

// targetOf parses the position at which a consumer should continue.
func targetOf(ctx context.Context, eng *engine.Engine, outbox events.Outbox, name, to string) (events.Cursor, error) {
	switch to {
	case "":
		return events.Cursor{}, &usageError{problem: "--to is missing"}
	case "head", "oldest":
	default:
		return cursorArgument("--to", to)
	}
	consumers, err := events.Consumers(ctx, eng)
	if err != nil {
		return events.Cursor{}, err
	}
	for _, c := range consumers {
		if c.Outbox == outbox && c.Name == name {
			if to == "head" {
				return c.Head, nil
			}
			return c.Oldest, nil
		}
	}
	return events.Cursor{}, &fferr.NotFoundError{Entity: "consumer", ID: name}
}

func (a *app) consumerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove OUTBOX NAME",
		Short:   "Delete a consumer and the events that it has set aside",
		Example: `  ff consumer remove completion billing`,
		Args:    consumerArguments,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				if err := events.RemoveConsumer(ctx, eng, events.Outbox(args[0]), args[1]); err != nil {
					return asUsage(err)
				}
				_, err := fmt.Fprintf(a.stdout, "Consumer %s is deleted.\n", printable(args[1]))
				return err
			})
		}),
	}
}

// setAsideView is the JSON of `ff consumer set-aside`.
type setAsideView struct {
	SetAside []events.SetAsideEvent `json:"set_aside"`
}

func (a *app) consumerSetAsideCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "set-aside OUTBOX NAME",
		Short:   "List the events that a consumer could not handle",
		Example: `  ff consumer set-aside completion billing --json`,
		Args:    consumerArguments,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				aside, err := events.SetAside(ctx, eng, events.Outbox(args[0]), args[1], events.Beginning, 0)
				if err != nil {
					return asUsage(err)
				}
				if asJSON {
					return a.writeJSON(setAsideView{append([]events.SetAsideEvent{}, aside...)})
				}
				if len(aside) == 0 {
					_, err := io.WriteString(a.stdout, "None found.\n")
					return err
				}
				t := newTable(table.Row{"EVENT", "TRIES", "SET ASIDE AT", "ERROR"})
				for _, e := range aside {
					t.AppendRow(table.Row{e.Cursor, e.Tries, timestamp(e.At), shortened(printable(e.Error), 26)})
				}
				_, err = io.WriteString(a.stdout, t.Render()+"\n")
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

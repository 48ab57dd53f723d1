package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) eventCommand() *cobra.Command {
	cmd := group("event", "Print events as they happen, and set which are kept", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.eventTailCommand(), a.eventKeepCommand())
	return cmd
}

// tailFlags has the flags of `ff event tail` as given.
type tailFlags struct {
	after, namespace, instance string
	once, asJSON, long         bool
}

// tails maps names to the kinds of events to follow.
var tails = map[string]func(context.Context, *app, *engine.Engine, tailFlags) error{
	"completions": func(ctx context.Context, a *app, eng *engine.Engine, f tailFlags) error {
		return tail(ctx, a, eng, f, events.Completions(f.filter()), completionLine)
	},
	"lost-leases": func(ctx context.Context, a *app, eng *engine.Engine, f tailFlags) error {
		return tail(ctx, a, eng, f, events.LostLeases(f.filter()), leaseLine)
	},
	"leases": func(ctx context.Context, a *app, eng *engine.Engine, f tailFlags) error {
		return tail(ctx, a, eng, f, events.Leases(f.filter()), leaseLine)
	},
	"signals": func(ctx context.Context, a *app, eng *engine.Engine, f tailFlags) error {
		return tail(ctx, a, eng, f, events.Signals(f.filter()), signalLine)
	},
	"operator": func(ctx context.Context, a *app, eng *engine.Engine, f tailFlags) error {
		return tail(ctx, a, eng, f, events.OperatorCalls(f.filter()), operatorLine)
	},
}

func (a *app) eventTailCommand() *cobra.Command {
	var f tailFlags
	names := strings.Join(slices.Sorted(maps.Keys(tails)), ", ")
	cmd := &cobra.Command{
		Use:   "tail WHAT",
		Short: "Print events as they are committed",
		Long: `tail prints a line for each event, in order, each exactly once, until it is interrupted.
WHAT is one of ` + names + `.

By default it prints events committed from now on. Each line ends with a cursor; pass one to --after to
continue after it. "--after beginning" prints all events that are kept.`,
		Example: `  ff event tail completions
  ff event tail leases --after beginning --once --json | jq -r '.type'
  ff event tail completions --after 020000000000000042`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes one of %s", cmd.CommandPath(), names)
			}
			return nil
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			follow, known := tails[args[0]]
			if !known {
				return &usageError{problem: fmt.Sprintf("there are no events %q: use one of %s", args[0], names)}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error { return follow(ctx, a, eng, f) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.after, "after", "", "start after this cursor, or at the beginning")
	flags.StringVar(&f.namespace, "namespace", "", "only events of executions in this namespace")
	flags.StringVar(&f.instance, "instance", "", "only events of executions with this value of the tag "+events.InstanceTagKey)
	flags.BoolVar(&f.once, "once", false, "stop after the events that exist now")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object per line")
	flags.BoolVar(&f.long, "long", false, "add a line with the kind, lane, node and tags of the execution")
	return cmd
}

func (a *app) eventKeepCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keep leases=all|lost|none",
		Short: "Set which lease events are kept",
		Long: `keep sets for the whole database which lease events are written from now on: all, only events of
leases that their holder did not end, or none. The fewer, the cheaper is each claim and
completion; readers of other events end with an error. "ff retention show" prints the choice.`,
		Example: "  ff event keep leases=lost",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !strings.HasPrefix(args[0], "leases=") {
				return fmt.Errorf("%s takes leases=all, leases=lost or leases=none", cmd.CommandPath())
			}
			return nil
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			kept := state.Kept(strings.TrimPrefix(args[0], "leases="))
			if !kept.Valid() {
				return &usageError{problem: fmt.Sprintf("%q is not leases=all, leases=lost or leases=none", args[0])}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				if err := operator.KeepLeaseEvents(ctx, eng, kept); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.stdout, "Lease events kept from now on: %s.\n", kept)
				return err
			})
		}),
	}
}

func (f *tailFlags) filter() events.Filter {
	filter := events.Filter{Namespace: id.Namespace(f.namespace)}
	if f.instance != "" {
		filter.Tag = events.Tag{Key: events.InstanceTagKey, Value: f.instance}
	}
	return filter
}

func cursorArgument(flag, text string) (events.Cursor, error) {
	var c events.Cursor
	switch text {
	case "":
		return c, nil
	case "beginning":
		return events.Beginning, nil
	}
	if err := c.UnmarshalText([]byte(text)); err != nil {
		return c, &usageError{problem: fmt.Sprintf("%s %q is not a cursor", flag, text)}
	}
	return c, nil
}

// eventView is the JSON of an event.
type eventView struct {
	Cursor      events.Cursor     `json:"cursor"`
	ID          int64             `json:"event_id"`
	At          string            `json:"at,omitempty"`
	Execution   string            `json:"execution,omitempty"`
	Flow        *id.FlowID        `json:"flow,omitempty"`
	Namespace   *id.Namespace     `json:"namespace,omitempty"`
	InstanceTag *string           `json:"instance_tag,omitempty"`
	Type        string            `json:"type"`
	Kind        string            `json:"kind,omitempty"` // the execution's, like the next three
	Lane        id.LaneID         `json:"lane,omitempty"`
	NodeKey     string            `json:"node,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Lease       *id.LeaseID       `json:"lease,omitempty"`
	Worker      string            `json:"worker,omitempty"`
	RevokedBy   string            `json:"revoked_by,omitempty"`
	Signal      *id.SignalID      `json:"signal,omitempty"`
	Waitpoint   *id.WaitpointID   `json:"waitpoint,omitempty"`
	Source      *string           `json:"source,omitempty"`
	Details     json.RawMessage   `json:"details,omitempty"`
	Error       string            `json:"error,omitempty"` // why the event cannot be read

	about string // details for a line of text
}

func viewOf(e events.Event, what string) eventView {
	v := eventView{
		Cursor: e.Cursor(), ID: e.ID, At: timestamp(e.At), Namespace: e.Namespace, InstanceTag: e.InstanceTag, Type: what,
		Kind: e.Kind, Lane: e.Lane, NodeKey: e.NodeKey, Tags: e.Tags,
	}
	if !e.Execution.IsZero() {
		v.Execution = e.Execution.String()
	}
	return v
}

func completionLine(e events.Completion) eventView {
	v := viewOf(e.Event, string(e.Outcome))
	v.Flow = e.Flow
	return v
}

func leaseLine(e events.Lease) eventView {
	v := viewOf(e.Event, string(e.Type))
	v.Lease, v.RevokedBy = e.Lease, e.RevokedBy
	if e.Worker != nil {
		v.Worker = string(*e.Worker)
	}
	return v
}

func signalLine(e events.Signal) eventView {
	v := viewOf(e.Event, string(e.Effect))
	v.Signal, v.Waitpoint, v.Source = &e.Signal, e.Waitpoint, e.Source
	return v
}

func operatorLine(e events.OperatorCall) eventView {
	v := viewOf(e.Event, string(e.Type))
	v.Details = e.Details
	switch {
	case e.PriorityChanged != nil:
		v.about = fmt.Sprintf("%d to %d", e.PriorityChanged.Old, e.PriorityChanged.New)
	case e.FlowCancel != nil:
		v.Flow = &e.FlowCancel.Flow
	case e.Action != nil:
		v.about = shortened(printable(strings.TrimSpace(e.Action.Name+" by "+e.Action.By+" "+e.Action.Object)), 40)
	}
	return v
}

// tail prints events until ctx ends or, with once, until the outbox's position at the start.
func tail[E any](
	ctx context.Context, a *app, eng *engine.Engine, f tailFlags, src events.Source[E], view func(E) eventView,
) error {
	after, err := cursorArgument("--after", f.after)
	if err != nil {
		return err
	}
	sub, err := events.Subscribe(ctx, eng, src, events.Options{After: after})
	if err != nil {
		return tailError(err)
	}
	defer sub.Close()
	for {
		next := ctx
		if f.once && sub.Lag() == 0 {
			return nil
		}
		event, err := sub.Next(next)
		var line eventView
		corrupt, isCorrupt := errors.AsType[*events.CorruptEventError](err)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case isCorrupt:
			line = eventView{Cursor: corrupt.Cursor, ID: corrupt.EventID, Type: "corrupt", Error: corrupt.Error()}
		case err != nil:
			return tailError(err)
		default:
			line = view(event)
		}
		if err := a.printEvent(line, f.asJSON, f.long); err != nil {
			return err
		}
	}
}

// tailError adds the oldest cursor to a gap error, which the next step needs.
func tailError(err error) error {
	if gap, ok := errors.AsType[*events.GapError](err); ok {
		return fmt.Errorf("%w; the remaining events start with --after %s", err, gap.Oldest)
	}
	return asUsage(err)
}

func (a *app) printEvent(v eventView, asJSON, long bool) error {
	if asJSON {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	}
	of := v.Execution
	if v.Execution == "" && v.Flow != nil {
		of = v.Flow.String()
	}
	if _, bare, found := strings.Cut(of, "}:"); found {
		of = bare // the partition makes the line too long
	}
	at := v.At
	if t, err := time.Parse(time.RFC3339, v.At); err == nil {
		at = t.UTC().Format("15:04:05")
	}
	what := v.Type
	if v.Error != "" {
		what = v.Error
	}
	line := strings.TrimRight(fmt.Sprintf("%-8s  %-9s  %s", at, shortened(printable(what), 21), of), " ")
	if v.about != "" {
		line += "  " + v.about
	}
	line += "  " + v.Cursor.String()
	if of := v.ofExecution(); long && of != "" {
		line += "\n  " + of
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// ofExecution returns the line about the event's execution for --long.
func (v *eventView) ofExecution() string {
	var parts []string
	for _, part := range [][2]string{{"", v.Kind}, {"lane ", string(v.Lane)}, {"node ", v.NodeKey}, {"", tagList(v.Tags)}} {
		if part[1] != "" {
			parts = append(parts, part[0]+printable(part[1]))
		}
	}
	return strings.Join(parts, ", ")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
)

func (a *app) laneCommand() *cobra.Command {
	cmd := group("lane", "List, show, pause and resume lanes, set their retention", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.laneListCommand(), a.laneShowCommand(), a.lanePauseCommand(), a.laneResumeCommand(), a.laneRetentionCommand())
	return cmd
}

// oneLane checks the arguments of commands on a lane.
func oneLane(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one lane, not %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// laneArgument parses the name of a lane.
func laneArgument(text string) (id.LaneID, error) {
	lane := id.LaneID(text)
	if err := lane.Validate(); err != nil {
		return "", &usageError{problem: "lane: " + err.Error()}
	}
	return lane, nil
}

// findLane returns a lane with executions, or a paused one, counting as [engine.LaneFilter] says.
func findLane(ctx context.Context, eng *engine.Engine, lane id.LaneID, counted int) (engine.LaneSummary, error) {
	page, err := eng.ListLanes(ctx, engine.LaneFilter{Lane: lane, Counted: counted}, "", 1)
	switch {
	case err != nil:
		return engine.LaneSummary{}, err
	case len(page.Items) == 0:
		return engine.LaneSummary{}, noLane(lane)
	}
	return page.Items[0], nil
}

func noLane(lane id.LaneID) error {
	return &stepError{&fferr.NotFoundError{Entity: "lane", ID: printable(string(lane))}, "correct the name, see `ff lane list`", exitNotFound}
}

// onLane runs fn for a lane in use. Other names are probably wrong, and refused unless create is set. create is nil for
// commands without this flag.
func (a *app) onLane(ctx context.Context, text string, create *bool, fn func(*engine.Engine, id.LaneID) error) error {
	lane, err := laneArgument(text)
	if err != nil {
		return err
	}
	return a.withEngine(ctx, func(eng *engine.Engine) error {
		defer eng.Flush()
		if create == nil || !*create {
			_, err := findLane(ctx, eng, lane, 1)
			if errors.Is(err, fferr.ErrNotFound) && create != nil {
				return &stepError{err, "correct the name, see `ff lane list`, or pass --create", exitNotFound}
			}
			if err != nil {
				return err
			}
		}
		return fn(eng, lane)
	})
}

func (a *app) laneShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show LANE",
		Short:   "Show the executions on a lane, and its retention",
		Example: `  ff lane show images`,
		Args:    oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			lane, err := laneArgument(args[0])
			if err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				summary, err := findLane(ctx, eng, lane, 0)
				if err != nil {
					return err
				}
				kept, err := keptOn(ctx, eng, lane)
				if err != nil {
					return err
				}
				view := laneDetails{newLaneView(summary), kept}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// laneDetails is the JSON of `ff lane show`.
type laneDetails struct {
	laneView

	Keep string `json:"keep"` // retention of executions ending there: a duration, forever, or default
}

func (v *laneDetails) print(to io.Writer, now time.Time) error {
	waiting := v.Waiting.String()
	if !v.since.IsZero() {
		waiting += ", the next one for " + ago(now.Sub(v.since))
	}
	_, err := io.WriteString(to, renderFacts([]fact{
		{"lane", string(v.ID)},
		{"paused", v.PausedSince},
		{"until", v.PausedUntil},
		{"reason", v.PauseReason},
		{"waiting", waiting},
		{"delayed", v.Delayed.String()},
		{"blocked", v.Blocked.String()},
		{"active", v.Active.String()},
		{"ended", fmt.Sprintf("%.0f a minute", v.EndedPerMinute)},
		{"kept", v.Keep},
	}))
	return err
}

// laneState is the JSON of `ff lane pause` and `ff lane resume`.
type laneState struct {
	ID     id.LaneID `json:"id"`
	Paused bool      `json:"paused"`
	Until  string    `json:"until,omitempty"` // when the pause ends by itself
}

func (a *app) lanePauseCommand() *cobra.Command {
	var (
		asJSON, create bool
		reason         string
		end            endFlags
	)
	cmd := &cobra.Command{
		Use:   "pause LANE",
		Short: "Stop claims from a lane; running executions continue",
		Long: `pause stops claims from a lane until it is resumed, or for a time: --for and --until end
the pause by the clock of the database. Pausing again replaces the end and the reason.
Running executions continue. A lane without any executions is refused, unless --create
is given.`,
		Example: `  ff lane pause images --reason "the image store is down"
  ff lane pause images --for 30m
  ff lane pause images --until 2026-11-22T15:04:05Z`,
		Args: oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if err := end.check("ff lane pause"); err != nil {
				return err
			}
			return a.onLane(ctx, args[0], &create, func(eng *engine.Engine, lane id.LaneID) error {
				until, err := end.at(ctx, eng)
				if err != nil {
					return err
				}
				if err := operator.PauseLane(ctx, eng, lane, operator.LanePause{Reason: reason, Until: until}); err != nil {
					return asUsage(err)
				}
				return a.sayLane(laneState{ID: lane, Paused: true, Until: timestamp(until)}, asJSON)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&create, "create", false, "also pause a lane without any executions")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, shown by ff lane list")
	end.add(cmd)
	return cmd
}

func (a *app) laneResumeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume LANE",
		Short:   "Let workers claim from a paused lane again",
		Example: `  ff lane resume images`,
		Args:    oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onLane(ctx, args[0], nil, func(eng *engine.Engine, lane id.LaneID) error {
				if err := operator.ResumeLane(ctx, eng, lane); err != nil {
					return asUsage(err)
				}
				return a.sayLane(laneState{ID: lane}, asJSON)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) sayLane(now laneState, asJSON bool) error {
	if asJSON {
		return a.writeJSON(now)
	}
	word := "resumed"
	switch {
	case now.Until != "":
		word = "paused until " + now.Until
	case now.Paused:
		word = "paused"
	}
	_, err := fmt.Fprintf(a.stdout, "Lane %s is %s.\n", printable(string(now.ID)), word)
	return err
}

func (a *app) laneRetentionCommand() *cobra.Command {
	var (
		asJSON, create bool
		keep           string
	)
	cmd := &cobra.Command{
		Use:   "retention LANE --keep SPAN",
		Short: "Set how long executions of a lane are kept after their end",
		Long: `retention sets how long to keep executions of a lane after their end, unless their
policy sets it: a duration of at least a minute, such as 72h; forever; or default,
for the engines' setting. It applies to executions that have already ended too:
after a shorter one, overdue executions are soon deleted.

A lane without any executions is refused, unless --create is given.
"ff retention show" prints the progress of deletion.`,
		Example: `  ff lane retention thumbnails --keep 1h
  ff lane retention invoices --keep forever
  ff lane retention invoices --keep default`,
		Args: oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			span, err := keepArgument(keep)
			if err != nil {
				return err
			}
			return a.onLane(ctx, args[0], &create, func(eng *engine.Engine, lane id.LaneID) error {
				if err := operator.SetLaneRetention(ctx, eng, lane, span); err != nil {
					return asUsage(err)
				}
				kept, err := keptOn(ctx, eng, lane)
				if err != nil {
					return err
				}
				if asJSON {
					return a.writeJSON(laneRetention{lane, kept})
				}
				_, err = fmt.Fprintf(a.stdout, "Retention of lane %s: %s.\n", printable(string(lane)), kept)
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&create, "create", false, "also set it for a lane without any executions")
	cmd.Flags().StringVar(&keep, "keep", "", "a duration, forever or default")
	return cmd
}

// laneRetention is the JSON of `ff lane retention`, and part of the JSON of `ff retention show`.
type laneRetention struct {
	Lane id.LaneID `json:"lane"`
	Keep string    `json:"keep"`
}

// keepArgument parses a retention.
func keepArgument(text string) (time.Duration, error) {
	switch text {
	case "":
		return 0, &usageError{problem: "--keep is missing", next: "pass --keep with a duration, forever or default"}
	case "forever":
		return policy.KeepForever, nil
	case "default":
		return 0, nil
	}
	span, err := time.ParseDuration(text)
	if err != nil || span < policy.MinRetention {
		return 0, &usageError{
			problem: fmt.Sprintf("--keep %q is not a duration of at least %v", text, policy.MinRetention), next: "use one such as 72h, forever or default",
		}
	}
	return span, nil
}

// keptText renders a retention.
func keptText(span time.Duration) string {
	if span == policy.KeepForever {
		return "forever"
	}
	return span.String()
}

// keptOn returns the retention of a lane.
func keptOn(ctx context.Context, eng *engine.Engine, lane id.LaneID) (string, error) {
	status, err := operator.Retention(ctx, eng)
	if err != nil {
		return "", err
	}
	for _, l := range status.Lanes {
		if l.Lane == lane {
			return keptText(l.Keep), nil
		}
	}
	return "default", nil
}

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
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) lanesCommand() *cobra.Command {
	var asJSON, wide bool
	cmd := &cobra.Command{
		Use:   "lanes",
		Short: "List the lanes with how much is on each",
		Long: `lanes prints the lanes: how many executions wait for a worker and for how long the one next in line has,
how many are delayed, blocked and active, and how many ended within the last minute. A number with a +
is what was counted of more. What waits for its upstreams, a signal, a budget or a quota is not counted.
Below stands why lanes are paused, where a reason was given.`,
		Example: `  ff lanes
  ff lanes --json | jq '.lanes[] | select(.waiting.at_least or .waiting.n > 1000)'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				view := &lanesView{Lanes: []laneView{}}
				for lane, err := range eng.Lanes(ctx) {
					if err != nil {
						return err
					}
					view.Lanes = append(view.Lanes, newLaneView(lane))
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, wide)
			})
		}),
	}
	a.databaseFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wide, "wide", false, "print more than fits into 80 columns: whole names and reasons")
	return cmd
}

// lanesView is the JSON of `ff lanes`.
type lanesView struct {
	Lanes []laneView `json:"lanes"` // in byte order
}

type laneView struct {
	ID             id.LaneID `json:"id"`
	Paused         bool      `json:"paused"`
	PausedSince    string    `json:"paused_since,omitempty"`
	PauseReason    string    `json:"pause_reason,omitempty"`
	Waiting        countView `json:"waiting"`
	WaitingSince   string    `json:"waiting_since,omitempty"`
	Delayed        countView `json:"delayed"`
	Blocked        countView `json:"blocked"`
	Active         countView `json:"active"`
	EndedPerMinute float64   `json:"ended_per_minute"`

	since time.Time
}

type countView struct {
	N       int  `json:"n"`
	AtLeast bool `json:"at_least"` // there may be more
}

func (c countView) String() string {
	if c.AtLeast {
		return fmt.Sprintf("%d+", c.N)
	}
	return fmt.Sprint(c.N)
}

func newLaneView(l engine.LaneSummary) laneView {
	return laneView{
		ID: l.ID, Paused: !l.PausedSince.IsZero(), PausedSince: timestamp(l.PausedSince), PauseReason: l.PauseReason,
		Waiting: countView(l.Waiting), WaitingSince: timestamp(l.WaitingSince), Delayed: countView(l.Delayed),
		Blocked: countView(l.Blocked), Active: countView(l.Active), EndedPerMinute: l.EndedPerMinute, since: l.WaitingSince,
	}
}

func (v *lanesView) print(to io.Writer, now time.Time, wide bool) error {
	if len(v.Lanes) == 0 {
		_, err := io.WriteString(to, "There is no lane.\n")
		return err
	}
	fit := shortened
	if wide {
		fit = func(text string, _ int) string { return text }
	}
	var reasons strings.Builder
	t := newTable(table.Row{"LANE", "WAITING", "FOR", "DELAYED", "BLOCKED", "ACTIVE", "ENDED/MIN", ""})
	for _, l := range v.Lanes {
		waited, paused := "", ""
		if !l.since.IsZero() {
			waited = ago(now.Sub(l.since))
		}
		if l.Paused {
			paused = "paused"
		}
		name := fit(printable(string(l.ID)), 15)
		if l.PauseReason != "" {
			reasons.WriteString(fit(name+" is paused: "+printable(l.PauseReason), columns) + "\n")
		}
		t.AppendRow(table.Row{
			name, l.Waiting, waited, l.Delayed, l.Blocked, l.Active, fmt.Sprintf("%.0f", l.EndedPerMinute), paused,
		})
	}
	_, err := io.WriteString(to, t.Render()+"\n"+reasons.String())
	return err
}

func (a *app) laneCommand() *cobra.Command {
	cmd := group("lane", "Pause and resume lanes", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.lanePauseCommand(), a.laneResumeCommand())
	return cmd
}

// laneState is the JSON of `ff lane pause` and `ff lane resume`.
type laneState struct {
	ID     id.LaneID `json:"id"`
	Paused bool      `json:"paused"`
}

func (a *app) lanePauseCommand() *cobra.Command {
	var (
		asJSON bool
		reason string
	)
	cmd := &cobra.Command{
		Use:     "pause LANE",
		Short:   "Let nobody claim from a lane until it is resumed; what is running goes on",
		Example: `  ff lane pause images --reason "the image store is down"`,
		Args:    oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onLane(ctx, args[0], laneState{ID: id.LaneID(args[0]), Paused: true}, asJSON, func(o engine.Operator) error {
				return o.PauseLane(ctx, id.LaneID(args[0]), reason)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever lists the lanes")
	return cmd
}

func (a *app) laneResumeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume LANE",
		Short:   "Let a paused lane be claimed from again",
		Example: `  ff lane resume images`,
		Args:    oneLane,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onLane(ctx, args[0], laneState{ID: id.LaneID(args[0])}, asJSON, func(o engine.Operator) error {
				return o.ResumeLane(ctx, id.LaneID(args[0]))
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// oneLane is the argument check of the commands on a lane.
func oneLane(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one lane, not %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// onLane does an operator's call on a lane and says what it is then.
func (a *app) onLane(ctx context.Context, lane string, then laneState, asJSON bool, do func(engine.Operator) error) error {
	return a.withEngine(ctx, func(eng *engine.Engine) error {
		defer eng.Flush()
		if err := do(eng.Operator()); err != nil {
			return asUsage(err)
		}
		if asJSON {
			return a.writeJSON(then)
		}
		word := "resumed"
		if then.Paused {
			word = "paused"
		}
		_, err := fmt.Fprintf(a.stdout, "Lane %s is %s.\n", printable(lane), word)
		return err
	})
}

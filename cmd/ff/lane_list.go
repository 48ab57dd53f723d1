package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) laneListCommand() *cobra.Command {
	var asJSON, wide bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the lanes with the number of executions on each",
		Long: `list prints the lanes: how many executions wait for a worker and how long the next one has waited, how
many are delayed, blocked, held and active, and how many ended within the last minute. A + means that
there may be more. Held executions wait for a budget or limit, for a signal or called executions, or for
upstreams or the execution before them in a sequence: a line below has the reasons if nothing else is on
the lane. Lines below also say what holds up the next execution of a lane: a pause, missing workers, or
workers without a free place.`,
		Example: `  ff lane list
  ff lane list --json | jq '.lanes[] | select(.waiting.n > 1000)'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				view := &lanesView{Lanes: []laneView{}}
				for lane, err := range eng.Lanes(ctx, engine.LaneFilter{}) {
					if err != nil {
						return err
					}
					view.Lanes = append(view.Lanes, newLaneView(lane))
				}
				if err := view.explain(ctx, eng); err != nil {
					return err
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, wide)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wide, "wide", false, "print more than 80 columns: whole names and reasons")
	return cmd
}

// lanesView is the JSON of `ff lane list`.
type lanesView struct {
	Lanes []laneView `json:"lanes"` // in byte order
}

type laneView struct {
	ID             id.LaneID `json:"id"`
	Paused         bool      `json:"paused"`
	PausedSince    string    `json:"paused_since,omitempty"`
	PausedUntil    string    `json:"paused_until,omitempty"` // none: until it is resumed
	PauseReason    string    `json:"pause_reason,omitempty"`
	Waiting        countView `json:"waiting"`
	WaitingSince   string    `json:"waiting_since,omitempty"`
	Delayed        countView `json:"delayed"`
	Blocked        countView `json:"blocked"`
	Active         countView `json:"active"`
	Limited        countView `json:"limited"`
	Suspended      countView `json:"suspended"`
	Dependent      countView `json:"dependent"`
	EndedPerMinute float64   `json:"ended_per_minute"`

	Causes []causeView `json:"causes,omitempty"` // why the next execution does not start

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
		ID: l.ID, Paused: !l.PausedSince.IsZero(), PausedSince: timestamp(l.PausedSince),
		PausedUntil: timestamp(l.PausedUntil), PauseReason: l.PauseReason,
		Waiting: countView(l.Waiting), WaitingSince: timestamp(l.WaitingSince), Delayed: countView(l.Delayed),
		Blocked: countView(l.Blocked), Active: countView(l.Active),
		Limited: countView(l.Limited), Suspended: countView(l.Suspended), Dependent: countView(l.Dependent),
		EndedPerMinute: l.EndedPerMinute, since: l.WaitingSince,
	}
}

// explain sets the causes of the lanes.
func (v *lanesView) explain(ctx context.Context, eng *engine.Engine) error {
	for page := range slices.Chunk(v.Lanes, explain.MaxLanes) {
		ids := make([]id.LaneID, len(page))
		for i := range page {
			ids[i] = page[i].ID
		}
		lanes, err := explain.Lanes(ctx, eng, ids...)
		if err != nil {
			return err
		}
		for i := range page {
			page[i].Causes = newCauseViews(lanes[i].Causes)
		}
	}
	return nil
}

// held returns how many executions wait for something other than a worker, a time or an operator.
func (l laneView) held() countView {
	return countView{
		N:       l.Limited.N + l.Suspended.N + l.Dependent.N,
		AtLeast: l.Limited.AtLeast || l.Suspended.AtLeast || l.Dependent.AtLeast,
	}
}

// pause returns the end and the reason of a pause, "" if neither is known.
func (l laneView) pause() string {
	text := ""
	if l.PausedUntil != "" {
		text = " until " + l.PausedUntil
	}
	if l.PauseReason != "" {
		text += ": " + printable(l.PauseReason)
	}
	if text == "" {
		return ""
	}
	return " is paused" + text
}

// heldBy counts the held executions by their reason. It returns "" if there are none.
func (l laneView) heldBy() string {
	var parts []string
	for _, part := range []struct {
		count countView
		cause string
	}{
		{l.Limited, "a budget or limit"}, {l.Suspended, "signals or called executions"}, {l.Dependent, "upstreams or a sequence"},
	} {
		if part.count.N > 0 {
			parts = append(parts, fmt.Sprintf("%v wait for %s", part.count, part.cause))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *lanesView) print(to io.Writer, now time.Time, wide bool) error {
	if len(v.Lanes) == 0 {
		_, err := io.WriteString(to, "There are no lanes.\n")
		return err
	}
	fit := shortened
	if wide {
		fit = func(text string, _ int) string { return text }
	}
	var reasons strings.Builder
	t := newTable(table.Row{"LANE", "WAITING", "FOR", "DELAYED", "BLOCKED", "HELD", "ACTIVE", "ENDED/MIN", ""})
	for _, l := range v.Lanes {
		waited, paused := "", ""
		if !l.since.IsZero() {
			waited = ago(now.Sub(l.since))
		}
		if l.Paused {
			paused = "paused"
		}
		name := fit(printable(string(l.ID)), 15)
		if line := l.pause(); line != "" {
			reasons.WriteString(fit(name+line, columns) + "\n")
		}
		for i := range l.Causes {
			if c := &l.Causes[i]; c.Code != explain.LanePaused {
				reasons.WriteString(fit(name+": "+printable(c.sentence()), columns) + "\n")
			}
		}
		if held := l.heldBy(); held != "" && l.Waiting.N == 0 && l.Active.N == 0 {
			reasons.WriteString(fit(name+": "+held, columns) + "\n")
		}
		t.AppendRow(table.Row{
			name, l.Waiting, waited, l.Delayed, l.Blocked, l.held(), l.Active, fmt.Sprintf("%.0f", l.EndedPerMinute), paused,
		})
	}
	_, err := io.WriteString(to, t.Render()+"\n"+reasons.String())
	return err
}

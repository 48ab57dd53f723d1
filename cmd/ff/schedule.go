package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schedule"
)

func (a *app) scheduleCommand() *cobra.Command {
	cmd := group("schedule", "List, show, pause, resume, trigger and backfill schedules", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(
		a.scheduleListCommand(), a.scheduleShowCommand(), a.schedulePauseCommand(), a.scheduleResumeCommand(),
		a.scheduleTriggerCommand(), a.scheduleBackfillCommand(),
	)
	return cmd
}

// scheduleView is a schedule in the JSON of `ff schedule`.
type scheduleView struct {
	Name        string     `json:"name"`
	Namespace   string     `json:"namespace"`
	Set         string     `json:"set,omitempty"`
	Times       string     `json:"times"` // the expression with its zone, or the interval
	Kind        string     `json:"kind"`
	Lane        string     `json:"lane"`
	Missed      string     `json:"missed"`
	Overlap     string     `json:"overlap"`
	Next        string     `json:"next,omitempty"`
	PausedSince string     `json:"paused_since,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	LastTick    string     `json:"last_tick,omitempty"`
	LastOutcome string     `json:"last_outcome,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastID      string     `json:"last_execution,omitempty"`
	Recent      []tickView `json:"recent,omitempty"` // of `ff schedule show`, the newest first
	Upcoming    []string   `json:"upcoming,omitempty"`
}

// tickView is an outcome of a schedule.
type tickView struct {
	Tick    string `json:"tick"`
	At      string `json:"at"`
	Outcome string `json:"outcome"`
	ID      string `json:"execution,omitempty"`
	State   string `json:"state,omitempty"` // of the execution; "deleted" after retention
}

// recentTicks returns the last outcomes of a schedule with the states of their executions.
func recentTicks(ctx context.Context, eng *engine.Engine, s schedule.State) ([]tickView, error) {
	var views []tickView
	for _, tick := range s.Recent {
		v := tickView{Tick: timestamp(tick.ScheduledFor), At: timestamp(tick.At), Outcome: string(tick.Outcome)}
		if !tick.Execution.IsZero() {
			v.ID = tick.Execution.String()
			now, err := eng.ExecutionState(ctx, tick.Execution)
			switch {
			case errors.Is(err, fferr.ErrNotFound):
				v.State = "deleted"
			case err != nil:
				return nil, err
			default:
				v.State = string(now)
			}
		}
		views = append(views, v)
	}
	return views, nil
}

func newScheduleView(s schedule.State, upcoming []time.Time) scheduleView {
	times := "every " + s.Every.String()
	if s.Cron != "" {
		times = s.Cron
		if s.Zone != "" {
			times += " " + s.Zone
		}
	}
	v := scheduleView{
		Name: s.Name, Namespace: string(s.Namespace), Set: s.Set, Times: times, Kind: s.Kind, Lane: string(s.Lane),
		Missed: string(s.Missed), Overlap: string(s.Overlap), Next: timestamp(s.Next),
		PausedSince: timestamp(s.PausedSince), PauseReason: s.PauseReason,
		LastTick: timestamp(s.Last.ScheduledFor), LastOutcome: string(s.Last.Outcome), LastError: s.Last.Error,
	}
	if !s.Last.Execution.IsZero() {
		v.LastID = s.Last.Execution.String()
	}
	for _, at := range upcoming {
		v.Upcoming = append(v.Upcoming, timestamp(at))
	}
	return v
}

func (a *app) scheduleListCommand() *cobra.Command {
	return listCommand(a, &cobra.Command{Short: "List the schedules with their next ticks and last outcomes", Example: `  ff schedule list`}, "schedules", func(s schedule.State) scheduleView { return newScheduleView(s, nil) }, printSchedules,
		func(ctx context.Context, eng *engine.Engine) iter.Seq2[schedule.State, error] {
			return schedule.All(ctx, eng, schedule.Filter{})
		})
}

func printSchedules(to io.Writer, views []scheduleView) error {
	if len(views) == 0 {
		_, err := io.WriteString(to, "There are no schedules.\n")
		return err
	}
	t := newTable(table.Row{"SCHEDULE", "TIMES", "NEXT", "LAST"})
	for _, v := range views {
		next := v.Next
		if v.PausedSince != "" {
			next = "paused"
		}
		t.AppendRow(table.Row{shortened(printable(v.Name), 20), shortened(printable(v.Times), 20), next, v.LastOutcome})
	}
	_, err := io.WriteString(to, t.Render()+"\n")
	return err
}

// onSchedule is [app.onOne] for a schedule.
func (a *app) onSchedule(
	cmd *cobra.Command, do func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error),
) *cobra.Command {
	return a.onOne(cmd, "schedule", "name", func(ctx context.Context, eng *engine.Engine, namespace id.Namespace, name string) (any, string, error) {
		return do(ctx, eng, schedule.Name{Namespace: namespace, Name: name})
	})
}

func (a *app) scheduleShowCommand() *cobra.Command {
	var n int
	cmd := a.onSchedule(&cobra.Command{
		Use:     "show SCHEDULE",
		Short:   "Show a schedule, its last outcomes and its next ticks",
		Example: `  ff schedule show "nightly report" --next 10`,
	}, func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error) {
		s, upcoming, err := schedule.Describe(ctx, eng, name, n)
		if err != nil {
			return nil, "", err
		}
		v := newScheduleView(s, upcoming)
		if v.Recent, err = recentTicks(ctx, eng, s); err != nil {
			return nil, "", err
		}
		facts := []fact{
			{"schedule", v.Name},
			{"namespace", v.Namespace},
			{"set", v.Set},
			{"times", v.Times},
			{"kind", v.Kind},
			{"lane", v.Lane},
			{"missed", v.Missed},
			{"overlap", v.Overlap},
			{"paused", v.PausedSince},
			{"reason", v.PauseReason},
			{"last tick", v.LastTick},
			{"outcome", v.LastOutcome},
			{"error", v.LastError},
			{"execution", v.LastID},
		}
		for _, tick := range v.Recent {
			facts = append(facts, fact{"recent", strings.TrimSpace(strings.Join([]string{tick.Tick, tick.Outcome, tick.State, tick.ID}, " "))})
		}
		for _, at := range v.Upcoming {
			facts = append(facts, fact{"next", at})
		}
		return v, renderFacts(facts), nil
	})
	cmd.Flags().IntVar(&n, "next", 5, "the number of next ticks to print")
	return cmd
}

func (a *app) schedulePauseCommand() *cobra.Command {
	var reason string
	cmd := a.onSchedule(&cobra.Command{
		Use:     "pause SCHEDULE",
		Short:   "Stop the ticks of a schedule; its executions continue",
		Example: `  ff schedule pause "nightly report" --reason "the warehouse is down"`,
	}, func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error) {
		err := schedule.Pause(ctx, eng, name, reason)
		return map[string]any{"name": name.Name, "paused": true}, fmt.Sprintf("Schedule %s is paused.\n", printable(name.Name)), err
	})
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, shown by ff schedule show")
	return cmd
}

func (a *app) scheduleResumeCommand() *cobra.Command {
	return a.onSchedule(&cobra.Command{
		Use:     "resume SCHEDULE",
		Short:   "Let a paused schedule go on with its next tick",
		Example: `  ff schedule resume "nightly report"`,
	}, func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error) {
		err := schedule.Resume(ctx, eng, name)
		return map[string]any{"name": name.Name, "paused": false}, fmt.Sprintf("Schedule %s has ticks again.\n", printable(name.Name)), err
	})
}

func (a *app) scheduleTriggerCommand() *cobra.Command {
	return a.onSchedule(&cobra.Command{
		Use:     "trigger SCHEDULE",
		Short:   "Create an execution of a schedule now",
		Example: `  ff schedule trigger "nightly report"`,
	}, func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error) {
		x, err := schedule.Trigger(ctx, eng, name)
		return map[string]string{"execution": x.String()}, x.String() + "\n", err
	})
}

func (a *app) scheduleBackfillCommand() *cobra.Command {
	var from, to string
	cmd := a.onSchedule(&cobra.Command{
		Use:   "backfill SCHEDULE --from TIME --to TIME",
		Short: "Create the executions of the ticks of a time, even if they exist",
		Long: `backfill creates an execution for each tick from one time to another, both inclusive. Times are in
RFC 3339. Each call creates them again, and so does one for ticks that have executions already.`,
		Example: `  ff schedule backfill tax --from 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z`,
	}, func(ctx context.Context, eng *engine.Engine, name schedule.Name) (any, string, error) {
		first, err := time.Parse(time.RFC3339, from)
		if err != nil {
			return nil, "", &usageError{problem: "--from is not a time in RFC 3339"}
		}
		last, err := time.Parse(time.RFC3339, to)
		if err != nil {
			return nil, "", &usageError{problem: "--to is not a time in RFC 3339"}
		}
		created, err := schedule.Backfill(ctx, eng, name, first, last)
		texts, words := make([]string, len(created)), ""
		for i, x := range created {
			texts[i] = x.String()
			words += texts[i] + "\n"
		}
		return map[string][]string{"executions": texts}, words, err
	})
	cmd.Flags().StringVar(&from, "from", "", "the first time")
	cmd.Flags().StringVar(&to, "to", "", "the last time")
	return cmd
}

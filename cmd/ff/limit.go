package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
)

func (a *app) limitCommand() *cobra.Command {
	cmd := group("limit", "List, show, set, hold and delete limits", `A limit is named by its kind, a slash and its own name. An operator's setting is in force until it
is reset, for all keys of the limit.`)
	a.databaseFlags(cmd)
	cmd.AddCommand(a.limitListCommand(), a.limitShowCommand(), a.limitSetCommand(), a.limitResetCommand(),
		a.limitHoldCommand(), a.limitDeleteCommand())
	return cmd
}

// limitView is a limit in the JSON of `ff limit`.
type limitView struct {
	Name           string            `json:"name"`
	Namespace      string            `json:"namespace"`
	Units          int               `json:"units"`
	Window         string            `json:"window,omitempty"`
	WhenFull       string            `json:"when_full"`
	DeclaredUnits  int               `json:"declared_units"`
	DeclaredWindow string            `json:"declared_window,omitempty"`
	SetAt          string            `json:"set_at,omitempty"`
	ChangedAt      string            `json:"changed_at"`
	Keys           []limitUseView    `json:"keys,omitempty"`
	Changes        []limitChangeView `json:"changes,omitempty"`
}

// limitUseView is a key of a limit.
type limitUseView struct {
	Key          string           `json:"key"`
	InUse        int              `json:"in_use"`
	Holders      []id.ExecutionID `json:"holders"` // the longest first, at most five
	Waiting      int              `json:"waiting"` // 1,001 for more than 1,000
	WaitingSince string           `json:"waiting_since,omitempty"`
	RoomAt       string           `json:"room_at,omitempty"`
	HoldUntil    string           `json:"hold_until,omitempty"` // none: the key is not held
	HoldBy       string           `json:"hold_by,omitempty"`
}

type limitChangeView struct {
	At       string `json:"at"`
	How      string `json:"how"`
	Units    int    `json:"units"`
	Window   string `json:"window,omitempty"`
	WhenFull string `json:"when_full"`
	By       string `json:"by,omitempty"`
}

// limitWaitView is the limit of a waiting execution, in the JSON of `ff execution show`.
type limitWaitView struct {
	Limit string `json:"limit,omitempty"` // none: its quota policy
	Key   string `json:"key"`
	Since string `json:"since"`
	Ahead int    `json:"ahead"` // at most 1,000
}

func newLimitWaitView(w *engine.LimitWait) *limitWaitView {
	if w == nil {
		return nil
	}
	return &limitWaitView{Limit: w.Name, Key: w.Key, Since: timestamp(w.Since), Ahead: w.Ahead}
}

// String returns the wait for people: "" for none.
func (v *limitWaitView) String() string {
	if v == nil {
		return ""
	}
	name := "its quota policy"
	if v.Limit != "" {
		name = fmt.Sprintf("%s %q", printable(v.Limit), v.Key)
	}
	return fmt.Sprintf("%s, behind %d, since %s", name, v.Ahead, v.Since)
}

func newLimitView(s limit.State) limitView {
	v := limitView{
		Name: s.Name, Namespace: string(s.Namespace), Units: s.Units, Window: period(s.Window), WhenFull: string(s.WhenFull),
		DeclaredUnits: s.DeclaredUnits, DeclaredWindow: period(s.DeclaredWindow),
		SetAt: timestamp(s.SetAt), ChangedAt: timestamp(s.ChangedAt),
	}
	for _, c := range s.Changes {
		v.Changes = append(v.Changes, limitChangeView{
			At: timestamp(c.At), How: string(c.How), Units: c.Units, Window: period(c.Window), WhenFull: string(c.WhenFull), By: c.By,
		})
	}
	return v
}

// period returns a duration for people, "" for none.
func period(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// ruleOf describes units and a window.
func ruleOf(units int, window string) string {
	if window == "" {
		return fmt.Sprintf("%d at once", units)
	}
	return fmt.Sprintf("%d in %s", units, window)
}

func (a *app) limitListCommand() *cobra.Command {
	return listCommand(a, &cobra.Command{Short: "List the limits that are in force", Example: `  ff limit list`}, "limits", newLimitView, printLimits,
		func(ctx context.Context, eng *engine.Engine) iter.Seq2[limit.State, error] {
			return limit.All(ctx, eng)
		})
}

func printLimits(to io.Writer, views []limitView) error {
	if len(views) == 0 {
		_, err := io.WriteString(to, "There are no limits.\n")
		return err
	}
	t := newTable(table.Row{"LIMIT", "NAMESPACE", "IN FORCE", "WHEN FULL", "SET"})
	for _, v := range views {
		t.AppendRow(table.Row{
			shortened(printable(v.Name), 40), shortened(printable(v.Namespace), 20), ruleOf(v.Units, v.Window), v.WhenFull, v.SetAt,
		})
	}
	_, err := io.WriteString(to, t.Render()+"\n")
	return err
}

// onLimit is [app.onOne] for a limit.
func (a *app) onLimit(
	cmd *cobra.Command, do func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error),
) *cobra.Command {
	return a.onOne(cmd, "limit", "name", func(ctx context.Context, eng *engine.Engine, namespace id.Namespace, name string) (any, string, error) {
		return do(ctx, eng, limit.Name{Namespace: namespace, Name: name})
	})
}

// maxKeysShown is how many keys of a limit are shown.
const maxKeysShown = 100

func (a *app) limitShowCommand() *cobra.Command {
	return a.onLimit(&cobra.Command{
		Use:   "show LIMIT",
		Short: "Show a limit with its keys and its changes",
		Long: `show prints the rule in force and the declared one, the last 20 changes, and the first 100 keys: how
many units each has in use, the longest holders, how many executions wait since when, and until
when a key is held.`,
		Example: `  ff limit show sync/tenant`,
	}, func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error) {
		l, err := limit.Describe(ctx, eng, name)
		if err != nil {
			return nil, "", err
		}
		v := newLimitView(l)
		for use, err := range limit.Keys(ctx, eng, name) {
			if err != nil {
				return nil, "", err
			}
			v.Keys = append(v.Keys, limitUseView{
				Key: use.Key, InUse: use.InUse, Holders: use.Holders, Waiting: use.Waiting, WaitingSince: timestamp(use.WaitingSince), RoomAt: timestamp(use.RoomAt),
				HoldUntil: timestamp(use.Hold.Until), HoldBy: use.Hold.By,
			})
			if len(v.Keys) == maxKeysShown {
				break
			}
		}
		return v, v.String(), nil
	})
}

// String returns a limit for people.
func (v limitView) String() string {
	text := renderFacts([]fact{
		{"limit", v.Name},
		{"namespace", v.Namespace},
		{"in force", ruleOf(v.Units, v.Window)},
		{"declared", ruleOf(v.DeclaredUnits, v.DeclaredWindow)},
		{"when full", v.WhenFull},
		{"set", v.SetAt},
	})
	if len(v.Keys) > 0 {
		t := newTable(table.Row{"KEY", "IN USE", "HELD BY", "WAITING", "SINCE", "ROOM AT"})
		for _, k := range v.Keys {
			t.AppendRow(table.Row{shortened(strconv.Quote(k.Key), 30), k.InUse, heldBy(k.Holders), k.Waiting, k.WaitingSince, k.RoomAt})
		}
		text += t.Render() + "\n"
		for _, k := range v.Keys {
			text += k.hold()
		}
	}
	t := newTable(table.Row{"CHANGED", "HOW", "IN FORCE", "BY"})
	for _, c := range v.Changes[:min(len(v.Changes), 20)] {
		t.AppendRow(table.Row{c.At, c.How, ruleOf(c.Units, c.Window), shortened(printable(c.By), 30)})
	}
	return text + t.Render() + "\n"
}

// hold returns a line about the hold of a key, "" if the key is not held.
func (v limitUseView) hold() string {
	if v.HoldUntil == "" {
		return ""
	}
	line := fmt.Sprintf("%s is held until %s", shortened(strconv.Quote(v.Key), 20), v.HoldUntil)
	if v.HoldBy != "" {
		line += " by " + printable(v.HoldBy)
	}
	return shortened(line, columns) + "\n"
}

// heldBy returns the first holder and the number of other known ones.
func heldBy(holders []id.ExecutionID) string {
	switch len(holders) {
	case 0:
		return ""
	case 1:
		return holders[0].Short()
	}
	return fmt.Sprintf("%s and %d more", holders[0].Short(), len(holders)-1)
}

func (a *app) limitSetCommand() *cobra.Command {
	var units int
	var window time.Duration
	var by string
	cmd := a.onLimit(&cobra.Command{
		Use:   "set LIMIT",
		Short: "Set a limit, until it is reset",
		Example: `  ff limit set sync/tenant --units 2
  ff limit set sync/api-key --units 50 --window 1m --by "on call"`,
	}, func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error) {
		if units < 0 {
			return nil, "", &usageError{problem: "--units is required, from 0 on"}
		}
		err := limit.Set(ctx, eng, name, limit.Setting{Units: units, Window: window, By: by})
		return map[string]any{"name": name.Name, "units": units}, fmt.Sprintf("Limit %s has %d units.\n", printable(name.Name), units), err
	})
	cmd.Flags().IntVar(&units, "units", -1, "units that run at once, or start in a window; 0: nothing starts")
	cmd.Flags().DurationVar(&window, "window", 0, "the window of a rate; default: the declared one")
	cmd.Flags().StringVar(&by, "by", "", "who sets it, for the list of changes")
	return cmd
}

func (a *app) limitResetCommand() *cobra.Command {
	var by string
	cmd := a.onLimit(&cobra.Command{
		Use:     "reset LIMIT",
		Short:   "Restore the limit that programs declare",
		Example: `  ff limit reset sync/tenant`,
	}, func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error) {
		err := limit.Reset(ctx, eng, name, by)
		return map[string]any{"name": name.Name}, fmt.Sprintf("Limit %s is as declared.\n", printable(name.Name)), err
	})
	cmd.Flags().StringVar(&by, "by", "", "who resets it, for the list of changes")
	return cmd
}

// limitHoldView is the JSON of `ff limit hold`.
type limitHoldView struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Until string `json:"until,omitempty"` // none: the key is not held
}

func (a *app) limitHoldCommand() *cobra.Command {
	var key, by string
	var ends bool
	var end endFlags
	cmd := a.onLimit(&cobra.Command{
		Use:   "hold LIMIT [KEY]",
		Short: "Let nothing with a key of a limit start for a while",
		Long: `hold lets no execution with a key start until an instant, by the clock of the database. Executions
with a place that don't run yet wait again; running ones go on. Without KEY it is the empty key, of
limits without keys. If the key is held for longer already, that end stays: use --end to end a hold.`,
		Example: `  ff limit hold sync/tenant acme --for 10m --by "on call"
  ff limit hold sync/tenant acme --until 2026-11-22T15:04:05Z
  ff limit hold sync/tenant acme --end`,
	}, func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error) {
		if end.given() == ends {
			return nil, "", &usageError{problem: "ff limit hold takes one of --for, --until and --end"}
		}
		if err := end.check("ff limit hold"); err != nil {
			return nil, "", err
		}
		until, err := end.at(ctx, eng)
		if err != nil {
			return nil, "", err
		}
		until, err = limit.Hold(ctx, eng, name, key, limit.Holding{Until: until, By: by})
		v := limitHoldView{Name: name.Name, Key: key, Until: timestamp(until)}
		return v, v.String(), err
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return fmt.Errorf("%s takes one limit and at most one key, not %d words", cmd.CommandPath(), len(args))
		}
		key = strings.Join(args[1:], "")
		return nil
	}
	end.add(cmd)
	cmd.Flags().BoolVar(&ends, "end", false, "end the hold now")
	cmd.Flags().StringVar(&by, "by", "", "who holds it, shown by ff limit show")
	return cmd
}

// String returns the outcome for people.
func (v limitHoldView) String() string {
	key := ""
	if v.Key != "" {
		key = fmt.Sprintf(" for %q", v.Key)
	}
	if v.Until == "" {
		return fmt.Sprintf("Limit %s%s is not held.\n", printable(v.Name), key)
	}
	return fmt.Sprintf("Limit %s%s is held until %s.\n", printable(v.Name), key, v.Until)
}

func (a *app) limitDeleteCommand() *cobra.Command {
	return a.onLimit(&cobra.Command{
		Use:   "delete LIMIT",
		Short: "Delete a limit with its settings and changes",
		Long: `delete deletes a limit for all its keys. Executions that wait for it are let in. A kind that still
declares the limit declares it again within a minute of a creation.`,
		Example: `  ff limit delete sync/tenant`,
	}, func(ctx context.Context, eng *engine.Engine, name limit.Name) (any, string, error) {
		err := limit.Delete(ctx, eng, name)
		return map[string]any{"name": name.Name}, fmt.Sprintf("Limit %s is deleted.\n", printable(name.Name)), err
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) budgetCommand() *cobra.Command {
	cmd := group("budget", "List, show, create, set, reset and delete budgets", `

A budget is named by its id, or by its key in a namespace.`)
	a.databaseFlags(cmd)
	cmd.AddCommand(a.budgetListCommand(), a.budgetShowCommand(), a.budgetCreateCommand(), a.budgetSetCommand(),
		a.budgetResetCommand(), a.budgetDeleteCommand())
	return cmd
}

// budgetView is a budget in the JSON of `ff budget`.
type budgetView struct {
	ID           string               `json:"id"`
	Key          string               `json:"key,omitempty"`
	Scope        string               `json:"scope,omitempty"`
	Mode         string               `json:"mode,omitempty"`
	Dimensions   map[string]dimension `json:"dimensions"`
	ResetEvery   string               `json:"reset_every,omitempty"`
	NextReset    string               `json:"next_reset,omitempty"`
	Retention    string               `json:"retention,omitempty"`
	Cancels      bool                 `json:"cancel_on_breach,omitempty"`
	Breaches     int64                `json:"breaches"`
	SoftBreaches int64                `json:"soft_breaches"`
	LastBreach   string               `json:"last_breach,omitempty"`
	LastIn       string               `json:"last_breach_dimension,omitempty"`
	CreatedAt    string               `json:"created_at"`
	Corruption   string               `json:"corruption,omitempty"`
}

type dimension struct {
	Usage int64 `json:"usage"`
	Hard  int64 `json:"hard,omitempty"`
	Soft  int64 `json:"soft,omitempty"`
}

func (d dimension) String() string {
	text := strconv.FormatInt(d.Usage, 10)
	if d.Hard > 0 {
		text += fmt.Sprintf(" of %d", d.Hard)
	}
	if d.Soft > 0 {
		text += fmt.Sprintf(", soft %d", d.Soft)
	}
	return text
}

func newBudgetView(b budget.Budget) budgetView {
	v := budgetView{
		ID: b.ID.String(), Key: b.Key, Scope: strings.Trim(b.Labels.ScopeType+" "+b.Labels.ScopeID, " "), Mode: b.Labels.Mode,
		Dimensions: make(map[string]dimension), NextReset: timestamp(b.NextReset),
		Breaches: b.Breaches, SoftBreaches: b.SoftBreaches, LastBreach: timestamp(b.LastBreach), LastIn: b.LastBreachDimension,
		CreatedAt: timestamp(b.CreatedAt), Corruption: b.Corruption,
	}
	v.Cancels = b.CancelOnBreach
	if b.ResetEvery > 0 {
		v.ResetEvery = b.ResetEvery.String()
	}
	if b.Retention > 0 {
		v.Retention = b.Retention.String()
	}
	for name, limit := range b.Limits {
		v.Dimensions[name] = dimension{Hard: limit.Hard, Soft: limit.Soft}
	}
	for name, n := range b.Usage {
		d := v.Dimensions[name]
		d.Usage = n
		v.Dimensions[name] = d
	}
	return v
}

func (a *app) budgetListCommand() *cobra.Command {
	return listCommand(a, &cobra.Command{Short: "List the budgets with their usage", Example: `  ff budget list`}, "budgets", newBudgetView, printBudgets,
		func(ctx context.Context, eng *engine.Engine) iter.Seq2[budget.Budget, error] {
			return budget.All(ctx, eng)
		})
}

func printBudgets(to io.Writer, views []budgetView) error {
	if len(views) == 0 {
		_, err := io.WriteString(to, "There are no budgets.\n")
		return err
	}
	t := newTable(table.Row{"BUDGET", "KEY", "SCOPE", "USAGE", "NEXT RESET"})
	for _, v := range views {
		var usage []string
		for _, name := range slices.Sorted(maps.Keys(v.Dimensions)) {
			usage = append(usage, printable(name)+" "+v.Dimensions[name].String())
		}
		if v.Corruption != "" {
			usage = []string{"can't be read"}
		}
		t.AppendRow(table.Row{v.ID, shortened(printable(v.Key), 30), shortened(printable(v.Scope), 20), shortened(strings.Join(usage, "; "), 60), v.NextReset})
	}
	_, err := io.WriteString(to, t.Render()+"\n")
	return err
}

// onBudget is a command on one budget. do returns the value to print as JSON, and the words for people.
func (a *app) onBudget(cmd *cobra.Command, do func(ctx context.Context, eng *engine.Engine, b id.BudgetID) (any, string, error)) *cobra.Command {
	var asJSON bool
	var namespace string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one budget, not %d", cmd.CommandPath(), len(args))
		}
		return nil
	}
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		b, err := id.ParseBudgetID(args[0])
		if err != nil {
			b = id.BudgetIDOf(id.Namespace(namespace), args[0])
		}
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			value, words, err := do(ctx, eng, b)
			switch {
			case errors.Is(err, fferr.ErrNotFound):
				return &stepError{err, "correct the id or the key, see `ff budget list`", exitNotFound}
			case err != nil:
				return asUsage(err)
			case asJSON:
				return a.writeJSON(value)
			}
			_, err = io.WriteString(a.stdout, words)
			return err
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&namespace, "namespace", string(engine.DefaultNamespace), "the namespace of the budget's key")
	return cmd
}

func (a *app) budgetShowCommand() *cobra.Command {
	return a.onBudget(&cobra.Command{
		Use:   "show BUDGET",
		Short: "Show a budget, its limits and its usage",
		Example: `  ff budget show 0197c1f0-0000-7000-8000-000000000001
  ff budget show tenant/acme`,
	}, func(ctx context.Context, eng *engine.Engine, b id.BudgetID) (any, string, error) {
		found, err := budget.Get(ctx, eng, b)
		v := newBudgetView(found)
		facts := []fact{{"budget", v.ID}, {"key", v.Key}, {"scope", v.Scope}, {"mode", v.Mode}, {"corruption", v.Corruption}}
		for _, name := range slices.Sorted(maps.Keys(v.Dimensions)) {
			facts = append(facts, fact{name, v.Dimensions[name].String()})
		}
		if v.Cancels {
			facts = append(facts, fact{"at a breach", "cancels the executions in flight"})
		}
		facts = append(facts,
			fact{"reset every", v.ResetEvery}, fact{"next reset", v.NextReset}, fact{"deleted after", v.Retention},
			fact{"breaches", strconv.FormatInt(v.Breaches, 10)}, fact{"soft breaches", strconv.FormatInt(v.SoftBreaches, 10)},
			fact{"last breach", strings.Trim(v.LastBreach+" "+v.LastIn, " ")}, fact{"created", v.CreatedAt},
		)
		return v, renderFacts(facts), err
	})
}

func (a *app) budgetCreateCommand() *cobra.Command {
	var asJSON bool
	var budgets, key, namespace string
	var f budgetFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a budget and print its id",
		Example: `  ff budget create --hard tokens=1000000 --soft tokens=800000 --reset-every 24h
  ff budget create --key tenant/acme --hard cents=5000`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			spec := budget.Spec{Key: key, Namespace: id.Namespace(namespace), Limits: make(map[string]budget.Limit)}
			if budgets != "" {
				var err error
				if spec.ID, err = id.ParseBudgetID(budgets); err != nil {
					return &usageError{problem: err.Error()}
				}
			}
			if err := f.change(&spec, func(string) bool { return true }); err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				created, err := budget.Create(ctx, eng, spec)
				switch {
				case err != nil:
					return asUsage(err)
				case created.Duplicate && !created.Matches:
					return fmt.Errorf("budget %s exists with other limits, and was not changed", named(created.ID, key))
				case asJSON:
					return a.writeJSON(map[string]any{"id": created.ID.String(), "existed": created.Duplicate})
				}
				_, err = io.WriteString(a.stdout, created.ID.String()+"\n")
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&budgets, "id", "", "the id of the budget, so that the command can be repeated")
	cmd.Flags().StringVar(&key, "key", "", "the key of the budget, in place of an id")
	cmd.Flags().StringVar(&namespace, "namespace", "", "the namespace of the key")
	f.add(cmd)
	return cmd
}

// budgetFlags are the flags to describe a budget.
type budgetFlags struct {
	hard, soft         []string
	every, retention   time.Duration
	cancel             bool
	scopeType, scopeID string
}

func (f *budgetFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.hard, "hard", nil, "a hard limit, as DIMENSION=NUMBER; may be repeated")
	flags.StringArrayVar(&f.soft, "soft", nil, "a soft limit, as DIMENSION=NUMBER; may be repeated")
	flags.DurationVar(&f.every, "reset-every", 0, "the interval of the resets")
	flags.DurationVar(&f.retention, "retention", 0, "delete the budget once it is unused for as long")
	flags.BoolVar(&f.cancel, "cancel-on-breach", false, "cancel the executions in flight at a breach of a hard limit")
	flags.StringVar(&f.scopeType, "scope-type", "", "the kind of its owner, as tenant")
	flags.StringVar(&f.scopeID, "scope-id", "", "its owner")
}

// change applies the given flags to a spec.
func (f *budgetFlags) change(spec *budget.Spec, given func(flag string) bool) error {
	if given("reset-every") {
		spec.ResetEvery = f.every
	}
	if given("retention") {
		spec.Retention = f.retention
	}
	if given("cancel-on-breach") {
		spec.CancelOnBreach = f.cancel
	}
	if given("scope-type") {
		spec.Labels.ScopeType = f.scopeType
	}
	if given("scope-id") {
		spec.Labels.ScopeID = f.scopeID
	}
	err := errors.Join(
		addLimits(spec.Limits, "--hard", f.hard, func(l *budget.Limit) *int64 { return &l.Hard }),
		addLimits(spec.Limits, "--soft", f.soft, func(l *budget.Limit) *int64 { return &l.Soft }),
	)
	if err != nil {
		return &usageError{problem: err.Error()}
	}
	return nil
}

func (a *app) budgetSetCommand() *cobra.Command {
	var f budgetFlags
	cmd := &cobra.Command{
		Use:   "set BUDGET",
		Short: "Change limits and other settings of a budget",
		Long:  "set changes the settings that its flags name, and leaves the others and the usage alone. A limit of 0 is no limit.",
		Example: `  ff budget set tenant/acme --hard cents=8000
  ff budget set tenant/acme --soft tokens=0 --reset-every 168h`,
	}
	f.add(cmd)
	return a.onBudget(cmd, func(ctx context.Context, eng *engine.Engine, b id.BudgetID) (any, string, error) {
		now, err := budget.Get(ctx, eng, b)
		if err != nil {
			return nil, "", err
		}
		spec := budget.Spec{
			ID: b, Limits: now.Limits, ResetEvery: now.ResetEvery, Retention: now.Retention, CancelOnBreach: now.CancelOnBreach, Labels: now.Labels,
		}
		if spec.Limits == nil {
			spec.Limits = make(map[string]budget.Limit)
		}
		if err := f.change(&spec, cmd.Flags().Changed); err != nil {
			return nil, "", err
		}
		if err := budget.Set(ctx, eng, spec); err != nil {
			return nil, "", err
		}
		return map[string]string{"id": b.String()}, fmt.Sprintf("Budget %s is changed.\n", named(b, now.Key)), nil
	})
}

func (a *app) budgetDeleteCommand() *cobra.Command {
	return a.onBudget(&cobra.Command{
		Use:   "delete BUDGET",
		Short: "Delete a budget with its usage",
		Long: `delete deletes a budget with its usage and its reservations. Executions that name it have no limit by it any more:
those that wait for it are let in.`,
		Example: `  ff budget delete 0197c1f0-0000-7000-8000-000000000001`,
	}, func(ctx context.Context, eng *engine.Engine, b id.BudgetID) (any, string, error) {
		now, err := budget.Get(ctx, eng, b)
		if err != nil {
			return nil, "", err
		}
		return map[string]string{"id": b.String()}, fmt.Sprintf("Budget %s is deleted.\n", named(b, now.Key)), budget.Delete(ctx, eng, b)
	})
}

// named returns a budget's id, after its key if it has one.
func named(b id.BudgetID, key string) string {
	if key == "" {
		return b.String()
	}
	return fmt.Sprintf("%q (%s)", key, b)
}

// addLimits adds limits in the form DIMENSION=NUMBER.
func addLimits(to map[string]budget.Limit, flag string, limits []string, field func(*budget.Limit) *int64) error {
	for _, text := range limits {
		at := strings.LastIndexByte(text, '=')
		if at < 1 {
			return fmt.Errorf("%s %q has not the form DIMENSION=NUMBER", flag, text)
		}
		n, err := strconv.ParseInt(text[at+1:], 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%s %q has no number from 0 on", flag, text)
		}
		limit := to[text[:at]]
		*field(&limit) = n
		to[text[:at]] = limit
	}
	return nil
}

func (a *app) budgetResetCommand() *cobra.Command {
	return a.onBudget(&cobra.Command{
		Use:     "reset BUDGET",
		Short:   "Set the usage of a budget to 0",
		Example: `  ff budget reset 0197c1f0-0000-7000-8000-000000000001`,
	}, func(ctx context.Context, eng *engine.Engine, b id.BudgetID) (any, string, error) {
		now, err := budget.Get(ctx, eng, b)
		if err != nil {
			return nil, "", err
		}
		next, err := budget.Reset(ctx, eng, b)
		words := fmt.Sprintf("Budget %s is reset.\n", named(b, now.Key))
		if !next.IsZero() {
			words = fmt.Sprintf("Budget %s is reset, and is reset again at %s.\n", named(b, now.Key), timestamp(next))
		}
		return map[string]string{"id": b.String(), "next_reset": timestamp(next)}, words, err
	})
}

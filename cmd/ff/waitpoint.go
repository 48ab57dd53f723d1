package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/waitpoint"
)

func (a *app) waitpointCommand() *cobra.Command {
	cmd := group("waitpoint", "List the waitpoints of an execution, and reissue their links", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.waitpointListCommand(), a.waitpointReissueCommand())
	return cmd
}

// waitpointsView is the JSON of `ff waitpoint list`, without tokens.
type waitpointsView struct {
	Waitpoints []waitpointView `json:"waitpoints"`
}

type waitpointView struct {
	ID          id.WaitpointID  `json:"id"`
	Key         id.WaitpointKey `json:"key"`
	Active      bool            `json:"active"`
	Signals     []string        `json:"signals"`
	CreatedAt   string          `json:"created_at"`
	ExpiresAt   string          `json:"expires_at,omitempty"`
	Kept        int             `json:"kept"` // signals
	SigningKey  string          `json:"signing_key,omitempty"`
	Fingerprint string          `json:"fingerprint,omitempty"`
}

func (a *app) waitpointListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list EXECUTION",
		Short:   "List the open waitpoints of an execution, without their tokens",
		Example: `  ff waitpoint list 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				page, err := eng.ListWaitpoints(ctx, execution, "", engine.MaxPage)
				if err != nil {
					return err
				}
				view := waitpointsView{Waitpoints: []waitpointView{}}
				for _, w := range page.Items {
					view.Waitpoints = append(view.Waitpoints, waitpointView{
						ID: w.ID, Key: w.Key, Active: w.Active, Signals: append([]string{}, w.Names...), CreatedAt: timestamp(w.CreatedAt),
						ExpiresAt: timestamp(w.ExpiresAt), Kept: w.Buffered, SigningKey: w.Kid, Fingerprint: w.Fingerprint,
					})
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return a.printWaitpoints(view)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printWaitpoints(view waitpointsView) error {
	if len(view.Waitpoints) == 0 {
		_, err := io.WriteString(a.stdout, "No waitpoint is open.\n")
		return err
	}
	t := newTable(table.Row{"WAITPOINT", "KEY", "WAITS", "KEPT", "SIGNED BY"})
	for _, w := range view.Waitpoints {
		waits := "no"
		if w.Active {
			waits = "yes"
		}
		t.AppendRow(table.Row{w.ID, shortened(printable(string(w.Key)), 12), waits, w.Kept, shortened(printable(w.SigningKey), 10)})
	}
	_, err := io.WriteString(a.stdout, t.Render()+"\n")
	return err
}

// reissuedView is the JSON of `ff waitpoint reissue`.
type reissuedView struct {
	Link string `json:"link"`
}

func (a *app) waitpointReissueCommand() *cobra.Command {
	var (
		asJSON bool
		base   string
	)
	cmd := &cobra.Command{
		Use:   "reissue EXECUTION WAITPOINT",
		Short: "Sign a waitpoint anew, and print its link",
		Long: `reissue signs the token of an open waitpoint with the key that signs now. The earlier
link is dead from then on. The new one is printed this once; no other command shows it.
If the same key signs still, the link stays the same: rotate the key first.`,
		Example: `  ff waitpoint reissue $ID $WAITPOINT --url https://example.com/waitpoints/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes an execution and a waitpoint", cmd.CommandPath())
			}
			return nil
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			point, err := id.ParseWaitpointID(args[1])
			if err != nil {
				return &usageError{problem: fmt.Sprintf("%s is not the id of a waitpoint", printable(args[1])), next: "run `ff waitpoint list`"}
			}
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				token, err := operator.ReissueToken(ctx, eng, execution, point)
				if err != nil {
					return err
				}
				link := waitpoint.Link(base, engine.Waitpoint{Execution: execution, ID: point, Token: token})
				if asJSON {
					return a.writeJSON(reissuedView{link})
				}
				_, err = io.WriteString(a.stdout, link+"\n")
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&base, "url", "", "where your program serves waitpoints; without it only the path is printed")
	return cmd
}

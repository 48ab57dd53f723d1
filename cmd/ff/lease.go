package main

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

func (a *app) leaseCommand() *cobra.Command {
	cmd := group("lease", "List expired leases", "")
	a.databaseFlags(cmd)
	var expired bool
	list := listCommand(a, &cobra.Command{
		Short: "List expired leases",
		Long: `list --expired prints the leases that have expired and whose executions have not been given back to their
lanes. Background work does that within seconds. If the list stays long, ask ff job list and ff why.
Running executions hold the live leases: ff execution list --state active.`,
		Example: `  ff lease list --expired
  ff lease list --expired --json | jq -r '.leases[].execution'`,
	}, "leases", newLeaseListView, printLeases, func(ctx context.Context, eng *engine.Engine) iter.Seq2[operator.ExpiredLease, error] {
		return operator.ExpiredLeases(ctx, eng, operator.ExpiredLeaseFilter{})
	})
	run := list.RunE
	list.RunE = func(cmd *cobra.Command, args []string) error {
		if !expired {
			return &usageError{problem: "--expired is missing", next: "or list running executions by `ff execution list --state active`"}
		}
		return run(cmd, args)
	}
	list.Flags().BoolVar(&expired, "expired", false, "expired leases, the only ones that can be listed")
	cmd.AddCommand(list)
	return cmd
}

// leaseListView is a lease in the JSON of `ff lease list`.
type leaseListView struct {
	Execution id.ExecutionID      `json:"execution"`
	Instance  id.WorkerInstanceID `json:"worker_instance"`
	Attempt   int                 `json:"attempt_index"`
	Epoch     int64               `json:"epoch"`
	ExpiredAt string              `json:"expired_at"`
}

func newLeaseListView(l operator.ExpiredLease) leaseListView {
	return leaseListView{Execution: l.Execution, Instance: l.Instance, Attempt: l.Attempt, Epoch: l.Epoch, ExpiredAt: timestamp(l.ExpiresAt)}
}

func printLeases(to io.Writer, leases []leaseListView) error {
	if len(leases) == 0 {
		_, err := io.WriteString(to, "No lease has expired.\n")
		return err
	}
	t := newTable(table.Row{"EXECUTION", "WORKER INSTANCE", "EXPIRED"})
	for _, l := range leases {
		t.AppendRow(table.Row{l.Execution.Short(), printable(string(l.Instance)), l.ExpiredAt})
	}
	_, err := fmt.Fprintln(to, t.Render())
	return err
}

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/operator"
)

func (a *app) jobCommand() *cobra.Command {
	cmd := group("job", "List the background work", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(listCommand(a, &cobra.Command{
		Short: "List the background jobs and their holders",
		Long: `list prints each background job with the process that does it, its last success and failure, and when it is
due. A job without work is not called, so its last success may be old. A job that is due for long and has no
holder means that no worker or reconciler runs.`,
		Example: `  ff job list
  ff job list --json | jq '.jobs[] | select(.held | not)'`,
	}, "jobs", newJobView, printJobs, operator.Jobs))
	return cmd
}

// jobView is a job in the JSON of `ff job list`.
type jobView struct {
	Name      string `json:"name"`
	Holder    string `json:"holder"`
	Held      bool   `json:"held"`
	HeldUntil string `json:"held_until,omitempty"`
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
	Error     string `json:"error,omitempty"`
	Due       string `json:"due,omitempty"`
}

func newJobView(j operator.BackgroundJob) jobView {
	view := jobView{
		Name: j.Name, Holder: string(j.Holder), Held: j.Held, HeldUntil: timestamp(j.HeldUntil), Succeeded: timestamp(j.Succeeded),
		Failed: timestamp(j.Failed), Error: j.Error, Due: timestamp(j.Due),
	}
	if !j.Due.IsZero() && j.Due.Before(time.UnixMilli(1)) {
		view.Due = "now"
	}
	return view
}

func printJobs(to io.Writer, jobs []jobView) error {
	if len(jobs) == 0 {
		_, err := io.WriteString(to, "No process has done background work on this database: start a worker, or a reconciler.\n")
		return err
	}
	t := newTable(table.Row{"JOB", "HOLDER", "LAST SUCCESS", "LAST FAILURE", "DUE", "ERROR"})
	for _, j := range jobs {
		holder := j.Holder
		if !j.Held {
			holder = "-"
		}
		t.AppendRow(table.Row{j.Name, printable(holder), j.Succeeded, j.Failed, j.Due, printable(j.Error)})
	}
	_, err := fmt.Fprintln(to, t.Render())
	return err
}

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

func (a *app) sequenceCommand() *cobra.Command {
	cmd := group("sequence", "List and show sequences, and let stopped ones continue", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.sequenceListCommand(), a.sequenceShowCommand(), a.sequenceContinueCommand())
	return cmd
}

// sequenceView is a sequence in the JSON of `ff sequence`.
type sequenceView struct {
	Key       string     `json:"key"`
	Namespace string     `json:"namespace"`
	Size      int        `json:"size"` // 1,001 for more than 1,000
	First     string     `json:"first,omitempty"`
	StoppedAt string     `json:"stopped_at,omitempty"`
	Members   []seatView `json:"members,omitempty"`
}

// seatView is an execution of a sequence.
type seatView struct {
	Place     int64  `json:"place"`
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	State     string `json:"state"`
	OnFailure string `json:"on_failure"`
	TurnAt    string `json:"turn_at,omitempty"`
}

// placeView is the place of an execution in a sequence, in the JSON of `ff execution show`.
type placeView struct {
	Key       string `json:"key"`
	Place     int64  `json:"place,omitempty"`
	Ahead     int    `json:"ahead"`
	First     string `json:"first,omitempty"`
	StoppedAt string `json:"stopped_at,omitempty"`
}

func newPlaceView(p *engine.SequencePlace) *placeView {
	if p == nil {
		return nil
	}
	v := &placeView{Key: p.Key, Place: p.Place, Ahead: p.Ahead, StoppedAt: timestamp(p.StoppedAt)}
	if !p.First.IsZero() {
		v.First = p.First.String()
	}
	return v
}

// String returns the place for people: "" for none.
func (v *placeView) String() string {
	switch {
	case v == nil:
		return ""
	case v.Place == 0:
		return v.Key
	case v.StoppedAt != "":
		return fmt.Sprintf("%s, place %d behind %d, stopped at %s", v.Key, v.Place, v.Ahead, v.First)
	case v.Ahead == 0:
		return fmt.Sprintf("%s, place %d, its turn", v.Key, v.Place)
	}
	return fmt.Sprintf("%s, place %d behind %d, now %s", v.Key, v.Place, v.Ahead, v.First)
}

func newSequenceView(s engine.SequenceState) sequenceView {
	v := sequenceView{Key: s.Key, Namespace: string(s.Namespace), Size: s.Size, StoppedAt: timestamp(s.StoppedAt)}
	if !s.First.IsZero() {
		v.First = s.First.String()
	}
	return v
}

func newSeatView(m engine.SequenceMember) seatView {
	v := seatView{
		Place: m.Place, ID: m.Execution.String(), Kind: m.Kind, State: string(m.State), OnFailure: "stops", TurnAt: timestamp(m.TurnAt),
	}
	if m.OnFailure == engine.SequenceSkips {
		v.OnFailure = "skips"
	}
	return v
}

func (a *app) sequenceListCommand() *cobra.Command {
	var stopped bool
	cmd := listCommand(a, &cobra.Command{Short: "List the sequences that have executions", Example: `  ff sequence list --stopped`},
		"sequences", newSequenceView, printSequences,
		func(ctx context.Context, eng *engine.Engine) iter.Seq2[engine.SequenceState, error] {
			return eng.Sequences(ctx, engine.SequenceFilter{Stopped: stopped})
		})
	cmd.Flags().BoolVar(&stopped, "stopped", false, "only sequences that stopped at a failed execution")
	return cmd
}

func printSequences(to io.Writer, views []sequenceView) error {
	if len(views) == 0 {
		_, err := io.WriteString(to, "There are no sequences.\n")
		return err
	}
	t := newTable(table.Row{"SEQUENCE", "SIZE", "FIRST", "STOPPED"})
	for _, v := range views {
		t.AppendRow(table.Row{shortened(printable(v.Key), 20), v.Size, v.First, v.StoppedAt})
	}
	_, err := io.WriteString(to, t.Render()+"\n")
	return err
}

// onSequence is [app.onOne] for a sequence.
func (a *app) onSequence(
	cmd *cobra.Command, do func(ctx context.Context, eng *engine.Engine, name engine.SequenceName) (any, string, error),
) *cobra.Command {
	return a.onOne(cmd, "sequence", "key", func(ctx context.Context, eng *engine.Engine, namespace id.Namespace, name string) (any, string, error) {
		return do(ctx, eng, engine.SequenceName{Namespace: namespace, Key: name})
	})
}

func (a *app) sequenceShowCommand() *cobra.Command {
	return a.onSequence(&cobra.Command{
		Use:     "show KEY",
		Short:   "Show a sequence with its first executions in their order",
		Example: `  ff sequence show "account 4711"`,
	}, func(ctx context.Context, eng *engine.Engine, name engine.SequenceName) (any, string, error) {
		s, err := eng.DescribeSequence(ctx, name)
		if err != nil {
			return nil, "", err
		}
		members, err := eng.ListSequenceMembers(ctx, name, "", 100)
		v := newSequenceView(s)
		t := newTable(table.Row{"PLACE", "EXECUTION", "KIND", "STATE"})
		for _, m := range members.Items {
			member := newSeatView(m)
			v.Members = append(v.Members, member)
			t.AppendRow(table.Row{member.Place, member.ID, shortened(printable(member.Kind), 20), member.State})
		}
		facts := renderFacts([]fact{
			{"sequence", v.Key},
			{"namespace", v.Namespace},
			{"executions", fmt.Sprint(v.Size)},
			{"stopped", v.StoppedAt},
		})
		return v, facts + t.Render() + "\n", err
	})
}

func (a *app) sequenceContinueCommand() *cobra.Command {
	return a.onSequence(&cobra.Command{
		Use:     "continue KEY",
		Short:   "Pass over the failed execution that a sequence stopped at",
		Example: `  ff sequence continue "account 4711"`,
	}, func(ctx context.Context, eng *engine.Engine, name engine.SequenceName) (any, string, error) {
		err := operator.ContinueSequence(ctx, eng, name)
		return map[string]any{"key": name.Key, "stopped": false}, fmt.Sprintf("Sequence %s continues.\n", printable(name.Key)), err
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// onOne is a command on one named thing in its namespace. noun is the thing, and called the word for its name. do
// returns the value to print as JSON, and the words for people.
func (a *app) onOne(
	cmd *cobra.Command, noun, called string,
	do func(ctx context.Context, eng *engine.Engine, namespace id.Namespace, name string) (any, string, error),
) *cobra.Command {
	var asJSON bool
	var namespace string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s, not %d", cmd.CommandPath(), noun, len(args))
		}
		return nil
	}
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			defer eng.Flush()
			value, words, err := do(ctx, eng, id.Namespace(namespace), args[0])
			switch {
			case errors.Is(err, fferr.ErrNotFound):
				return &stepError{err, fmt.Sprintf("correct the %s, see `ff %s list`", called, noun), exitNotFound}
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
	cmd.Flags().StringVar(&namespace, "namespace", "", "the namespace of the "+noun)
	return cmd
}

// listCommand is the command to list all things of a kind, called plural in its JSON.
func listCommand[T, V any](
	a *app, cmd *cobra.Command, plural string, view func(T) V, write func(io.Writer, []V) error,
	all func(ctx context.Context, eng *engine.Engine) iter.Seq2[T, error],
) *cobra.Command {
	var asJSON bool
	cmd.Use, cmd.Args = "list", noArgs
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error {
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			views := []V{}
			for thing, err := range all(ctx, eng) {
				if err != nil {
					return err
				}
				views = append(views, view(thing))
			}
			if asJSON {
				return a.writeJSON(map[string][]V{plural: views})
			}
			return write(a.stdout, views)
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/schema"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of ff, Go and the schema",
		Example: "  ff version",
		Args:    noArgs,
		RunE: a.does(func(context.Context, []string) error {
			_, err := fmt.Fprintln(a.stdout, version())
			return err
		}),
	}
}

// version returns the output of `ff version` and `ff --version`.
func version() string {
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return fmt.Sprintf("ff %s, %s, schema %s", version, runtime.Version(), schema.Version)
}

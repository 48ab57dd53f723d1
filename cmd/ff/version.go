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
		Short:   "Print the version of ff, of Go and of the schema it works on",
		Example: "  ff version",
		Args:    noArgs,
		RunE: a.does(func(context.Context, []string) error {
			version := "(unknown)"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			_, err := fmt.Fprintf(a.stdout, "ff %s, %s, schema %s\n", version, runtime.Version(), schema.Version)
			return err
		}),
	}
}

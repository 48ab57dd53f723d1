package main

import (
	"context"
	_ "embed"
	"io"

	"github.com/spf13/cobra"
)

// licenses is written by `make licenses`.
//
//go:embed licenses.txt
var licenses string

func (a *app) licensesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "licenses",
		Short:   "Print the licenses of ff and its dependencies",
		Example: "  ff licenses",
		Args:    noArgs,
		RunE: a.does(func(context.Context, []string) error {
			_, err := io.WriteString(a.stdout, licenses)
			return err
		}),
	}
}

// Command comment writes the report as a comment of the pull request, or updates the comment of an earlier run. It is a
// step of the GitHub action, and needs no program beside it.
//
// The environment has its parameters: those the runner sets, and
//
//	REPORTS     the folder of the report
//	NAME        the name of the review: each name has a comment of its own
//	REPOSITORY  owner/name
//	PULL        the number of the pull request; empty: there is none, so there is nothing to do
//	CODE        the exit code of the review; empty: the review failed, and the comment says so
//	GH_TOKEN    the token that comments
//
// If GitHub refuses, as for the token of a pull request from a fork, it warns: the report is in the summary and the
// artifact. It fails only if its parameters are wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Getenv); err != nil {
		fmt.Fprintf(os.Stderr, "::error::%s\n", escape(err.Error()))
		os.Exit(1)
	}
}

// run comments, and reports the result to out.
func run(ctx context.Context, out io.Writer, env func(string) string) error {
	pull := env("PULL")
	if pull == "" {
		fmt.Fprintln(out, "there is no pull request to comment on")
		return nil
	}
	api, err := connect(env)
	if err != nil {
		return err
	}
	marker := "<!-- " + env("NAME") + " -->"
	body := failed(marker, runURL(env))
	if env("CODE") != "" {
		report, err := os.ReadFile(filepath.Join(env("REPORTS"), "schema-review.md"))
		if err != nil {
			return err
		}
		body = fit(marker, string(report), env("NAME"), runURL(env))
	}
	url, err := api.keep(ctx, env("REPOSITORY"), pull, marker, body)
	if refusal, ok := errors.AsType[*refusedError](err); ok && refusal.forbidden() {
		err = fmt.Errorf("the token may not comment, as in pull requests from forks and without pull-requests: write (%w)", err)
	}
	if err != nil {
		fmt.Fprintf(out, "::warning::no comment, so the report is in the summary and the artifact only: %s\n", escape(err.Error()))
		return nil
	}
	fmt.Fprintln(out, "the report is the comment", url)
	return nil
}

// runURL is the page of the workflow's run, which has the summary, the log and the artifact.
func runURL(env func(string) string) string {
	return fmt.Sprintf("%s/%s/actions/runs/%s", env("GITHUB_SERVER_URL"), env("GITHUB_REPOSITORY"), env("GITHUB_RUN_ID"))
}

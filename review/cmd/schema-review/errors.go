package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// Exit codes beside a report's.
const (
	exitDone        = report.ExitClean
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is an error in the command line or the environment.
type usageError struct{ problem string }

func (e usageError) Error() string { return e.problem }

// verdictError reports a verdict that is not clean.
type verdictError struct {
	verdict report.Verdict
	failOn  report.Severity
}

func (e verdictError) Error() string {
	switch e.verdict {
	case report.Advisory:
		return "the change may be merged, with advice"
	case report.Incomplete:
		return "a part of the project was not read: see the top of the report"
	}
	return fmt.Sprintf("there are findings of severity %s or worse", e.failOn)
}

// explain converts an error to one sentence, and an exit code.
func explain(ctx context.Context, err error) (sentence string, code int) {
	if found, ok := errors.AsType[verdictError](err); ok {
		return found.Error() + ".", found.verdict.ExitCode()
	}
	if ctx.Err() != nil {
		return "interrupted.", exitInterrupted
	}
	if usage, ok := errors.AsType[usageError](err); ok {
		return oneLine(usage) + ": see `schema-review --help`.", exitUsage
	}
	return oneLine(err) + ".", exitFailed
}

// oneLine returns the error's text without line breaks and a final full stop.
func oneLine(err error) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(err.Error()), " "), ".")
}

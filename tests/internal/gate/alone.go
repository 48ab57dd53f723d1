package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	aloneRuns = 3
	// mostAlone limits the tests run alone. If more failed, other tests are hardly the cause.
	mostAlone = 10
)

// failure is a failed test.
type failure struct{ packagePath, test string }

// alone runs each failed test three times by itself, and reports how often the test fails then.
func alone(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("alone", flag.ExitOnError)
	race := flags.Bool("race", false, "build with the race detector")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer file.Close()
	failures, err := failuresIn(file)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	if len(failures) > mostAlone {
		fmt.Printf("%d tests failed; the first %d are run alone\n", len(failures), mostAlone)
		failures = failures[:mostAlone]
	}
	folder, err := os.MkdirTemp("", "gate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var verdicts []string
	for _, f := range failures {
		failed, err := f.again(ctx, folder, raceFlags(*race))
		if err != nil {
			return err
		}
		verdicts = append(verdicts, f.verdict(failed))
	}
	fmt.Println(strings.Join(verdicts, "\n"))
	return nil
}

// failuresIn returns the failed top-level tests, in the order of the events.
func failuresIn(events io.Reader) ([]failure, error) {
	var failures []failure
	for decoder := json.NewDecoder(events); ; {
		var event struct{ Action, Package, Test string }
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return failures, nil
		} else if err != nil {
			return nil, err
		}
		test, _, _ := strings.Cut(event.Test, "/")
		if f := (failure{event.Package, test}); event.Action == "fail" && test != "" && !slices.Contains(failures, f) {
			failures = append(failures, f)
		}
	}
}

// again runs the test alone and returns how many runs failed.
func (f failure) again(ctx context.Context, folder string, flags []string) (int, error) {
	listed, err := packages(ctx, f.packagePath)
	if err != nil {
		return 0, err
	}
	if err := listed[0].build(ctx, folder, flags...); err != nil {
		return 0, err
	}
	failed := 0
	for i := range aloneRuns {
		fmt.Printf("=== %s alone, run %d of %d\n", f.test, i+1, aloneRuns)
		if listed[0].command(ctx, folder, "-test.run="+only([]string{f.test})).Run() != nil {
			failed++
		}
	}
	return failed, ctx.Err()
}

func (f failure) verdict(failed int) string {
	switch failed {
	case 0:
		return fmt.Sprintf("%s of %s passes alone (%d runs): it failed beside other tests, or by chance", f.test, f.packagePath, aloneRuns)
	case aloneRuns:
		return fmt.Sprintf("%s of %s fails alone (%d runs)", f.test, f.packagePath, aloneRuns)
	}
	return fmt.Sprintf("%s of %s fails alone at times (%d of %d runs)", f.test, f.packagePath, failed, aloneRuns)
}

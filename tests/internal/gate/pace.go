package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"
)

const (
	paceRuns  = 10
	burners   = 2
	burnLimit = time.Hour // a burner stops by then, even if its input stays open
)

// pace runs changed tests ten times under load, with one processor and with four.
func pace(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("pace", flag.ExitOnError)
	race := flags.Bool("race", false, "build with the race detector")
	base := flags.String("base", "main", "the tests changed since they left this `revision`")
	run := flags.String("run", "", "the tests that match the `pattern`, instead of the changed ones")
	if err := flags.Parse(args); err != nil {
		return err
	}
	patterns, err := paceTests(ctx, *base, *run, flags.Args())
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "gate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	order := slices.SortedFunc(maps.Keys(patterns), func(a, b testPackage) int { return cmp.Compare(a.path, b.path) })
	for _, p := range order {
		if err := p.build(ctx, folder, raceFlags(*race)...); err != nil {
			return err
		}
	}

	extinguish, err := startBurners()
	if err != nil {
		return err
	}
	defer extinguish()
	var errs error
	for _, processors := range []int{1, 4} {
		for _, p := range order {
			fmt.Printf("=== %s %s, %d times, GOMAXPROCS=%d\n", p.path, patterns[p], paceRuns, processors)
			cmd := p.command(ctx, folder, "-test.run="+patterns[p], fmt.Sprintf("-test.count=%d", paceRuns))
			cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", processors))
			if err := cmd.Run(); err != nil {
				errs = errors.Join(errs, fmt.Errorf("%s with GOMAXPROCS=%d: %w", p.path, processors, err))
			}
		}
	}
	return errs
}

// paceTests returns the pattern of the tests to run for each package with some.
func paceTests(ctx context.Context, base, run string, patterns []string) (map[testPackage]string, error) {
	listed, err := packages(ctx, patterns...)
	if err != nil {
		return nil, err
	}
	tests := make(map[testPackage]string)
	if run != "" {
		for _, p := range listed {
			names, err := p.matching(run)
			if err != nil {
				return nil, err
			}
			if len(names) > 0 {
				tests[p] = run
			}
		}
	} else {
		changed, err := changedTests(ctx, base)
		if err != nil {
			return nil, err
		}
		for _, p := range listed {
			if names := changed[p.folder]; len(names) > 0 {
				tests[p] = only(names)
			}
		}
	}
	if len(tests) == 0 {
		return nil, errors.New("there is no test to run: say which with PACE=pattern, or since when with BASE=revision")
	}
	return tests, nil
}

// startBurners starts the programs to use all processors. The programs end when the returned function is called, or
// with the present process, whose end closes their input.
func startBurners() (extinguish func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var inputs []io.Closer
	var started []*exec.Cmd
	extinguish = func() {
		for i, cmd := range started {
			inputs[i].Close()
			_ = cmd.Wait() // after the request to end
		}
	}
	for range burners {
		cmd := exec.Command(program, "burn")
		input, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			extinguish()
			return nil, fmt.Errorf("start a program that uses all processors: %w", err)
		}
		inputs, started = append(inputs, input), append(started, cmd)
	}
	return extinguish, nil
}

// burn uses all processors until the input ends.
func burn(context.Context, []string) error {
	for range runtime.NumCPU() {
		go func() {
			for n := 0; ; n++ {
			}
		}()
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(burnLimit):
	}
	return nil
}

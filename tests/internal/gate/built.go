package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// built runs the test binaries of packages, several at a time, and writes the events of all to standard output, as go test
// -json does. The binaries stay in a folder, so the next version of Postgres needs none built: go test itself links its
// binaries for each run.
func built(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("built", flag.ExitOnError)
	folder := flags.String("dir", "bin/versioned", "keep the binaries in this `folder`")
	run := flags.String("run", "", "run the tests that match the `pattern`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	binaries, err := filepath.Abs(*folder)
	if err != nil {
		return err
	}
	listed, err := packages(ctx, flags.Args()...)
	if err != nil {
		return err
	}
	var (
		running sync.WaitGroup
		slots   = make(chan struct{}, runtime.NumCPU())
		writing sync.Mutex
		errs    error
	)
	for _, p := range listed {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := p.build(ctx, binaries)
			if err == nil {
				err = p.writeEvents(ctx, binaries, *run, func(event []byte) {
					writing.Lock()
					defer writing.Unlock()
					os.Stdout.Write(event)
				})
			}
			writing.Lock()
			defer writing.Unlock()
			errs = errors.Join(errs, err)
		})
	}
	running.Wait()
	return errs
}

// writeEvents runs the package's test binary and forwards its events, each a line of JSON.
func (p testPackage) writeEvents(ctx context.Context, folder, run string, write func(event []byte)) error {
	test := p.command(ctx, folder, "-test.v=test2json", "-test.run="+run)
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "test2json", "-t", "-p", p.path}, test.Args...)...)
	cmd.Dir, cmd.Stderr = test.Dir, os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for reader := bufio.NewReader(events); ; {
		event, err := reader.ReadBytes('\n')
		if len(event) > 0 {
			write(event)
		}
		if err != nil {
			break // the end, or the program's, which Wait reports
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	return nil
}

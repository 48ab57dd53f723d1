// Package picture draws the results of benchmarks for the documentation.
package picture

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// Picture is a file of the documentation.
type Picture struct {
	Name string
	SVG  []byte
}

// Run draws the pictures selected by a command line, and prints their names.
func Run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	flags.SetOutput(out)
	results := flags.String("results", "results.json", "`file` with the results")
	growth := flags.String("growth", "growth.json", "`file` with the results of scenario at")
	folder := flags.String("o", filepath.Join("..", "docs", "internals", "pictures"), "`folder` for the pictures")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	drawn, err := File(*results)
	if err != nil {
		return err
	}
	curves, err := Growth(*growth)
	if err != nil {
		return err
	}
	drawn = append(drawn, curves)
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	for _, p := range drawn {
		path := filepath.Join(*folder, p.Name)
		if err := os.WriteFile(path, p.SVG, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, path)
	}
	return nil
}

// File draws the results in a file; if from several servers, the first server's. The same results give the same bytes.
func File(path string) ([]Picture, error) {
	results, err := report.ReadFile(path)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]report.Result)
	for _, r := range results {
		if _, ok := byName[r.Name]; !ok {
			byName[r.Name] = r
		}
	}
	var pictures []Picture
	for _, p := range []struct {
		file string
		draw func(figures) ([]byte, error)
	}{
		{"burn-down.svg", burnDown},
		{"latency-under-load.svg", latencyUnderLoad},
		{"old-snapshot.svg", oldSnapshot},
	} {
		svg, err := p.draw(byName)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		pictures = append(pictures, Picture{p.file, svg})
	}
	return pictures, nil
}

// figures are results by name.
type figures map[string]report.Result

// of returns the results with the given names. All must exist.
func (f figures) of(names ...string) ([]report.Result, error) {
	var found []report.Result
	for _, name := range names {
		r, ok := f[name]
		if !ok {
			return nil, fmt.Errorf("there is no result %q", name)
		}
		found = append(found, r)
	}
	return found, nil
}

func burnDown(f figures) ([]byte, error) {
	found, err := f.of("burn-down")
	if err != nil {
		return nil, err
	}
	if hasSeries(found[0]) {
		return lines(chart{
			title: "Burn-down: executions done over time (the steeper the better)",
			x:     "seconds since the workers began", y: "executions done", of: found[0],
		})
	}
	return bars(chart{title: "Burn-down (higher is better)", y: "executions a second"}, []group{{"worker, River as its own benchmark sets it, raw SQL", found[0]}})
}

func latencyUnderLoad(f figures) ([]byte, error) {
	const load = "steady at 5000/s, commit to start, "
	found, err := f.of(load+"p50", load+"p99")
	if err != nil {
		return nil, err
	}
	return bars(chart{title: "From commit to start, at 5,000 executions a second (lower is better)", y: "milliseconds"}, []group{
		{"median", found[0]}, {"99th percentile", found[1]},
	})
}

func oldSnapshot(f figures) ([]byte, error) {
	const under = "under an old snapshot, "
	found, err := f.of(under+"at the start", under+"mean", under+"lowest window")
	if err != nil {
		return nil, err
	}
	const title = "Work while an old snapshot is held (higher is better)"
	if hasSeries(found[1]) {
		return lines(chart{title: title, x: "seconds since the snapshot was taken", y: "executions a second", of: found[1]})
	}
	return bars(chart{title: title, y: "executions a second"}, []group{
		{"at the start", found[0]}, {"mean", found[1]}, {"lowest window", found[2]},
	})
}

// Command bench measures this library beside River and beside hand-written SQL, on one server, in one run.
//
//	go run . -quick        the figures that matter most, in less than five minutes
//	go run . -all          every scenario except those that must be named with -only
//	go run . -only a,e     these scenarios
//	go run . -quick -postgres 15,18   the same, on an embedded server of each major version
//	go run . retention -h  the cost of deleting finished work
//	go run . flows -h      the waits of calls while many flows grow, are cancelled and complete
//	go run . pictures      draws results.json into docs/internals/pictures, without a server
//
// It uses the server of -database-url or DATABASE_URL, with a role that may create databases, or starts one. It prints a
// table and writes results.json, or quick.json for a quick run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/flowload"
	"github.com/flowfabric/flowfabric-go/bench/internal/picture"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
	"github.com/flowfabric/flowfabric-go/bench/internal/retention"
	"github.com/flowfabric/flowfabric-go/bench/internal/scenario"
	"github.com/flowfabric/flowfabric-go/bench/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options holds the parsed command line.
type options struct {
	databaseURL string
	majors      []int // embedded servers to run on, one after the other; [0] for one server, at databaseURL
	results     string
	command     string // repeats the run, without the server's URL
	scenarios   []scenario.Scenario
	bench       scenario.Bench
}

const (
	quickN    = 30_000
	quickSpan = 5 * time.Second
)

func parse(args []string, usage io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(usage)
	all := flags.Bool("all", false, "run every scenario except those that have to be asked for by -only")
	only := flags.String("only", "", "run these `scenarios`, as a,e")
	flags.BoolVar(&o.bench.Quick, "quick", false, "run scenarios a, c, d and e, the first comparisons of each, smaller unless -n and -span say otherwise")
	flags.IntVar(&o.bench.N, "n", 100_000, "`executions` in a burn-down; the other sizes follow")
	flags.IntVar(&o.bench.Rounds, "rounds", 3, "`rounds` of each comparison; the median counts")
	flags.DurationVar(&o.bench.Span, "span", 20*time.Second, "length of measurements that last for a time")
	flags.DurationVar(&o.bench.Hold, "hold", 5*time.Minute, "how long scenario f keeps a snapshot")
	flags.DurationVar(&o.bench.Stall, "stall", time.Minute, "how long a reader of scenario t reads nothing")
	flags.StringVar(&o.databaseURL, "database-url", "", "server to run on, by a role that may create databases (default: DATABASE_URL, else one that is started)")
	majors := flags.String("postgres", "", "run on an embedded server of each of these major `versions`, as 15,18, instead of one server")
	flags.StringVar(&o.results, "o", "results.json", "`file` for the results; of a quick run quick.json")
	flags.Usage = func() {
		fmt.Fprintln(usage, "bench measures this library beside River and hand-written SQL.\n\nScenarios:")
		for _, s := range scenario.All() {
			fmt.Fprintf(usage, "  %-8s %s%s\n", s.Key, s.Title, map[bool]string{true: " (only when asked for)"}[s.Asked])
		}
		fmt.Fprintln(usage, "\nFlags:")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = "go run ."
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		if f.Name != "database-url" {
			o.command += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	if o.bench.Quick {
		// Sizes with which a quick run ends within five minutes on two cores. Measurements that last for a time get little of it.
		if !given["n"] {
			o.bench.N = quickN
		}
		if !given["span"] {
			o.bench.Span = quickSpan
		}
		if !given["o"] {
			o.results = "quick.json" // keep the figures of the documentation
		}
	}
	if o.bench.N < 200 || o.bench.Rounds < 1 || o.bench.Span < 100*time.Millisecond || o.bench.Hold < time.Second || o.bench.Stall < 100*time.Millisecond {
		return o, errors.New("-n must be at least 200, -rounds 1, -span 100ms, -hold 1s and -stall 100ms")
	}
	if o.majors, err = parseMajors(*majors); err != nil {
		return o, err
	}
	if *majors != "" && o.databaseURL != "" {
		return o, errors.New("-postgres starts servers, and -database-url names one: say either")
	}
	keys := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, s := range scenario.All() {
		at := slices.Index(keys, s.Key)
		switch {
		case at >= 0:
			keys = slices.Delete(keys, at, at+1)
		case *only != "" || !(*all && !s.Asked || o.bench.Quick && s.Quick):
			continue
		}
		o.scenarios = append(o.scenarios, s)
	}
	switch {
	case len(keys) > 0:
		return o, fmt.Errorf("no scenario %q", keys[0])
	case len(o.scenarios) == 0 || flags.NArg() > 0:
		flags.Usage()
		return o, errors.New("say -quick, -all or -only")
	}
	return o, nil
}

// parseMajors parses a list of major versions.
func parseMajors(list string) ([]int, error) {
	if list == "" {
		return []int{0}, nil
	}
	var majors []int
	for item := range strings.SplitSeq(list, ",") {
		major, err := strconv.Atoi(item)
		if err != nil || major < 14 || major > 18 || slices.Contains(majors, major) {
			return nil, fmt.Errorf("-postgres is %q: want different major versions from 14 to 18, as 15,18", list)
		}
		majors = append(majors, major)
	}
	return majors, nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 && args[0] == "pictures" {
		return picture.Run(args[1:], out)
	}
	if len(args) == 1 && args[0] == contender.ProcessArg {
		log := slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
		return contender.RunProcess(ctx, os.Stdin, out, log)
	}
	if len(args) > 0 {
		measurement := map[string]func(context.Context, []string, io.Writer, func(context.Context, string) (string, func() error, error)) error{
			"retention": retention.Run, "flows": flowload.Run,
		}[args[0]]
		if measurement != nil {
			return measurement(ctx, args[1:], out, func(ctx context.Context, url string) (string, func() error, error) {
				return oneDatabase(ctx, url, args[0], progress)
			})
		}
	}
	o, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	results := &report.Report{Command: o.command}
	for _, major := range o.majors {
		if err = runOn(ctx, o, major, results, progress); err != nil {
			break
		}
	}
	if results.Empty() && err != nil {
		return err
	}
	// Print the results measured before a failure too.
	results.Print(out)
	return errors.Join(err, results.WriteFile(o.results))
}

// runOn runs the scenarios on one server.
func runOn(ctx context.Context, o options, major int, results *report.Report, progress io.Writer) (err error) {
	srv, err := server.Start(ctx, o.databaseURL, major, progress)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, srv.Stop(stopping))
	}()
	if results.Facts, err = srv.Facts(ctx); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
	field, err := contender.Open(ctx, srv.Create, log)
	if err != nil {
		return err
	}
	defer field.Close()

	b := o.bench
	b.Field, b.Report, b.Create, b.Progress, b.Log = field, results, srv.Create, progress, log
	for _, s := range o.scenarios {
		if err := b.Run(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// oneDatabase creates a named database on the server at url, or on one it starts. It returns the URL and a function
// that removes both.
func oneDatabase(ctx context.Context, url, name string, progress io.Writer) (string, func() error, error) {
	srv, err := server.Start(ctx, url, 0, progress)
	if err != nil {
		return "", nil, err
	}
	stop := func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return srv.Stop(stopping)
	}
	databaseURL, err := srv.Create(ctx, name)
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return databaseURL, stop, nil
}

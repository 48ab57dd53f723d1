package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// The test program also serves as the processes of scenario v.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == contender.ProcessArg {
		if err := contender.RunProcess(context.Background(), os.Stdin, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every scenario runs at a size at which its figures mean nothing: each contender must do the work, and
// [contender.Contender.Check] must find all of it in its database.
func TestScenarios(t *testing.T) {
	const groups = 3 // at once: most scenarios wait most of the time
	for group := range groups {
		t.Run(fmt.Sprintf("group_%d", group), func(t *testing.T) {
			t.Parallel()
			log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			create := func(context.Context, string) (string, error) { return pgtest.EmptyDatabase(t), nil }
			field, err := contender.Open(t.Context(), create, log)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(field.Close)
			for i, s := range All() {
				if i%groups != group || s.Key == "y" { // TestRoundTripsOfALifeAreOneEach runs it
					continue
				}
				t.Run(s.Key, func(t *testing.T) {
					b := &Bench{
						Field:    field,
						Create:   create,
						Log:      log,
						Report:   &report.Report{},
						Progress: t.Output(),
						N:        200,
						Rounds:   1,
						Span:     200 * time.Millisecond,
						Hold:     time.Second,
						Stall:    200 * time.Millisecond,
					}
					if err := b.Run(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					checkResults(t, s, written(t, b.Report))
				})
			}
		})
	}
}

// checkResults checks that a scenario measured everything, in one round.
func checkResults(t *testing.T, s Scenario, results []report.Result) {
	t.Helper()
	for _, result := range results {
		for place, e := range map[string]*report.Entrant{"ours": result.Setup.Ours, "peer": result.Setup.Peer, "floor": result.Setup.Floor} {
			if e != nil && len(e.Samples) != 1 {
				t.Errorf("%s, %s: %d samples of one round", result.Name, place, len(e.Samples))
			}
		}
		if result.Ours == nil || *result.Ours < 0 || result.Setup.Ours == nil {
			t.Errorf("%s: ours is missing: %+v", result.Name, result)
		}
		if result.Setup.Scenario != s.Key || result.Setup.Measured == "" {
			t.Errorf("%s: %+v", result.Name, result.Setup)
		}
	}
}

// written returns the results as read from the file. There is at least one, and names are unique.
func written(t *testing.T, r *report.Report) []report.Result {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.json")
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var results []report.Result
	if err := decoder.Decode(&results); err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("nothing was measured")
	}
	names := make(map[string]bool)
	for _, result := range results {
		if names[result.Name] {
			t.Errorf("two results are named %q", result.Name)
		}
		names[result.Name] = true
	}
	return results
}

func TestRatioAboveOneIsBetter(t *testing.T) {
	for _, test := range []struct {
		name        string
		ours, other *float64
		less        bool
		want        *float64
	}{
		{"more per second", new(30.0), new(20.0), false, new(1.5)},
		{"less time", new(2.0), new(3.0), true, new(1.5)},
		{"no other", new(2.0), nil, false, nil},
		{"too small to be measured", new(0.0), new(1.0), true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ratio(test.ours, test.other, test.less)
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("got %v, want %v", report.Format(got), report.Format(test.want))
			}
		})
	}
}

func TestMedianAndPercentile(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median of three: %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four: %v", got)
	}
	waits := make([]time.Duration, 100)
	for i := range waits {
		waits[len(waits)-1-i] = time.Duration(i+1) * time.Millisecond
	}
	if got := percentile(waits, 0.50); got != 51 {
		t.Errorf("p50: %v", got)
	}
	if got := percentile(waits, 0.99); got != 100 {
		t.Errorf("p99: %v", got)
	}
}

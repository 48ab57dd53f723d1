// Package report keeps what a benchmark measured, as a table for people and as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/flowfabric/flowfabric-go/bench/internal/server"
)

// Result is one measurement: the median over the rounds for each contender that took part.
type Result struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Ours  *float64 `json:"ours"`
	Peer  *float64 `json:"peer"`
	Floor *float64 `json:"floor"`

	// How many times better ours is: above 1 is better, whether more or less of the unit is.
	RatioToPeer  *float64 `json:"ratio_to_peer"`
	RatioToFloor *float64 `json:"ratio_to_floor"`

	Setup Setup `json:"setup"`
}

// Setup says how a result came about.
type Setup struct {
	Scenario string    `json:"scenario"` // letter of the scenario
	Measured string    `json:"measured"`
	Rounds   int       `json:"rounds"`
	Ours     *Entrant  `json:"ours,omitempty"`
	Peer     *Entrant  `json:"peer,omitempty"`
	Floor    *Entrant  `json:"floor,omitempty"`
	At       time.Time `json:"at"`

	server.Facts
	Command string `json:"command"`
}

// Entrant is a contender in one of the three places.
type Entrant struct {
	Name    string    `json:"name"`
	Samples []float64 `json:"samples"` // of each round
}

// Report collects results.
type Report struct {
	Facts   server.Facts
	Command string
	results []Result
}

// Add adds a result, with what is the same for all of a run.
func (r *Report) Add(result Result) {
	result.Setup.Facts, result.Setup.Command = r.Facts, r.Command
	r.results = append(r.results, result)
}

// WriteFile writes the results as a JSON list.
func (r *Report) WriteFile(path string) error {
	data, err := json.MarshalIndent(r.results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Print writes the results as a table.
func (r *Report) Print(w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"", "measurement", "unit", "ours", "peer", "floor", "to peer", "to floor"})
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 5, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 6, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 7, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 8, Align: text.AlignRight, AlignHeader: text.AlignRight},
	})
	last := ""
	for _, result := range r.results {
		if last != "" && last != result.Setup.Scenario {
			t.AppendSeparator()
		}
		last = result.Setup.Scenario
		t.AppendRow(table.Row{
			result.Setup.Scenario, result.Name, result.Unit,
			Format(result.Ours), Format(result.Peer), Format(result.Floor),
			ratio(result.RatioToPeer), ratio(result.RatioToFloor),
		})
	}
	t.Render()
	fmt.Fprintf(w, "%s, %d cores; %s. Ratios above 1: ours is better.\n", r.Facts.CPU, r.Facts.Cores, r.Facts.Postgres)
}

// Format writes a figure with three digits or, from 1,000 on, all of its whole ones; nil as nothing.
func Format(value *float64) string {
	switch {
	case value == nil:
		return ""
	case math.Abs(*value) < 10:
		return fmt.Sprintf("%.2f", *value)
	case math.Abs(*value) < 100:
		return fmt.Sprintf("%.1f", *value)
	}
	return thousands(int64(math.Round(*value)))
}

func ratio(value *float64) string {
	if value == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *value)
}

// thousands writes n with a comma between each three digits.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

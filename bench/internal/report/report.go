// Package report keeps what a benchmark measured, as a table for people and as JSON.
package report

import (
	"encoding/json"
	"math"
	"os"
	"time"

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
	Series  *Series   `json:"series,omitempty"`
}

// Series is how a measurement went on, in the round that gave the median: executions done so far, or the rate of each
// window, at so many seconds from its begin.
type Series struct {
	Seconds []float64 `json:"seconds"`
	Values  []float64 `json:"values"`
}

// Add adds a point, of which a reader needs no more than milliseconds and whole executions.
func (s *Series) Add(at time.Duration, value float64) {
	s.Seconds = append(s.Seconds, float64(at.Milliseconds())/1000)
	s.Values = append(s.Values, math.Round(value))
}

// Report collects results, those of one server after those of another.
type Report struct {
	Facts   server.Facts // of the server that results come from now
	Command string
	results []Result
}

// Add adds a result, with what is the same for all of a run.
func (r *Report) Add(result Result) {
	result.Setup.Facts, result.Setup.Command = r.Facts, r.Command
	r.results = append(r.results, result)
}

// Empty reports whether nothing has been added.
func (r *Report) Empty() bool { return len(r.results) == 0 }

// WriteFile writes the results as a JSON list.
func (r *Report) WriteFile(path string) error {
	data, err := json.MarshalIndent(r.results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// ReadFile reads the results that WriteFile wrote.
func ReadFile(path string) ([]Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var results []Result
	return results, json.Unmarshal(data, &results)
}

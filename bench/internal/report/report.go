// Package report keeps the results of a benchmark, as a table for people and as JSON.
package report

import (
	"encoding/json"
	"math"
	"os"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/server"
)

// Result is one measurement, with the median over the rounds for each contender.
type Result struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Ours  *float64 `json:"ours"`
	Peer  *float64 `json:"peer"`
	Floor *float64 `json:"floor"`

	// How many times better ours is. Above 1 is better, for either direction of the unit.
	RatioToPeer  *float64 `json:"ratio_to_peer"`
	RatioToFloor *float64 `json:"ratio_to_floor"`

	Setup Setup `json:"setup"`
}

// Setup describes how a result was measured.
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
	Samples []float64 `json:"samples"` // one per round
	Series  *Series   `json:"series,omitempty"`
}

// Series is the course of a measurement, from the round with the median: executions done so far, or the rate of each
// window, at seconds from the start. A curve of growth has the medians at each size.
type Series struct {
	At     []float64 `json:"at"`
	Values []float64 `json:"values"`
}

// Add adds a point, rounded to milliseconds and whole executions.
func (s *Series) Add(at time.Duration, value float64) {
	s.At = append(s.At, float64(at.Milliseconds())/1000)
	s.Values = append(s.Values, math.Round(value))
}

// Report collects results, server by server.
type Report struct {
	Facts   server.Facts // of the server measured now
	Command string
	results []Result
}

// Add adds a result, with the facts common to the run.
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

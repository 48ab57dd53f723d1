// Command board writes the Grafana board and the alert rules of ffotel from its list of metrics: go generate ./ffotel.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/flowfabric/flowfabric-go/ffotel"
)

func main() {
	folder := "."
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	board, err := Board()
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "grafana", "flowfabric.json"), board, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "alerts", "flowfabric.yaml"), Alerts(), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "board:", err)
		os.Exit(1)
	}
}

// promised is a metric's name in an expression.
var promised = regexp.MustCompile(`\{(flowfabric\.[a-z.]+)\}`)

// expression replaces the metrics' names by their names in Prometheus. It keeps an unknown name, which is no expression of
// Prometheus: the tests of the files refuse it.
func expression(text string) string {
	return promised.ReplaceAllStringFunc(text, func(name string) string {
		for _, m := range ffotel.Metrics() {
			if "{"+m.Name+"}" == name {
				return m.Prometheus()
			}
		}
		return name
	})
}

// labels returns the names that labels have in Prometheus.
func labels(names []string) []string {
	renamed := make([]string, len(names))
	for i, name := range names {
		renamed[i] = strings.ReplaceAll(name, ".", "_")
	}
	return renamed
}

// panel is a panel of the board.
type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	Datasource  map[string]any `json:"datasource"`
	GridPos     map[string]int `json:"gridPos"`
	FieldConfig map[string]any `json:"fieldConfig"`
	Targets     []target       `json:"targets"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

const width, height = 12, 8

// Board returns a Grafana board with a panel for each metric.
func Board() ([]byte, error) {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	var panels []panel
	for i, m := range ffotel.Metrics() {
		unit := "short"
		if m.Unit == "s" {
			unit = "s"
		}
		if m.Unit == "1" {
			unit = "percentunit"
		}
		panels = append(panels, panel{
			ID: i + 1, Type: "timeseries", Title: m.Name, Description: m.Description, Datasource: source,
			GridPos:     map[string]int{"x": i % 2 * width, "y": i / 2 * height, "w": width, "h": height},
			FieldConfig: map[string]any{"defaults": map[string]any{"unit": unit, "min": 0}, "overrides": []any{}},
			Targets:     targets(m),
		})
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": "FlowFabric", "uid": "flowfabric", "schemaVersion": 39, "editable": true, "refresh": "1m", "tags": []string{"flowfabric"},
		"time": map[string]string{"from": "now-6h", "to": "now"},
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
		}},
		"panels": panels,
	}, "", "  ")
	return append(text, '\n'), err
}

// targets returns the queries of a metric's panel.
func targets(m ffotel.Metric) []target {
	names := labels(m.Labels)
	by := strings.Join(names, ", ")
	var legend []string
	for _, name := range names {
		legend = append(legend, "{{"+name+"}}")
	}
	series := strings.Join(legend, " ")
	switch m.Instrument {
	case ffotel.Histogram:
		var all []target
		for i, q := range []string{"0.5", "0.95", "0.99"} {
			all = append(all, target{
				RefID: string(rune('A' + i)), LegendFormat: strings.TrimSpace("p" + q[2:] + " " + series),
				Expr: fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket[$__rate_interval])))", q, strings.Join(append([]string{"le"}, names...), ", "), m.Prometheus()),
			})
		}
		return all
	case ffotel.Counter:
		return []target{{"A", fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, m.Prometheus()), series}}
	default: // one process reports the gauges
		return []target{{"A", fmt.Sprintf("max by (%s) (%s)", by, m.Prometheus()), series}}
	}
}

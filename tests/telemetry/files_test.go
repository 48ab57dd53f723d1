package telemetry

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/ffotel"
)

const module = "../../ffotel/"

// series returns the series that the metrics have in Prometheus, with their labels.
func series() map[string][]string {
	all := make(map[string][]string)
	for _, m := range ffotel.Metrics() {
		var labels []string
		for _, label := range m.Labels {
			labels = append(labels, strings.ReplaceAll(label, ".", "_"))
		}
		if m.Instrument != ffotel.Histogram {
			all[m.Prometheus()] = labels
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			all[m.Prometheus()+suffix] = append(labels, "le")
		}
	}
	return all
}

// check parses an expression, and fails unless its series and their labels exist. It marks the series as used.
func check(t *testing.T, where, expr string, known map[string][]string, used map[string]bool) {
	t.Helper()
	parsed, err := metricsql.Parse(strings.ReplaceAll(expr, "$__rate_interval", "5m"))
	if err != nil {
		t.Errorf("%s: %v: %s", where, err, expr)
		return
	}
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		selector, ok := e.(*metricsql.MetricExpr)
		if !ok {
			return
		}
		for _, filters := range selector.LabelFilterss {
			name := filters[0].Value
			if filters[0].Label != "__name__" || !isKnown(known, name) {
				t.Errorf("%s: there is no metric %s", where, name)
			}
			used[name] = true
			for _, filter := range filters[1:] {
				if !strings.Contains(" "+strings.Join(known[name], " ")+" ", " "+filter.Label+" ") {
					t.Errorf("%s: %s has no label %s", where, name, filter.Label)
				}
			}
		}
	})
}

func isKnown(known map[string][]string, name string) bool { _, ok := known[name]; return ok }

func TestBoardHasEachMetric(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(module + "grafana/flowfabric.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			check(t, panel.Title, target.Expr, series(), used)
		}
	}
	for _, m := range ffotel.Metrics() {
		if !used[m.Prometheus()] && !used[m.Prometheus()+"_bucket"] {
			t.Errorf("no panel has %s", m.Name)
		}
	}
}

func TestAlertsParse(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(module + "alerts/flowfabric.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			rules++
			check(t, rule.Alert, rule.Expr, series(), make(map[string]bool))
			if rule.For == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s is incomplete", rule.Alert)
			}
		}
	}
	if rules < 5 {
		t.Errorf("%d rules", rules)
	}
}

// docs/telemetry.md has a row for each span and metric, and no other.
func TestDocumentedSpansAndMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, span := range ffotel.Spans() {
		want = append(want, fmt.Sprintf("| `%s` | %s |", span.Name, span.Description))
	}
	for _, m := range ffotel.Metrics() {
		labels := "none"
		for i, label := range m.Labels {
			if label = "`" + strings.TrimPrefix(label, "flowfabric.") + "`"; i > 0 {
				label = labels + ", " + label
			}
			labels = label
		}
		want = append(want, fmt.Sprintf("| `%s` | %s: %s | `%s` | %s |", m.Name, m.Instrument, m.Description, m.Unit, labels))
	}
	got := regexp.MustCompile("(?m)^\\| `.*$").FindAllString(string(page), -1)
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("row %s\nwant %s", got[i], want[i])
		}
	}
}

package telemetry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// exporter is a meter provider whose metrics are read as Prometheus reads them.
type exporter struct {
	*metric.MeterProvider
	handler http.Handler
}

func newExporter(t *testing.T) *exporter {
	t.Helper()
	registry := client.NewRegistry()
	reader, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo(), prometheus.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	return &exporter{metric.NewMeterProvider(metric.WithReader(reader)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
}

// scrape returns the metrics by name.
func (e *exporter) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	response := httptest.NewRecorder()
	e.handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text, err := io.ReadAll(response.Result().Body)
	if err != nil || response.Code != http.StatusOK {
		t.Fatalf("%d: %v\n%s", response.Code, err, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return families
}

// value returns the value of a series, and whether there is one. Labels are name=value, in any order.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
	for _, m := range families[name].GetMetric() {
		var has []string
		for _, label := range m.GetLabel() {
			has = append(has, strings.TrimPrefix(label.GetName(), "flowfabric_")+"="+label.GetValue())
		}
		slices.Sort(has)
		slices.Sort(labels)
		if !slices.Equal(has, labels) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.GetCounter().GetValue(), true
		case m.Histogram != nil:
			return float64(m.GetHistogram().GetSampleCount()), true
		default:
			return m.GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// want fails unless the series has the value. The value of a histogram is its count.
func want(t *testing.T, families map[string]*dto.MetricFamily, expected float64, name string, labels ...string) {
	t.Helper()
	if got, ok := value(families, name, labels...); !ok || got != expected {
		t.Errorf("%s%q is %v (%v), want %v: %v", name, labels, got, ok, expected, families[name])
	}
}

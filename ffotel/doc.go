// Package ffotel reports the work of an engine and its workers to OpenTelemetry: traces, metrics, and log records with ids.
//
//	engineConfig, workerConfig := engine.Config{}, worker.Config{}
//	if err := ffotel.Instrument(&engineConfig, &workerConfig, ffotel.Options{}); err != nil {
//		log.Fatal(err)
//	}
//
// The package requires OpenTelemetry's API alone. The program chooses the SDK and the exporters: docs/telemetry.md shows both
// OTLP and Prometheus, and lists all spans and metrics. grafana/ has a board, and alerts/ rules for Prometheus.
//
// Payloads, results and signals' contents are never reported. Labels of metrics come from the program's declarations: lanes,
// kinds and limits.
//
//go:generate go run ./internal/board
package ffotel

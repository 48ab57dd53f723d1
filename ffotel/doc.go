// Package ffotel reports the work of an engine and its workers to OpenTelemetry: traces, metrics, and log records with ids.
//
// Payloads, results and signals' contents are never reported. Labels of metrics come from the program's declarations: lanes,
// kinds and limits.
//
//go:generate go run ./internal/board
package ffotel

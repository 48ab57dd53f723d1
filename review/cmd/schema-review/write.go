package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// splitAlso returns the parts of a value of --also.
func splitAlso(value string) (format, file string, err error) {
	format, file, _ = strings.Cut(value, "=")
	if formats[format] == nil || file == "" {
		return "", "", usageError{fmt.Sprintf("--also is %q: use FORMAT=FILE with one of the formats md, json and sarif", value)}
	}
	return format, file, nil
}

// writeReports writes the report to standard output and to the files of --also.
func writeReports(stdout io.Writer, r *report.Report, o options) error {
	for _, also := range o.also {
		format, file, err := splitAlso(also)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := formats[format](&text, r, o.failOn); err != nil {
			return err
		}
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return formats[o.format](stdout, r, o.failOn)
}

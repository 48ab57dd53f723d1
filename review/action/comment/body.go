package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// longest is the largest number of characters GitHub takes as a comment.
const longest = 65_536

// fit returns the report as a comment that begins with the marker. Lines that are too many are cut, and the comment says
// so.
func fit(marker, report, name, runURL string) string {
	if first, rest, _ := strings.Cut(report, "\n"); strings.HasPrefix(first, "<!--") {
		report = rest // the marker of a report without a name
	}
	body := marker + "\n" + report
	if utf8.RuneCountInString(body) <= longest {
		return body
	}
	// It comes first: at the end, it may be inside of a folded part.
	head := fmt.Sprintf("%s\n> The report is too long for a comment, so its end is cut off. All of it is the artifact `%s` of [the run](%s).\n\n", marker, name, runURL)
	left := longest - utf8.RuneCountInString(head)
	var kept strings.Builder
	for line := range strings.Lines(report) {
		if left -= utf8.RuneCountInString(line); left < 0 {
			break
		}
		kept.WriteString(line)
	}
	return head + kept.String()
}

// failed returns the comment of a review that did not end. It takes the place of an earlier verdict, which is outdated.
func failed(marker, runURL string) string {
	return fmt.Sprintf("%s\nThe schema review failed: its message is in the log of [the run](%s).\n", marker, runURL)
}

// escape returns a message of a workflow command, which is one line.
func escape(message string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(message)
}

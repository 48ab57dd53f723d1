package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cut is the longest reason shown in a sentence, in bytes.
const cut = 300

// because returns a reason after a colon, or nothing.
func because(reason string) string {
	reason = strings.TrimRight(strings.Join(strings.Fields(reason), " "), ".")
	if reason == "" {
		return ""
	}
	if len(reason) > cut {
		reason = strings.ToValidUTF8(reason[:cut], "") + "…"
	}
	return ": " + reason
}

// span returns a duration in one unit: "80 ms", "12 s", "59 min", "24 h", "3 days".
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second)/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute)/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour)/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d.Round(24*time.Hour)/(24*time.Hour)))
}

// count returns "1 execution" or "2 executions"; a count above the bound is "1,000+ executions".
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case n > bound:
		return "1,000+ " + noun + "s"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// are returns the verb for a number of nouns.
func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// bound is the largest count of the statements.
const bound = 1000

// nearest returns the most similar name, at most two letters away, or "".
func nearest(name string, names []string) string {
	best, fewest := "", 3
	for _, candidate := range names {
		if n := distance(name, candidate); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// distance is the number of insertions, deletions, changes and swaps of neighbours between a and b.
func distance(a, b string) int {
	previous, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], previous[j-2]+1)
			}
		}
		previous, last = last, row
	}
	return last[len(b)]
}

// quoted returns a name for a shell, in quotes if it has special characters.
func quoted(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:{}", r)
	}) || name == "" || strings.ContainsAny(name, "{}") {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
}

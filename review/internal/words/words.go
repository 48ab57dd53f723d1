// Package words writes numbers and long lists as the report shows them.
package words

import "fmt"

// Thousands writes a number with a comma before each group of three digits.
func Thousands(n int64) string {
	text := fmt.Sprint(max(n, -n))
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if n < 0 {
		return "-" + text
	}
	return text
}

// Cut returns the first entries of a list, and how many are left out: never a single one.
func Cut[T any](list []T, most int) (shown []T, rest int) {
	if len(list) <= most+1 {
		return list, 0
	}
	return list[:most:most], len(list) - most
}

// More says how many entries of a list are left out: "1,200 more".
func More(rest int) string { return Thousands(int64(rest)) + " more" }

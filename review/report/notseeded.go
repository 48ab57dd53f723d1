package report

import (
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/words"
)

// mostNotSeeded is how many tables without rows the head of the Markdown form names.
const mostNotSeeded = 20

// notSeeded lists the tables without rows, with the reasons.
func (p *page) notSeeded(tables []string) {
	if len(tables) == 0 {
		return
	}
	fmt.Fprintf(&p.text, "- **Without rows:** %s could not be filled, so effects on them are not seen.\n", count(len(tables), "table", "tables"))
	shown, rest := words.Cut(tables, mostNotSeeded)
	for _, line := range shown {
		name, reason, _ := strings.Cut(line, ": ")
		fmt.Fprintf(&p.text, "  - %s: %s\n", Code(name), prose(brief(reason)))
	}
	if rest > 0 {
		fmt.Fprintf(&p.text, "  - and %s\n", words.More(rest))
	}
}

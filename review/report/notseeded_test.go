package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Tables without rows are at the top of the report, before all findings.
func TestTablesWithoutRowsAreAtTheTop(t *testing.T) {
	r := &Report{NotSeeded: []string{"v: no value of type aclitem is known", "w: it refers to v, which is empty"}, Findings: []Finding{{Title: "x", Severity: Advice}}}
	var b strings.Builder
	if err := WriteMarkdown(&b, r, Blocking); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(b.String(), "### What to do")
	for _, want := range []string{"2 tables could not be filled", "`v`: no value of type aclitem is known", "`w`: it refers to v"} {
		if !strings.Contains(head, want) {
			t.Errorf("%q is not in %q", want, head)
		}
	}
	for i := range 30 {
		r.NotSeeded = append(r.NotSeeded, fmt.Sprintf("t%d: why", i))
	}
	b.Reset()
	if err := WriteMarkdown(&b, r, Blocking); err != nil || !strings.Contains(b.String(), "and 12 more") {
		t.Errorf("%v, %s", err, b.String())
	}
	document, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(document), `"not_seeded":["v: no value`) {
		t.Errorf("%v, %s", err, document)
	}
}

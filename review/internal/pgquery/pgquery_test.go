package pgquery

import (
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Several goroutines share the parser, and a change to a result does not reach the next caller.
func TestResultsAreTheCallersOwn(t *testing.T) {
	const text = "SELECT a FROM b WHERE c = $1"
	want, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want = proto.CloneOf(want)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			tree, err := Parse(text)
			if err != nil || !proto.Equal(tree, want) {
				t.Errorf("got %v, %v", tree, err)
				return
			}
			tree.Stmts = nil
		})
	}
	all.Wait()
	if tree, err := Parse(text); err != nil || !proto.Equal(tree, want) {
		t.Errorf("got %v, %v", tree, err)
	}
}

// The parser's refusal is remembered too.
func TestRefusalIsRemembered(t *testing.T) {
	for range 2 {
		if _, err := Parse("SELEC 1"); err == nil || err.Error() != `syntax error at or near "SELEC"` {
			t.Errorf("got %v", err)
		}
	}
}

// A memory forgets everything when it is full, and keeps answering.
func TestMemoryIsBounded(t *testing.T) {
	var m memory
	large := func(string) ([]byte, error) { return make([]byte, mostRemembered/2), nil }
	for _, text := range []string{"a", "b", "c"} {
		if encoded, err := m.of(text, large); err != nil || len(encoded) != mostRemembered/2 {
			t.Fatalf("got %d bytes, %v", len(encoded), err)
		}
		if m.size > mostRemembered {
			t.Errorf("it has %d bytes", m.size)
		}
	}
}

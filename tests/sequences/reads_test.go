package sequences

import (
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every sequence is listed once, whether the reads are full or not.
func TestSequencesAreListedOnce(t *testing.T) {
	f := fixture.NewCloned(t)
	listed := 0
	for _, n := range []int{99, 100, 101, 1100, 1101} {
		f.Exec(t, `INSERT INTO ffx_sequence (partition_key, sequence_id, namespace, key, last_place)
			SELECT i % 256, md5(i::text)::uuid, 'default', 'key ' || i, 0 FROM generate_series($1::integer, $2::integer) AS i`, listed+1, n)
		listed = n
		seen := make(map[string]bool)
		for s, err := range f.Sequences(t.Context(), engine.SequenceFilter{}) {
			if err != nil || seen[s.Key] {
				t.Fatal(fmt.Sprint(s.Key, " twice, or an error: "), err)
			}
			seen[s.Key] = true
		}
		if len(seen) != n {
			t.Errorf("%d sequences are listed, want %d", len(seen), n)
		}
	}
}

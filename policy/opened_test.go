package policy

import (
	"testing"

	"pgregory.net/rapid"
)

// OpenedBy is the least m for which the group of n+m upstreams is undecided.
func TestOpenedBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom([]Group{AllOf(), AnyOf(LetRun), Quorum(1, LetRun), Quorum(3, LetRun), Quorum(7, LetRun)}).Draw(t, "group")
		success := rapid.Int64Range(0, 6).Draw(t, "success")
		fail := rapid.Int64Range(0, 6).Draw(t, "fail")
		skip := rapid.Int64Range(0, 6).Draw(t, "skip")
		n := success + fail + skip + rapid.Int64Range(0, 3).Draw(t, "running")
		want := int64(0)
		if g.Evaluate(n, success, fail, skip) != Undecided {
			for m := int64(1); m <= 30; m++ {
				if g.Evaluate(n+m, success, fail, skip) == Undecided {
					want = m
					break
				}
			}
		}
		if got := g.OpenedBy(n, success, fail, skip); got != want {
			t.Fatalf("OpenedBy(%d, %d, %d, %d) = %d, want %d", n, success, fail, skip, got, want)
		}
	})
}

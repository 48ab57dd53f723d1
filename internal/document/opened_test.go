package document

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/policy"
)

// OpenedBy is the least m for which the group of n+m upstreams is undecided.
func TestOpenedBy(t *testing.T) {
	for _, g := range []Group{needAll(), needFailure(), needEnd(), needAny(policy.LetRun), needSome(1, policy.LetRun), needSome(3, policy.LetRun), needSome(7, policy.LetRun)} {
		for i := range int64(7 * 7 * 7 * 4) {
			success, fail, skip, running := i%7, i/7%7, i/49%7, i/343
			n := success + fail + skip + running
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
				t.Fatalf("%v: OpenedBy(%d, %d, %d, %d) = %d, want %d", g, n, success, fail, skip, got, want)
			}
		}
	}
}

package condition

import "testing"

func TestInWords(t *testing.T) {
	approved, rejected := single("approved", "approved"), single("rejected", "rejected")
	either := Node{Kind: AnyOf, Members: []Node{approved, rejected}}
	for _, c := range []struct {
		node Node
		want string
	}{
		{Node{}, "nothing"},
		{Node{Kind: OperatorOnly}, "an operator"},
		{Node{Kind: TimeoutOnly}, "the timeout"},
		{approved, `"approved"`},
		{single("decision", "approved"), `"approved" at "decision"`},
		{single("decision", ""), `any signal at "decision"`},
		{single("a\nb", "a\nb"), `"a\nb"`},
		{Node{Kind: Single, Keys: []string{"paid"}, Name: "paid", Where: "$.amount > 100"}, `"paid" where $.amount > 100`},
		{Node{Kind: Count, N: 2, By: Sources, Keys: []string{"approved"}, Name: "approved"}, `2 of distinct sources "approved"`},
		{Node{Kind: Count, N: 3, By: Signals, Keys: []string{"vote"}, Name: "vote"}, `3 of distinct signals "vote"`},
		{count(2, Waitpoints, "a", "b"), `2 of distinct waitpoints any signal at "a", "b"`},
		{either, `"approved" or "rejected"`},
		{Node{Kind: AllOf, Members: []Node{approved, rejected}}, `"approved" and "rejected"`},
		{Node{Kind: AllOf, Members: []Node{single("x", "x"), either}}, `"x" and ("approved" or "rejected")`},
		{Node{Kind: AllOf, Members: []Node{either}}, `"approved" or "rejected"`},
		{Node{Kind: AnyOf, Members: []Node{single("x", "x"), {Kind: AllOf, Members: []Node{approved}}}}, `"x" or "approved"`},
	} {
		if got := c.node.InWords(); got != c.want {
			t.Errorf("%+v in words: %s, want %s", c.node, got, c.want)
		}
	}
}

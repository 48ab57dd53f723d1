package policy_test

import (
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// A policy for work that calls a flaky service and needs a certain machine.
func Example() {
	backoff := policy.Exponential(time.Second, time.Minute)
	backoff.Jitter = true
	render := policy.Execution{
		Retry:          &policy.Retry{MaxRetries: 5, Backoff: backoff, Categories: []string{"network", "timeout"}},
		AttemptTimeout: 10 * time.Minute,
		Deadline:       24 * time.Hour,
		Capabilities:   id.Capabilities{"gpu"},
	}
	fmt.Println(render.Validate())

	// Work that must not run twice, not even on another worker after the first one died.
	once := policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}, MaxReclaims: policy.NoReclaims}
	fmt.Println(once.Validate())

	// Errors name the field.
	fmt.Println(policy.Execution{MaxReclaims: 5000}.Validate())
	// Output:
	// <nil>
	// <nil>
	// policy: MaxReclaims: 5000, must be NoReclaims, 0 for the default, or at most 1000
}

func ExampleQuorum() {
	two := policy.Quorum(2, policy.LetRun)
	fmt.Printf("%v: %d of 3 must succeed\n", two, two.Needs(3))
	// Output: quorum of 2: 2 of 3 must succeed
}

package observe_test

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/observe"
)

// counter is an observer that counts new executions by kind.
type counter map[string]int

func (c counter) TraceContext(context.Context) string { return "" }

func (c counter) BeginCreation(ctx context.Context) context.Context { return ctx }

func (c counter) Observe(_ context.Context, e observe.Event) {
	if created, ok := e.(observe.Created); ok {
		c[created.Kind] += created.Count
	}
}

func ExampleObserver() {
	created := counter{}
	// eng, err := engine.New(pool, engine.Config{Observer: created})
	created.Observe(context.Background(), observe.Created{Lane: "images", Kind: "resize", Count: 3})
	fmt.Println(created)
	// Output: map[resize:3]
}

package engine

import (
	"fmt"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of steps.
const (
	MaxSteps    = 10_000 // per execution, including waits
	MaxStepName = 256    // bytes
)

// checkStepPlace checks the name and position of a step or wait.
func checkStepPlace(name string, seq int) error {
	switch {
	case name == "":
		return core.Invalid("step", "has no name")
	case seq < 0:
		return core.Invalid("seq", "is negative")
	case seq >= MaxSteps:
		return core.Invalid("seq", fmt.Sprintf("an execution has at most %d steps", MaxSteps))
	}
	return core.CheckText("step", name, MaxStepName)
}

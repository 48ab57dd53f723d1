package engine

import "fmt"

// Limits of steps.
const (
	MaxSteps    = 10_000 // of an execution, with its waits
	MaxStepName = 256    // bytes
)

// checkStepPlace checks the name and the place of a step, or of the step of a wait.
func checkStepPlace(name string, seq int) error {
	switch {
	case name == "":
		return invalid("step", "has no name")
	case seq < 0:
		return invalid("seq", "is negative")
	case seq >= MaxSteps:
		return invalid("seq", fmt.Sprintf("an execution has at most %d steps", MaxSteps))
	}
	return checkText("step", name, MaxStepName)
}

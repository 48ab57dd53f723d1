package engine

import (
	"fmt"
	"maps"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxSequenceKey limits [Sequence.Key], in bytes.
const MaxSequenceKey = core.MaxSequenceKey

// SequenceTag is the tag of an execution with the key of the sequence.
const SequenceTag = "ffx.sequence"

// Sequence is a line in which executions run one at a time, in order of creation. The zero value is none.
//
// A key counts within its namespace, across kinds and lanes. An execution keeps the turn through retries, pauses,
// waits and lost leases until the end. A cancelled execution is passed over.
type Sequence struct {
	Key       string // at most [MaxSequenceKey] bytes
	OnFailure OnFailure
}

// OnFailure decides whether a sequence continues after an execution fails or expires.
type OnFailure string

// The effects of a failure.
const (
	// SequenceStops, the default, blocks later executions until the failed one is replayed and succeeds, or until
	// [operator.ContinueSequence].
	SequenceStops OnFailure = ""

	// SequenceSkips lets the next execution run.
	SequenceSkips OnFailure = "skips"
)

// IsZero reports whether s is the zero value: no sequence.
func (s Sequence) IsZero() bool { return s == Sequence{} }

// tag returns tags with the tag of the sequence.
func (s Sequence) tag(tags map[string]string) map[string]string {
	if s.Key == "" {
		return tags
	}
	tagged := make(map[string]string, len(tags)+1)
	maps.Copy(tagged, tags)
	tagged[SequenceTag] = s.Key
	return tagged
}

// rawSequence is a sequence in the stored document of an execution, for reads and replays.
type rawSequence struct {
	Key   string `json:"key,omitempty"`
	Skips bool   `json:"skips,omitempty"`
}

func (s Sequence) raw() rawSequence {
	return rawSequence{Key: s.Key, Skips: s.OnFailure == SequenceSkips}
}

// onFailure reverses [Sequence.raw].
func (r rawSequence) onFailure() OnFailure { return onFailureOf(r.Skips) }

func onFailureOf(skips bool) OnFailure {
	if skips {
		return SequenceSkips
	}
	return SequenceStops
}

// setSequence checks the sequence of a spec. The execution is created as blocked; [Engine.seatCreated] assigns the
// place.
func (c *creation) setSequence(spec *ExecutionSpec) error {
	s := spec.Sequence
	switch {
	case s.IsZero():
		return nil
	case s.Key == "":
		return core.Invalid("sequence key", "is empty")
	case s.OnFailure != SequenceStops && s.OnFailure != SequenceSkips:
		return core.Invalid("sequence", fmt.Sprintf("OnFailure %q is unknown", s.OnFailure))
	case spec.Flow != nil || c.node != "":
		return core.Invalid("sequence", "of a member of a flow: its edges decide when it runs")
	}
	if err := core.CheckText("sequence key", s.Key, MaxSequenceKey); err != nil {
		return err
	}
	c.sequence, c.held = s, true
	return nil
}

// SequenceName identifies a sequence.
type SequenceName struct {
	Namespace id.Namespace // default: the engine's
	Key       string
}

func (n *SequenceName) check(e *Engine) (s core.SequenceID, err error) {
	if n.Namespace, err = e.c.NamespaceOr(n.Namespace); err != nil {
		return s, err
	}
	return e.c.CheckSequence(n.Namespace, n.Key)
}

func (n *SequenceName) orNotFound(err error) error {
	if core.IsNoRow(err) {
		return &fferr.NotFoundError{Entity: "sequence", ID: n.Key}
	}
	return err
}

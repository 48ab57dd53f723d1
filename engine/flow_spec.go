package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// FlowSpec describes a flow: executions and the dependencies between them.
type FlowSpec struct {
	// ID makes the creation repeatable: if a flow with the ID exists, nothing changes. Default: a new id.
	ID id.FlowID

	// BusinessKey is a key to find the flow by. While the flow is kept, another creation with the key is refused with
	// [fferr.ErrKeyConflict], unless it repeats the first by ID. Signals go to executions: to signal a member by a key,
	// set the BusinessKey of [Node.Spec].
	BusinessKey id.BusinessKey

	Kind      string            // opaque; at most 256 bytes
	Namespace id.Namespace      // of the flow, and default of its nodes; default: the engine's
	Tags      map[string]string // namespaced keys, as "app.tenant"; values as in [ExecutionSpec]
	CreatedAt time.Time         // default: the database's clock

	// Retention is how long the flow is kept, with all members, after the last member has ended: at least
	// [policy.MinRetention], or [policy.KeepForever]. Retention policies of members and lanes don't apply. Default:
	// [Config.Retention].
	Retention time.Duration

	// PruneMembersAfter deletes each member this long after its end: at least [policy.MinRetention]. The keys of pruned
	// members stay reserved: a growth does not create them again, and refuses new edges from or to them. Dependents of
	// pruned members can't be replayed ([fferr.ErrPruned]). Default: members are kept as long as the flow.
	PruneMembersAfter time.Duration

	Nodes []Node // at most [MaxNodes]
	Edges []Edge // at most [MaxEdges]
}

// Node is one execution of a flow.
type Node struct {
	// Key names the node in [FlowSpec.Edges] and in reads. Together with the flow's id it determines the execution id:
	// see [Engine.NodeID]. Required; unique in the flow; at most 1024 bytes.
	Key string

	// Spec is the execution to create, without Flow. Namespace defaults to the flow's.
	Spec ExecutionSpec

	// Execution is an existing execution in no flow, started, ended or not; Spec is empty then. Its id must be in the
	// flow's partition, as made by [id.NewMemberExecutionID]; a new flow without an ID gets one in this partition. In a
	// [Growth] it may also be a member, so that edges can name it.
	Execution id.ExecutionID

	// When is the condition on the ends of the node's upstreams. The zero value is [policy.AllOf]. Ignored without
	// inbound edges.
	When policy.Group
}

// Edge makes the node To wait for the node From.
type Edge struct {
	From, To string

	// ID is the edge's id. Default: a new one, greater than earlier edges' ids.
	ID id.EdgeID

	// Kind is stored, but not interpreted. Default "success_only".
	Kind string

	// PassResult names a reference under which From's result becomes To's payload, if From succeeds before To starts.
	// Empty: only [Engine.UpstreamResults] reads the result.
	PassResult string

	// AllowStarted permits a started execution as To. Its worker keeps it, and the execution waits once the worker
	// calls [Engine.WaitForChildren]. Default: refused with [fferr.ErrStarted].
	AllowStarted bool
}

// Limits of one [FlowSpec]: nodes, edges, and edges into one node.
const (
	MaxNodes   = 10_000
	MaxEdges   = 50_000
	MaxInbound = 10_000
)

// MaxMembers is the largest number of members of a flow, including later ones.
const MaxMembers = 100_000

// defaultEdgeKind is the kind of an edge that names none.
const defaultEdgeKind = "success_only"

var errNegative = errors.New("is negative")

var errNoCount = errors.New("is not a count")

var errNoEdge = errors.New("is not the document of an edge")

// groupOf checks the dependency policy of a node with fanIn inbound edges, and returns its document.
func groupOf(node *Node, fanIn int) (document.Group, error) {
	if fanIn > MaxInbound {
		return document.Group{}, core.Invalid(fmt.Sprintf("node %q", node.Key), fmt.Sprintf("%d edges into it, limit %d", fanIn, MaxInbound))
	}
	field := fmt.Sprintf("node %q: When", node.Key)
	if err := node.When.Validate(); err != nil {
		return document.Group{}, invalidPolicy(field, err)
	}
	if k := node.When.Needs(fanIn); k > fanIn {
		return document.Group{}, core.Invalid(field, fmt.Sprintf("a quorum of %d of %d", k, fanIn))
	}
	return document.GroupOf(node.When), nil
}

// invalidPolicy names the invalid field of a policy, within the field that has the policy.
func invalidPolicy(field string, err error) error {
	if refused, ok := errors.AsType[*policy.FieldError](err); ok {
		return &fferr.InputError{Field: field + "." + refused.Field, Reason: refused.Problem, Cause: err}
	}
	return core.InvalidBecause(field, err)
}

// NodeID returns the execution id of a flow's node without an id of its own. The id depends only on the flow and the
// key, so a repeated creation has the same ids.
func (e *Engine) NodeID(flow id.FlowID, key string) id.ExecutionID {
	const custom = 8 // the version that RFC 9562 reserves for applications
	u := id.ExecutionUUID(uuid.NewHash(sha256.New(), flow.UUID(), []byte(key), custom))
	// A flow's id starts with its time. The same start keeps neighbours together in the index.
	copy(u[:6], flow[:6])
	return id.MemberExecutionIDFor(flow, e.cfg.Partitions, u)
}

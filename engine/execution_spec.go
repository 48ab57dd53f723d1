package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// DefaultLane is the lane of an execution without a lane.
const DefaultLane id.LaneID = "default"

// MaxPriority is the highest priority, claimed first. The lowest priority, and the default, is 0.
const MaxPriority = 9000

// ExecutionSpec describes an execution to create. Only Kind is required.
type ExecutionSpec struct {
	// ID is the execution's id. Default: a new one, on the lane's or the flow's partition.
	ID id.ExecutionID

	// Flow makes the execution a member of an existing flow, without dependencies.
	Flow *id.FlowID

	Namespace id.Namespace // default: the engine's
	Lane      id.LaneID    // default [DefaultLane]

	// Kind selects the worker's handler. Required; at most 255 bytes.
	Kind string

	// Payload is the input, at most [Config.MaxPayload] bytes; nil for none. PayloadEncoding is stored, but not
	// interpreted.
	Payload         []byte
	PayloadEncoding string

	Priority int    // clamped to 0..[MaxPriority]
	Creator  string // informational

	// IdempotencyKey makes repeated creations one: within the policy's dedup window, by default a day, a second creation
	// with the same key is a duplicate, or refused with [fferr.ErrKeyConflict] if the payload differs. At most 1024 bytes,
	// not starting with U+0001. A key belongs to a namespace, lane (for a member: flow) and kind, and to the partition of
	// ID.
	IdempotencyKey id.IdempotencyKey

	// BusinessKey is a key for finding and signalling the execution. As long as the execution is kept, other creations with
	// the key are refused with [fferr.ErrKeyConflict], except repetitions by ID or IdempotencyKey.
	BusinessKey id.BusinessKey

	// Unique makes a creation with the same unique key a duplicate. Default nil: not unique. Refused for members of flows.
	Unique *Unique

	// Tags have non-empty keys of at most 256 bytes and values of at most 64 KiB, or at most 1024 bytes for
	// "cairn.instance_id", a tag of every event. Keys of the engine, with the prefix "ffx.", are refused.
	// [Engine.SetExecutionTag] requires namespaced keys.
	Tags map[string]string

	// Policy has retries, time limits and required capabilities. nil: patient retries for about a day, no time limits,
	// any worker, and up to [policy.ReclaimLimit] lost leases.
	Policy *policy.Execution

	// DelayUntil is the earliest time of the first claim. Default: the policy's.
	DelayUntil time.Time

	// Deadline ends the execution as expired, in any state. Default: the policy's, from creation.
	Deadline time.Time

	// CreatedAt is stored as the creation time and orders the execution in a lane unless fair. Default: the database's
	// clock.
	CreatedAt time.Time

	// Budgets must not be exhausted when the execution becomes claimable: the execution waits while one is. At most
	// [MaxExecutionBudgets]. A missing budget does not limit.
	Budgets []id.BudgetID

	// QuotaPolicy must admit the execution before a claim. A missing quota policy does not limit.
	QuotaPolicy *id.QuotaPolicyID

	// Limits must all have free units before the execution can be claimed: see [LimitKey]. The execution waits for the
	// limits in order, so put the narrowest first. At most [MaxLimits].
	Limits []LimitKey

	// Sequence makes the execution wait for earlier executions with the same key. Refused for members of flows and called
	// executions.
	Sequence Sequence

	// Fair makes the tenants of a lane take turns: see [FairShare]. Default: none, and the older execution is claimed first.
	Fair FairShare

	after   time.Duration // [After]: the delay from the database's time, turned into DelayUntil by delayAll
	mistake error         // a mistake of the spec's maker, which fails the creation

	setsOwnTags  bool   // the engine has set the tags beginning with [ownTags]
	storedPolicy string // the policy as stored by a schedule; "" if Policy is set
}

// NewExecutionID returns a new [ExecutionSpec.ID] for an execution in a lane and outside flows, for use before the
// execution exists. The empty lane is [DefaultLane].
func (e *Engine) NewExecutionID(lane id.LaneID) id.ExecutionID {
	return id.NewExecutionID(cmp.Or(lane, DefaultLane), e.cfg.Partitions)
}

// Limits of texts in bytes.
const (
	maxFlowKind = 256
	// maxInstanceTag is smaller because every event of the execution has the tag, and databases made by FlowFabric index
	// events by the tag; index entries are limited to about 2.7 kB.
	maxInstanceTag = 1 << 10
)

// instanceTag is the tag for readers of events to distinguish the instances of an application.
const instanceTag = "cairn.instance_id"

// creation is a checked spec in the form of a row's columns.
type creation struct {
	id           id.ExecutionID
	minted       bool       // the id was generated, so no other creation has the id
	node         string     // the key in the flow; "" unless a node
	flow         *id.FlowID // nil outside a flow
	held         bool       // waits for dependencies
	namespace    string
	lane         string
	kind         string
	capabilities string
	priority     int32
	createdAtMs  int64
	delayUntilMs int64
	deadlineMs   int64
	deadlineIn   int64
	payload      []byte
	policy       string
	raw          string // the document without the tags
	tags         string // the rest of the document, with the limits and the share, except the closing bracket
	quota        string
	quotaPart    int16
	gates        gates
	limits       []LimitKey // the gates with keys
	undeclared   bool       // the limits have to be declared
	admitted     bool       // occupies places in the limits from the beginning
	refused      bool       // invalid, possibly with invalid fields
	encoding     string
	key          string
	business     id.BusinessKey
	sequence     Sequence
	unique       *uniqueWork    // nil unless unique
	fair         FairShare      // with a weight; zero unless fair
	place        core.FairPlace // zero unless fair and placed
	storedKey    string         // with a scope; "" without a key
	windowMs     int64
	retentionMs  int64 // of the policy; 0 if not set or for ever
}

// prepare checks a spec, fills in defaults and renders its documents.
func (e *Engine) prepare(spec ExecutionSpec) (creation, error) { return e.prepareNode(spec, "") }

// prepareNode is prepare for a node of a flow. The node's key is stored with the execution, for reads and drawings.
func (e *Engine) prepareNode(spec ExecutionSpec, key string) (creation, error) {
	c := creation{node: key, flow: spec.Flow, kind: spec.Kind, payload: spec.Payload, priority: clampPriority(spec.Priority)}
	lane := spec.Lane
	if lane == "" {
		lane = DefaultLane
	}
	if spec.mistake != nil {
		return c, spec.mistake
	}
	if err := lane.Validate(); err != nil {
		return c, core.InvalidBecause("lane", err)
	}
	c.lane = string(lane)
	if err := e.setID(&c, spec, lane); err != nil {
		return c, err
	}
	namespace, err := e.c.NamespaceOr(spec.Namespace)
	if err != nil {
		return c, err
	}
	c.namespace = string(namespace)
	if err := e.checkPayload(spec.Payload); err != nil {
		return c, err
	}
	if err := spec.checkTexts(); err != nil {
		return c, err
	}
	if err := spec.checkOwnTags(); err != nil {
		return c, err
	}
	if c.tags, err = tagsField(spec.Sequence.tag(spec.Tags)); err != nil {
		return c, err
	}
	if len(spec.Limits) > 0 || spec.QuotaPolicy != nil {
		if err := c.setLimits(&spec); err != nil {
			return c, err
		}
		c.tags += limitsField(spec.Limits)
	}
	for _, at := range [...]struct {
		field string
		t     time.Time
		ms    *int64
	}{
		{"delay until", spec.DelayUntil, &c.delayUntilMs}, {"deadline", spec.Deadline, &c.deadlineMs}, {"created at", spec.CreatedAt, &c.createdAtMs},
	} {
		if *at.ms, err = core.Instant(at.field, at.t); err != nil {
			return c, err
		}
	}
	if err := c.setPolicy(spec.Policy); err != nil {
		return c, err
	}
	if spec.storedPolicy != "" {
		if err := c.setStoredPolicy(spec.storedPolicy); err != nil {
			return c, err
		}
	}
	if c.gates.budgets, err = sortedBudgets(spec.Budgets); err != nil {
		return c, err
	}
	if spec.QuotaPolicy != nil {
		if *spec.QuotaPolicy == (id.QuotaPolicyID{}) {
			return c, core.Invalid("QuotaPolicy", "is empty")
		}
		c.quota = spec.QuotaPolicy.String()
		c.quotaPart = e.cfg.Partitions.QuotaPartition(*spec.QuotaPolicy)
	}
	c.encoding = spec.PayloadEncoding
	if err := c.setKey(spec.IdempotencyKey); err != nil {
		return c, err
	}
	if c.business = spec.BusinessKey; !c.business.IsZero() {
		if err := checkBusinessKey(c.business); err != nil {
			return c, err
		}
	}
	if spec.Unique != nil {
		if spec.Flow != nil || key != "" {
			return c, core.Invalid("Unique", "is set for a member of a flow, which can't be unique: leave it out")
		}
		if err := spec.Unique.check(); err != nil {
			return c, err
		}
	}
	if err := c.setSequence(&spec); err != nil {
		return c, err
	}
	if err := c.setFair(spec.Fair); err != nil {
		return c, err
	}
	c.tags += c.fair.field()
	c.raw, err = spec.rawFields(c)
	return c, err
}

func (e *Engine) checkPayload(payload []byte) error {
	if len(payload) > e.cfg.MaxPayload {
		return core.Invalid("payload", fmt.Sprintf("%d bytes, limit %d", len(payload), e.cfg.MaxPayload))
	}
	return nil
}

// clampPriority returns the stored priority for a requested one.
func clampPriority(priority int) int32 { return int32(min(max(priority, 0), MaxPriority)) }

// size returns the approximate number of a creation's bytes in a statement.
func (c creation) size() int { return len(c.payload) + len(c.policy) + len(c.raw) + len(c.tags) }

func (e *Engine) setID(c *creation, spec ExecutionSpec, lane id.LaneID) error {
	c.id = spec.ID
	switch {
	case spec.ID.IsZero() && spec.Flow != nil:
		c.id, c.minted = id.NewMemberExecutionID(*spec.Flow, e.cfg.Partitions), true
	case spec.ID.IsZero():
		c.id, c.minted = id.NewExecutionID(lane, e.cfg.Partitions), true
	}
	if err := e.c.CheckExecution(c.id); err != nil {
		return err
	}
	if spec.Flow != nil && c.id.Partition() != e.cfg.Partitions.FlowPartition(*spec.Flow) {
		return core.Invalid("execution id", "partition_mismatch: a member must be in the partition of its flow")
	}
	return nil
}

func (s ExecutionSpec) checkTexts() error {
	if s.Kind == "" {
		return core.Invalid("kind", "is empty")
	}
	for _, text := range []struct {
		field, value string
		limit        int
	}{
		{"kind", s.Kind, core.MaxKind},
		{"payload encoding", s.PayloadEncoding, core.MaxFreeText},
		{"creator", s.Creator, core.MaxFreeText},
	} {
		if err := core.CheckText(text.field, text.value, text.limit); err != nil {
			return err
		}
	}
	if err := s.IdempotencyKey.Validate(id.MaxCreateKey); err != nil {
		return core.InvalidBecause("idempotency key", err)
	}
	return nil
}

// ownTags is the prefix of tags that only the engine sets.
const ownTags = "ffx."

// checkOwnTags refuses tags with the engine's prefix.
func (s *ExecutionSpec) checkOwnTags() error {
	for key := range s.Tags {
		if strings.HasPrefix(key, ownTags) && !s.setsOwnTags {
			return core.Invalid("tag key", strconv.Quote(key)+" begins with ffx., as only tags of the engine do")
		}
	}
	return nil
}

// tagsField checks tags and renders them as the last field of a document.
func tagsField(tags map[string]string) (string, error) {
	field := append(make([]byte, 0, 64), `,"tags":{`...)
	for key, value := range tags {
		if err := id.CheckCreateTagKey(key); err != nil {
			return "", core.InvalidBecause("tag key", err)
		}
		if err := checkTagValue("tag", key, value); err != nil {
			return "", err
		}
		if field[len(field)-1] != '{' {
			field = append(field, ',')
		}
		field = appendQuoted(field, key)
		field = append(field, ':')
		field = appendQuoted(field, value)
	}
	return string(append(field, '}')), nil
}

// appendQuoted appends a text as a JSON string.
func appendQuoted(document []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // never fails for a string
			return append(document, quoted...)
		}
	}
	document = append(document, '"')
	document = append(document, text...)
	return append(document, '"')
}

// checkTagValue checks the value of a tag or flow tag.
func checkTagValue(what, key, value string) error {
	limit := core.MaxTagValue
	if key == instanceTag {
		limit = maxInstanceTag
	}
	if len(value) <= limit && id.CheckText(what, value) == nil {
		return nil // formatting the name costs more than the check
	}
	return core.CheckText(what+" "+strconv.Quote(key), value, limit)
}

// rawFields renders the start of the document for other programs, before the tags. The statement adds the creation time.
func (s ExecutionSpec) rawFields(c creation) (string, error) {
	document, err := json.Marshal(struct {
		Namespace       string         `json:"namespace"`
		Kind            string         `json:"execution_kind"`
		Creator         string         `json:"creator_identity"`
		IdempotencyKey  string         `json:"idempotency_key,omitempty"`
		PayloadEncoding string         `json:"payload_encoding,omitempty"`
		Budgets         string         `json:"budget_ids,omitempty"`
		Quota           string         `json:"quota_policy_id,omitempty"`
		Attempts        string         `json:"total_attempt_count"`
		Node            string         `json:"ffx_node_key,omitempty"`
		BusinessKey     id.BusinessKey `json:"ffx_business_key,omitzero"`
		Unique          UniqueWhile    `json:"ffx_unique,omitempty"`
		Sequence        rawSequence    `json:"ffx_sequence,omitzero"`
	}{c.namespace, s.Kind, s.Creator, c.key, s.PayloadEncoding, c.gates.budgetTexts(), c.quota, "0", c.node, c.business, s.Unique.lasts(), c.sequence.raw()})
	if err != nil {
		return "", err
	}
	return string(document[:len(document)-1]), nil
}

// uniqueKeysOf returns the column ffx_unique_key of creations, and none if no creation is unique.
func uniqueKeysOf(creations []creation) []pgtype.UUID {
	keys := []pgtype.UUID{}
	for i := range creations {
		if work := creations[i].unique; work != nil {
			if len(keys) == 0 {
				keys = make([]pgtype.UUID, len(creations))
			}
			keys[i] = work.key.pg()
		}
	}
	return keys
}

// insertParams converts creations to the columns of an input table.
func insertParams(creations []creation, flow *id.FlowID, nowMs *int64) db.InsertExecutionsParams {
	n := len(creations)
	p := db.InsertExecutionsParams{
		NowMs:                nowMs,
		FlowID:               core.PgFlow(flow),
		PartitionKeys:        make([]int16, n),
		ExecutionIDs:         make([]pgtype.UUID, n),
		LaneIDs:              make([]string, n),
		RequiredCapabilities: make([]string, n),
		Priorities:           make([]int32, n),
		CreatedAtMs:          make([]int64, n),
		DelaysUntilMs:        make([]int64, n),
		DeadlinesAtMs:        make([]int64, n),
		DeadlinesAfterMs:     make([]int64, n),
		Held:                 make([]bool, n),
		Payloads:             make([][]byte, n),
		Policies:             make([]string, n),
		RawFields:            make([]string, n),
		BudgetIDs:            make([]string, n),
		QuotaPolicyIDs:       make([]string, n),
		QuotaPartitions:      make([]int16, n),
		LimitIDs:             make([]string, n),
		LimitUnits:           make([]string, n),
		UniqueKeys:           uniqueKeysOf(creations),
		PlacesMs:             placesMs(creations),
	}
	for i := range creations {
		c := &creations[i]
		p.PartitionKeys[i] = c.id.Partition()
		p.ExecutionIDs[i] = core.PgUUID(c.id.UUID())
		p.LaneIDs[i] = c.lane
		p.RequiredCapabilities[i] = c.capabilities
		p.Priorities[i] = c.priority
		p.CreatedAtMs[i] = c.createdAtMs
		p.DelaysUntilMs[i] = c.delayUntilMs
		p.DeadlinesAtMs[i] = c.deadlineMs
		p.DeadlinesAfterMs[i] = c.deadlineIn
		p.Held[i] = c.held
		p.Payloads[i] = c.payload
		p.Policies[i] = c.policy
		p.RawFields[i] = c.raw + c.tags + "}"
		p.QuotaPolicyIDs[i] = c.quota
		p.QuotaPartitions[i] = c.quotaPart
		p.BudgetIDs[i], p.LimitIDs[i], p.LimitUnits[i] = c.gates.texts()
	}
	return p
}

// Created is the result of a creation: a new execution or an existing one.
type Created struct {
	ID    id.ExecutionID
	State state.PublicState // waiting, delayed, rate limited, or waiting_children in a sequence; empty for a duplicate

	// Duplicate means that no execution was created, because ID names an existing execution: with the given id, whatever
	// the content, the same idempotency key or the same unique key.
	Duplicate bool

	// Replaced means that the waiting duplicate got the payload and the due time of this creation: [ReplaceWaiting].
	Replaced bool

	// Cancelled is the former holder of the unique key, cancelled by [CancelExisting]; zero for none.
	Cancelled id.ExecutionID
}

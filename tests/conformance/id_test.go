package conformance

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// reason returns the reason of a refusal, "" for none.
func reason(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var refused *id.ParseError
	if !errors.As(err, &refused) {
		t.Fatalf("not a ParseError: %v", err)
	}
	return string(refused.Reason)
}

type hashCase struct {
	InputHex hexBytes `json:"input_hex"`
	CRC      uint16   `json:"crc"`
}

func crc16(t *testing.T, c hashCase) { equal(t, "crc", hash.CRC16(c.InputHex), c.CRC) }

type fnvCase struct {
	Input    string `json:"input"`
	Xor8Hex  string `json:"xor8hex"`
	Mod256   int16  `json:"mod_256"`
	Mod16256 uint16 `json:"mod16_256"`
}

func fnv1a(t *testing.T, c fnvCase) {
	equal(t, "digest", hash.Digest8(c.Input), c.Xor8Hex)
	equal(t, "modulo 256", wire.WorkerPartition(id.WorkerInstanceID(c.Input)), c.Mod256)
	equal(t, "scatter", wire.Scatter(c.Input, 256), c.Mod16256)
}

type fnvModCase struct {
	Input   string `json:"input"`
	Modulus uint16 `json:"modulus"`
	Result  uint16 `json:"result"`
}

func fnv1aMod(t *testing.T, c fnvModCase) {
	equal(t, "scatter", wire.Scatter(c.Input, c.Modulus), c.Result)
}

type flowPartitionCase struct {
	FlowID          id.FlowID         `json:"flow_id"`
	CRC16           uint16            `json:"crc16"`
	Partition       int16             `json:"partition"`
	PartitionOf4    int16             `json:"partition_of_4"`
	PartitionOf1024 int16             `json:"partition_of_1024"`
	HashTag         wire.PartitionKey `json:"hash_tag"`
}

func flowPartition(t *testing.T, c flowPartitionCase) {
	equal(t, "crc", hash.CRC16(c.FlowID[:]), c.CRC16)
	equal(t, "partition", id.Partitions{}.FlowPartition(c.FlowID), c.Partition)
	equal(t, "partition of 4", id.Partitions{Flow: 4}.FlowPartition(c.FlowID), c.PartitionOf4)
	equal(t, "partition of 1024", id.Partitions{Flow: 1024}.FlowPartition(c.FlowID), c.PartitionOf1024)
	equal(t, "tag", wire.PartitionKey{Family: wire.FamilyFlow, Index: uint16(c.Partition)}, c.HashTag)
}

type budgetPartitionCase struct {
	BudgetID       id.BudgetID       `json:"budget_id"`
	Partition      int16             `json:"partition"`
	PartitionOf256 int16             `json:"partition_of_256"`
	HashTag        wire.PartitionKey `json:"hash_tag"`
	Stored         string            `json:"stored_budget_id"`
}

func budgetPartition(t *testing.T, c budgetPartitionCase) {
	equal(t, "partition", id.Partitions{}.BudgetPartition(c.BudgetID), c.Partition)
	equal(t, "partition of 256", id.Partitions{Budget: 256}.BudgetPartition(c.BudgetID), c.PartitionOf256)
	equal(t, "tag", wire.PartitionKey{Family: wire.FamilyBudget, Index: uint16(c.Partition)}, c.HashTag)
	equal(t, "stored", c.BudgetID.String(), c.Stored)
}

type quotaPartitionCase struct {
	QuotaPolicyID  id.QuotaPolicyID  `json:"quota_policy_id"`
	Partition      int16             `json:"partition"`
	PartitionOf256 int16             `json:"partition_of_256"`
	HashTag        wire.PartitionKey `json:"hash_tag"`
	Stored         string            `json:"stored_quota_policy_id"`
}

func quotaPartition(t *testing.T, c quotaPartitionCase) {
	equal(t, "partition", id.Partitions{}.QuotaPartition(c.QuotaPolicyID), c.Partition)
	equal(t, "partition of 256", id.Partitions{Quota: 256}.QuotaPartition(c.QuotaPolicyID), c.PartitionOf256)
	equal(t, "tag", wire.PartitionKey{Family: wire.FamilyQuota, Index: uint16(c.Partition)}, c.HashTag)
	equal(t, "stored", c.QuotaPolicyID.String(), c.Stored)
}

type soloPartitionCase struct {
	Lane         string            `json:"lane_id"`
	CRC16        uint16            `json:"crc16"`
	Partition    int16             `json:"partition"`
	PartitionOf4 int16             `json:"partition_of_4"`
	HashTag      wire.PartitionKey `json:"hash_tag"`
}

func soloPartition(t *testing.T, c soloPartitionCase) {
	equal(t, "crc", hash.CRC16([]byte(c.Lane)), c.CRC16)
	equal(t, "partition", id.Partitions{}.LanePartition(id.LaneID(c.Lane)), c.Partition)
	equal(t, "partition of 4", id.Partitions{Flow: 4}.LanePartition(id.LaneID(c.Lane)), c.PartitionOf4)
	equal(t, "tag", wire.PartitionKey{Family: wire.FamilyFlow, Index: uint16(c.Partition)}, c.HashTag)
}

type workerPartitionCase struct {
	Instance  id.WorkerInstanceID `json:"worker_instance_id"`
	Partition int16               `json:"partition"`
}

func workerPartition(t *testing.T, c workerPartitionCase) {
	equal(t, "partition", wire.WorkerPartition(c.Instance), c.Partition)
}

// families: executions share the flow family.
func families() map[string]wire.Family {
	return map[string]wire.Family{
		"flow": wire.FamilyFlow, "execution": wire.FamilyFlow, "budget": wire.FamilyBudget, "quota": wire.FamilyQuota,
	}
}

type hashTagCase struct {
	Family  string `json:"family"`
	Index   uint16 `json:"index"`
	HashTag string `json:"hash_tag"`
}

func partitionHashTag(t *testing.T, c hashTagCase) {
	family, ok := families()[c.Family]
	if !ok {
		t.Fatalf("unknown family %q", c.Family)
	}
	equal(t, "tag", wire.PartitionKey{Family: family, Index: c.Index}.String(), c.HashTag)
}

type partitionKeyCase struct {
	Input    string `json:"input"`
	Required struct {
		Error  string `json:"error"`
		Family string `json:"family"`
		Index  uint16 `json:"index"`
	} `json:"required"`
}

func partitionKeyParse(t *testing.T, c partitionKeyCase) {
	key, err := wire.ParsePartitionKey(c.Input)
	equal(t, "error", reason(t, err), c.Required.Error)
	equal(t, "key", key, wire.PartitionKey{Family: families()[c.Required.Family], Index: c.Required.Index})
}

type uuidCase struct {
	Input     string `json:"input"`
	OK        bool   `json:"ok"`
	Canonical string `json:"canonical"`
}

func uuidParse(t *testing.T, c uuidCase) {
	parsed, err := id.ParseFlowID(c.Input)
	equal(t, "ok", err == nil, c.OK)
	if err == nil {
		equal(t, "canonical", parsed.String(), c.Canonical)
	}
}

type executionIDCase struct {
	Input    string `json:"input"`
	Required struct {
		Error     string `json:"error"`
		Partition uint16 `json:"partition"`
		UUID      string `json:"uuid"`
		Canonical string `json:"canonical"`
	} `json:"required"`
}

func executionIDParse(t *testing.T, c executionIDCase) {
	parsed, err := id.ParseExecutionID(c.Input)
	equal(t, "error", reason(t, err), c.Required.Error)
	if err != nil {
		return
	}
	equal(t, "canonical", parsed.String(), c.Required.Canonical)
	equal(t, "uuid", parsed.UUID().String(), c.Required.UUID)
	partition := int16(-1)
	if c.Required.Partition <= math.MaxInt16 {
		partition = int16(c.Required.Partition)
	}
	equal(t, "partition", parsed.Partition(), partition)
}

type mintCase struct {
	Kind        string           `json:"kind"`
	FlowID      id.FlowID        `json:"flow_id"`
	LaneID      id.LaneID        `json:"lane_id"`
	UUID        id.ExecutionUUID `json:"uuid"`
	Partitions  uint16           `json:"num_flow_partitions"`
	ExecutionID string           `json:"execution_id"`
}

func executionIDMint(t *testing.T, c mintCase) {
	p := id.Partitions{Flow: c.Partitions}
	switch c.Kind {
	case "flow":
		equal(t, "id", id.MemberExecutionIDFor(c.FlowID, p, c.UUID).String(), c.ExecutionID)
		equal(t, "partition", id.NewMemberExecutionID(c.FlowID, p).Partition(), p.FlowPartition(c.FlowID))
	case "solo":
		equal(t, "id", id.ExecutionIDFor(c.LaneID, p, c.UUID).String(), c.ExecutionID)
		equal(t, "partition", id.NewExecutionID(c.LaneID, p).Partition(), p.LanePartition(c.LaneID))
	default:
		t.Fatalf("unknown kind %q", c.Kind)
	}
}

type laneCase struct {
	Input  string  `json:"input"`
	Error  string  `json:"error"`
	Detail *number `json:"detail"`
}

func laneID(t *testing.T, c laneCase) {
	err := id.LaneID(c.Input).Validate()
	equal(t, "error", reason(t, err), c.Error)
	if c.Detail != nil {
		equal(t, "detail", err.(*id.ParseError).Detail, string(*c.Detail))
	}
}

type tagKeyCase struct {
	Key   string `json:"key"`
	OK    bool   `json:"ok"`
	IsTag bool   `json:"is_tag"`
}

func tagKey(t *testing.T, c tagKeyCase) { equal(t, "ok", id.CheckTagKey(c.Key) == nil, c.OK) }

func tagKeyPrefix(t *testing.T, c tagKeyCase) { equal(t, "is tag", id.IsFlowTag(c.Key), c.IsTag) }

type eventCursorCase struct {
	Hex        hexBytes `json:"hex"`
	Empty      bool     `json:"empty"`
	EventID    number   `json:"event_id"`
	RequiredOK bool     `json:"required_ok"`
}

func eventCursor(t *testing.T, c eventCursorCase) {
	eventID, given, err := wire.EventCursor(c.Hex).EventID()
	equal(t, "ok", err == nil, c.RequiredOK)
	if err != nil {
		return
	}
	equal(t, "empty", !given, c.Empty)
	if given {
		equal(t, "event id", eventID, c.EventID.int64(t))
		equal(t, "cursor", wire.NewEventCursor(eventID), wire.EventCursor(c.Hex))
	}
}

type frameCursorCase struct {
	Input    string `json:"input"`
	Error    string `json:"error"`
	Kind     string `json:"kind"`
	Position *struct {
		TsMs number `json:"ts_ms"`
		Seq  int32  `json:"seq"`
	} `json:"position"`
	QueryError *string `json:"query_error"`
}

func frameCursor(t *testing.T, c frameCursorCase) {
	cursor, err := wire.ParseFrameCursor(c.Input)
	equal(t, "error", reason(t, err), c.Error)
	if err != nil {
		return
	}
	kind := map[wire.FrameCursor]string{wire.FrameStart: "start", wire.FrameEnd: "end"}[cursor]
	if kind == "" {
		kind = "at"
	}
	equal(t, "kind", kind, c.Kind)
	if kind != "at" {
		return
	}
	position, err := cursor.Lower()
	equal(t, "query error", err != nil, c.QueryError != nil)
	if c.Position != nil {
		equal(t, "position", position, wire.FramePosition{TsMs: c.Position.TsMs.int64(t), Seq: c.Position.Seq})
	}
}

type frameIDCase struct {
	TsMs number `json:"ts_ms"`
	Seq  int32  `json:"seq"`
	ID   string `json:"id"`
}

func frameID(t *testing.T, c frameIDCase) {
	equal(t, "id", wire.FramePosition{TsMs: c.TsMs.int64(t), Seq: c.Seq}.String(), c.ID)
}

type streamCase struct {
	Execution    id.ExecutionUUID `json:"execution_uuid"`
	AttemptIndex int32            `json:"attempt_index"`
	Channel      string           `json:"channel"`
	LockKey      number           `json:"lock_key"`
	SipHashInput hexBytes         `json:"siphash_input_hex"`
}

func streamChannel(t *testing.T, c streamCase) {
	equal(t, "channel", wire.StreamChannel(c.Execution, c.AttemptIndex), c.Channel)
}

func streamAppendLockKey(t *testing.T, c streamCase) {
	equal(t, "key", wire.StreamLockKey(c.Execution, c.AttemptIndex), c.LockKey.int64(t))
	equal(t, "hash", int64(hash.SipHash13(c.SipHashInput)), c.LockKey.int64(t))
}

type sipHashCase struct {
	InputHex hexBytes `json:"input_hex"`
	U64      number   `json:"u64"`
	Int64    number   `json:"int64"`
}

func siphash13(t *testing.T, c sipHashCase) {
	hash := hash.SipHash13(c.InputHex)
	equal(t, "hash", hash, c.U64.uint64(t))
	equal(t, "signed", int64(hash), c.Int64.int64(t))
}

type capabilityMatchCase struct {
	RequiredCSV string   `json:"required_csv"`
	Required    []string `json:"required"`
	Worker      []string `json:"worker"`
	Match       bool     `json:"match"`
}

func capabilityMatch(t *testing.T, c capabilityMatchCase) {
	required, worker := id.ParseCapabilities(c.RequiredCSV), id.NewCapabilities(c.Worker...)
	equal(t, "required", required, id.NewCapabilities(c.Required...))
	equal(t, "match", worker.Covers(required), c.Match)
	equal(t, "nothing missing", len(worker.Missing(required)) == 0, c.Match)
}

type capabilityCSVCase struct {
	Tokens []string `json:"tokens"`
	CSV    string   `json:"csv"`
	Hash8  string   `json:"hash8"`
}

func capabilityCSV(t *testing.T, c capabilityCSVCase) {
	set := id.NewCapabilities(c.Tokens...)
	equal(t, "csv", set.CSV(), c.CSV)
	equal(t, "digest", set.Digest(), c.Hash8)
}

func capabilityCSVParse(t *testing.T, c capabilityCSVCase) {
	equal(t, "tokens", []string(id.ParseCapabilities(c.CSV)), c.Tokens)
}

type capabilityTokenCase struct {
	Token string `json:"token"`
	OK    bool   `json:"ok"`
}

func capabilityToken(t *testing.T, c capabilityTokenCase) {
	equal(t, "ok", id.CheckCapability(c.Token) == nil, c.OK)
	equal(t, "in a set", id.NewCapabilities("other", c.Token).Validate() == nil, c.OK)
}

type deadReasonCase struct {
	Reason string `json:"reason"`
	OK     bool   `json:"ok"`
}

func deadReason(t *testing.T, c deadReasonCase) {
	equal(t, "ok", id.CheckDeadReason(c.Reason) == nil, c.OK)
}

type leaseCase struct {
	Execution    id.ExecutionUUID `json:"execution_uuid"`
	AttemptIndex int32            `json:"attempt_index"`
	LeaseEpoch   number           `json:"lease_epoch"`
	LeaseUUID    string           `json:"lease_uuid"`
	LeaseText    string           `json:"lease_text"`
}

func syntheticLease(t *testing.T, c leaseCase) {
	triple := wire.LeaseTriple{Execution: c.Execution, AttemptIndex: c.AttemptIndex, LeaseEpoch: c.LeaseEpoch.int64(t)}
	equal(t, "label", triple.Synthetic().String(), c.LeaseUUID)
	equal(t, "text", triple.String(), c.LeaseText)
	equal(t, "parsed", must[wire.LeaseTriple](t)(wire.ParseLeaseTriple(c.LeaseText)), triple)
	for _, expected := range []string{"", c.LeaseUUID, c.LeaseText} {
		equal(t, fmt.Sprintf("matches %q", expected), wire.ExpectedLease(expected).Matches(triple, id.LeaseID{}), true)
	}
	equal(t, "matches another", wire.ExpectedLease(c.LeaseText+"1").Matches(triple, id.LeaseID{}), false)
}

// Package conformance holds the library's byte formats, documents and literals against
// test vectors. testdata/vectors.json is kept as it came: each case says whether it was
// checked by running another program on the shared database ("reference run") or is this
// library's own rule.
package conformance

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

// consumers has one entry a section: it runs the cases of the section and says of each
// whether it was checked.
func consumers() map[string]func(t *testing.T, c testCase) (checked bool) {
	return map[string]func(*testing.T, testCase) bool{
		"crc16":                  always(crc16),
		"fnv1a":                  always(fnv1a),
		"fnv1a_mod":              always(fnv1aMod),
		"flow_partition":         always(flowPartition),
		"budget_partition":       always(budgetPartition),
		"quota_partition":        always(quotaPartition),
		"solo_partition":         always(soloPartition),
		"worker_partition":       always(workerPartition),
		"partition_hash_tag":     always(partitionHashTag),
		"partition_key_parse":    always(partitionKeyParse),
		"uuid_parse":             always(uuidParse),
		"execution_id_parse":     always(executionIDParse),
		"execution_id_mint":      always(executionIDMint),
		"lane_id":                always(laneID),
		"tag_key":                always(tagKey),
		"tag_key_prefix":         always(tagKeyPrefix),
		"event_cursor":           always(eventCursor),
		"frame_cursor":           always(frameCursor),
		"frame_id":               always(frameID),
		"stream_channel":         always(streamChannel),
		"handle":                 always(handle),
		"handle_json":            always(handleJSON),
		"backend_tag":            always(backendTag),
		"waitpoint_token":        always(waitpointToken),
		"hmac_raw":               always(hmacRaw),
		"hmac_verify":            always(hmacVerify),
		"token_redaction":        always(tokenRedaction),
		"token_fingerprint":      always(tokenFingerprint),
		"kid":                    always(kid),
		"secret_input":           always(secretInput),
		"claim_grant_key":        always(claimGrantKey),
		"claim_grant_parse":      always(claimGrantParse),
		"synthetic_lease":        always(syntheticLease),
		"stream_append_lock_key": always(streamAppendLockKey),
		"siphash13":              always(siphash13),
		"capability_match":       always(capabilityMatch),
		"capability_csv":         always(capabilityCSV),
		"capability_csv_parse":   always(capabilityCSVParse),
		"capability_token":       always(capabilityToken),
		"dead_reason":            always(deadReason),
		"edge_policy_stored":     always(edgePolicyStored),
		"completion_outcome":     always(completionOutcome),
		"retry_delay":            always(retryDelay),
		"derive_public_state":    always(derivePublicState),
		"stored_literal":         always(storedLiteral),
		"summary_merge":          inStreams,
		"frame_fields":           inStreams,
		"frame_fields_read":      inStreams,
		"enum_literals":          enumLiterals,
		"json_shape":             jsonShape,
	}
}

// inStreams leaves a case to tests/streams, whose TestVectorsOf… run it on a database.
func inStreams(*testing.T, testCase) bool { return true }

// stillToCome lists the sections, and the types within a section, that belong to parts of
// the library that do not exist yet. The test fails when an entry matches no case.
func stillToCome() map[string][]string {
	suspension := []string{"SuspensionReasonCode", "SuspensionRequester", "TimeoutBehavior"}
	return map[string][]string{
		"resume_condition_validate": nil,
		"resume_condition_evaluate": nil,
		"member_map_signal":         nil,
		"required_signal_names":     nil,
		"suspend_dedup_outcome":     nil,
		"usage_outcome":             nil,
		"wire_strings":              suspension,
		"enum_literals":             append([]string{"CountKind", "ResumeTarget"}, suspension...),
		"json_shape":                append([]string{"SignalMatcher", "ResumeCondition", "ResumePolicy", "WaitpointBinding"}, suspension...),
	}
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(data, &sections); err != nil {
		t.Fatal(err)
	}
	delete(sections, "meta")

	checked, toCome, total := 0, 0, 0
	known, awaited := consumers(), stillToCome()
	for name, raw := range sections {
		var cases []testCase
		if err := json.Unmarshal(raw, &cases); err != nil {
			t.Fatalf("section %s: %v", name, err)
		}
		total += len(cases)
		awaitedTypes := slices.Clone(awaited[name])
		t.Run(name, func(t *testing.T) {
			consume := known[name]
			_, awaitedSection := awaited[name]
			if consume == nil && !awaitedSection {
				t.Fatalf("nothing consumes this section")
			}
			for i, c := range cases {
				typ := c.typeName()
				awaitedTypes = slices.DeleteFunc(awaitedTypes, func(s string) bool { return s == typ })
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					switch {
					case consume != nil && consume(t, c):
						checked++
						if slices.Contains(awaited[name], typ) {
							t.Errorf("type %s is consumed and still listed as to come", typ)
						}
					case awaitedSection && (len(awaited[name]) == 0 || slices.Contains(awaited[name], typ)):
						toCome++
					default:
						t.Errorf("nothing consumes this case: %s", c)
					}
				})
			}
			if len(awaitedTypes) > 0 {
				t.Errorf("listed as to come, but no case has type %v", awaitedTypes)
			}
		})
	}
	for _, registry := range [][]string{keys(known), keys(awaited)} {
		for _, name := range registry {
			if _, ok := sections[name]; !ok {
				t.Errorf("section %s is registered, but the file has no such section", name)
			}
		}
	}
	t.Logf("%d of %d cases checked, %d still to come", checked, total, toCome)
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

// testCase is one case as it stands in the file.
type testCase json.RawMessage

func (c *testCase) UnmarshalJSON(data []byte) error {
	*c = bytes.Clone(data)
	return nil
}

func (c testCase) String() string { return string(c) }

func (c testCase) typeName() string {
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(c, &head) // a case without a type has none
	return head.Type
}

// always adapts a check that covers every case of its section. The case is decoded into
// the check's own struct.
func always[T any](check func(t *testing.T, c T)) func(*testing.T, testCase) bool {
	return func(t *testing.T, raw testCase) bool {
		var c T
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		check(t, c)
		return true
	}
}

// number is an integer that the file gives as a number or, above 2^53, as a string.
type number string

func (n *number) UnmarshalJSON(data []byte) error {
	*n = number(bytes.Trim(data, `"`))
	return nil
}

func (n number) int64(t *testing.T) int64 {
	t.Helper()
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (n number) uint64(t *testing.T) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(string(n), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// hexBytes is a byte string that the file gives in hex.
type hexBytes []byte

func (b *hexBytes) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	*b = decoded
	return err
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// containsJSON checks that got says all that want says; objects may have further members.
func containsJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !contains(unmarshal(t, got), unmarshal(t, want)) {
		t.Errorf("%s: got %s, which does not contain %s", what, got, want)
	}
}

func contains(got, want any) bool {
	wantObject, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	gotObject, ok := got.(map[string]any)
	for key, value := range wantObject {
		ok = ok && contains(gotObject[key], value)
	}
	return ok
}

func unmarshal(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// sameJSON compares documents by value: key order and the spelling of numbers are free.
func sameJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !reflect.DeepEqual(unmarshal(t, got), unmarshal(t, want)) {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(fmt.Errorf("unexpected refusal: %w", err))
		}
		return v
	}
}

package conformance

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

type handleCase struct {
	Hex    hexBytes `json:"hex"`
	OK     bool     `json:"ok"`
	Error  string   `json:"error"`
	Detail struct {
		Needed uint32 `json:"needed"`
		At     int    `json:"at"`
		Have   int    `json:"have"`
		Got    byte   `json:"got"`
		Field  string `json:"field"`
		Pos    int    `json:"pos"`
		Len    int    `json:"len"`
	} `json:"detail"`
	Wire               string       `json:"wire"`
	Tag                string       `json:"tag"`
	AcceptedByPostgres bool         `json:"accepted_by_postgres"`
	ErrorAtBackend     string       `json:"error_at_backend"`
	Fields             handleFields `json:"fields"`
}

type handleFields struct {
	ExecutionID      id.ExecutionID      `json:"execution_id"`
	AttemptIndex     uint32              `json:"attempt_index"`
	AttemptID        id.AttemptID        `json:"attempt_id"`
	LeaseID          id.LeaseID          `json:"lease_id"`
	LeaseEpoch       number              `json:"lease_epoch"`
	LeaseTTLMs       number              `json:"lease_ttl_ms"`
	LaneID           string              `json:"lane_id"` // not validated
	WorkerInstanceID id.WorkerInstanceID `json:"worker_instance_id"`
}

func handle(t *testing.T, c handleCase) {
	fields, backend, err := wire.DecodeHandle(c.Hex)
	equal(t, "ok", err == nil, c.OK)
	outer := wire.Handle{Backend: wire.Postgres, Kind: wire.HandleFresh, Opaque: c.Hex}
	_, useErr := outer.CheckPostgres()
	if err != nil {
		var bad *wire.HandleError
		if !errors.As(err, &bad) || !errors.As(useErr, new(*wire.HandleError)) {
			t.Fatalf("not a HandleError: %v, %v", err, useErr)
		}
		d := c.Detail
		want := wire.HandleError{Reason: wire.HandleReason(c.Error), Field: d.Field, Got: d.Got, Needed: d.Needed, At: d.At + d.Pos, Have: d.Have + d.Len}
		equal(t, "error", *bad, want)
		equal(t, "error text", strings.HasPrefix(err.Error(), "handle_codec: "), true)
		return
	}
	want := wire.HandleFields{
		Execution: c.Fields.ExecutionID, AttemptIndex: c.Fields.AttemptIndex, AttemptID: c.Fields.AttemptID,
		LeaseID: c.Fields.LeaseID, LeaseEpoch: c.Fields.LeaseEpoch.uint64(t), LeaseTTLMs: c.Fields.LeaseTTLMs.uint64(t),
		Lane: id.LaneID(c.Fields.LaneID), WorkerInstance: c.Fields.WorkerInstanceID,
	}
	equal(t, "fields", fields, want)
	equal(t, "tag", strings.ToLower(backend.String()), c.Tag)
	equal(t, "accepted", useErr == nil, c.AcceptedByPostgres)
	if c.AcceptedByPostgres {
		equal(t, "encoded", wire.EncodeHandle(wire.HandleFresh, fields), outer)
		return
	}
	equal(t, "error at the backend", "Validation{HandleFromOtherBackend}", c.ErrorAtBackend)
	equal(t, "error at the backend", useErr.Error(), fmt.Sprintf("expected=Postgres actual=%s (embedded tag)", backend))
}

type handleJSONCase struct {
	Backend   string          `json:"backend"`
	Kind      wire.HandleKind `json:"kind"`
	OpaqueHex hexBytes        `json:"opaque_hex"`
	JSON      json.RawMessage `json:"json"`
}

func handleJSON(t *testing.T, c handleJSONCase) {
	var decoded wire.Handle
	if err := json.Unmarshal(c.JSON, &decoded); err != nil {
		t.Fatal(err)
	}
	equal(t, "backend", decoded.Backend.String(), c.Backend)
	equal(t, "kind", decoded.Kind, c.Kind)
	equal(t, "opaque", decoded.Opaque, []byte(c.OpaqueHex))
	sameJSON(t, "encoded", mustMarshal(t, decoded), c.JSON)
}

type backendTagCase struct {
	Tag  string `json:"tag"`
	Byte byte   `json:"byte"`
}

func backendTag(t *testing.T, c backendTagCase) {
	equal(t, "tag", strings.ToLower(wire.Backend(c.Byte).String()), c.Tag)
}

type waitpointTokenCase struct {
	SecretHex   hexBytes            `json:"secret_hex"`
	Kid         string              `json:"kid"`
	ExecutionID id.ExecutionID      `json:"execution_id"`
	WaitpointID id.WaitpointID      `json:"waitpoint_id"`
	Message     string              `json:"message"`
	MACInput    string              `json:"mac_input"`
	Token       wire.WaitpointToken `json:"token"`
	TokenKid    string              `json:"token_kid"`
	Fingerprint string              `json:"token_fingerprint"`
	Redacted    string              `json:"redacted"`
}

func waitpointToken(t *testing.T, c waitpointTokenCase) {
	secret := wire.Secret(c.SecretHex)
	token := wire.SignWaitpoint(secret, c.Kid, c.ExecutionID, c.WaitpointID)
	equal(t, "token", string(token), string(c.Token))
	equal(t, "signed message", wire.Sign(secret, c.Kid, c.Message), string(c.Token))
	equal(t, "mac input", c.Kid+":"+c.Message, c.MACInput)
	equal(t, "verified", token.Verify(secret, c.Kid, c.ExecutionID, c.WaitpointID), nil)
	equal(t, "kid", token.Kid(), c.TokenKid)
	equal(t, "fingerprint", token.Fingerprint(), c.Fingerprint)
	equal(t, "redacted", fmt.Sprint(token), c.Redacted)
}

type hmacCase struct {
	SecretUTF8 string   `json:"secret_utf8"`
	SecretHex  hexBytes `json:"secret_hex"`
	Kid        string   `json:"kid"`
	Message    string   `json:"message"`
	Token      string   `json:"token"`
	Result     string   `json:"result"`
}

func hmacRaw(t *testing.T, c hmacCase) {
	secret := wire.Secret(c.SecretUTF8)
	equal(t, "token", wire.Sign(secret, c.Kid, c.Message), c.Token)
	equal(t, "verified", wire.VerifySignature(secret, c.Kid, c.Message, c.Token), nil)
}

func hmacVerify(t *testing.T, c hmacCase) {
	result := reason(t, wire.VerifySignature(wire.Secret(c.SecretHex), c.Kid, c.Message, c.Token))
	if result == "" {
		result = "ok"
	}
	equal(t, "result", result, c.Result)
}

type tokenCase struct {
	Token       wire.WaitpointToken `json:"token"`
	Display     string              `json:"display"`
	TokenKid    string              `json:"token_kid"`
	Fingerprint string              `json:"token_fingerprint"`
}

func tokenRedaction(t *testing.T, c tokenCase) {
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x", "%d"} {
		equal(t, verb, fmt.Sprintf(verb, c.Token), c.Display)
	}
	equal(t, "logged", c.Token.LogValue().String(), c.Display)
}

func tokenFingerprint(t *testing.T, c tokenCase) {
	equal(t, "kid", c.Token.Kid(), c.TokenKid)
	equal(t, "fingerprint", c.Token.Fingerprint(), c.Fingerprint)
}

type kidCase struct {
	Kid string `json:"kid"`
	OK  bool   `json:"required_ok"`
}

func kid(t *testing.T, c kidCase) { equal(t, "ok", wire.CheckKid(c.Kid) == nil, c.OK) }

type secretCase struct {
	SecretHex string `json:"secret_hex"`
	OK        bool   `json:"required_ok"`
}

func secretInput(t *testing.T, c secretCase) {
	secret, err := wire.ParseSecret(c.SecretHex)
	equal(t, "ok", err == nil, c.OK)
	if err == nil {
		equal(t, "secret", hex.EncodeToString(secret), strings.ToLower(c.SecretHex))
	}
}

type grantKeyCase struct {
	Kind             wire.GrantKind      `json:"kind"`
	SecretHex        hexBytes            `json:"secret_hex"`
	Kid              string              `json:"kid"`
	Partition        int16               `json:"partition"`
	ExecutionUUID    id.ExecutionUUID    `json:"execution_uuid"`
	WorkerID         id.WorkerID         `json:"worker_id"`
	WorkerInstanceID id.WorkerInstanceID `json:"worker_instance_id"`
	ExpiresAtMs      int64               `json:"expires_at_ms"`
	Message          string              `json:"message"`
	MACInput         string              `json:"mac_input"`
	GrantKey         string              `json:"grant_key"`
	GrantIDHex       string              `json:"grant_id_hex"`
}

func claimGrantKey(t *testing.T, c grantKeyCase) {
	grant := wire.Grant{
		Kind: c.Kind, Execution: id.ExecutionIDFromRow(c.Partition, c.ExecutionUUID),
		Worker: c.WorkerID, WorkerInstance: c.WorkerInstanceID, ExpiresAtMs: c.ExpiresAtMs,
	}
	secret := wire.Secret(c.SecretHex)
	key := grant.Sign(secret, c.Kid)
	equal(t, "message", grant.Message(), c.Message)
	equal(t, "mac input", c.Kid+":"+grant.Message(), c.MACInput)
	equal(t, "key", string(key), c.GrantKey)
	equal(t, "id", fmt.Sprintf("%x", key.ID()), c.GrantIDHex)
	equal(t, "verified", grant.Verify(secret, c.Kid, key), nil)
	grant.WorkerInstance += "x"
	equal(t, "another worker's", reason(t, grant.Verify(secret, c.Kid, key)), "SignatureMismatch")
}

type grantParseCase struct {
	GrantKey   wire.GrantKey  `json:"grant_key"`
	ExpectKind wire.GrantKind `json:"expect_kind"`
	OK         bool           `json:"ok"`
	Error      string         `json:"error"`
	Fields     struct {
		Partition     int16            `json:"partition"`
		ExecutionUUID id.ExecutionUUID `json:"execution_uuid"`
		ExpiresAtMs   int64            `json:"expires_at_ms"`
		Kid           string           `json:"kid"`
		Digest        string           `json:"digest"`
	} `json:"fields"`
}

func claimGrantParse(t *testing.T, c grantParseCase) {
	fields, err := c.GrantKey.Parse(c.ExpectKind)
	equal(t, "error", reason(t, err), c.Error)
	if !c.OK {
		return
	}
	want := wire.GrantFields{
		Execution:   id.ExecutionIDFromRow(c.Fields.Partition, c.Fields.ExecutionUUID),
		ExpiresAtMs: c.Fields.ExpiresAtMs, Kid: c.Fields.Kid,
	}
	equal(t, "fields", fields, want)
	prefix, found := strings.CutSuffix(string(c.GrantKey), c.Fields.Digest)
	equal(t, "digest", found, true)
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x", "%d"} {
		equal(t, verb, fmt.Sprintf(verb, c.GrantKey), prefix+"<REDACTED:len=64>")
	}
}

package id

import (
	"fmt"
	"strconv"
)

// Reason says why a value was refused.
type Reason string

// The reasons a [ParseError] carries.
const (
	ReasonMissingTag            Reason = "MissingTag"
	ReasonInvalidPartitionIndex Reason = "InvalidPartitionIndex"
	ReasonInvalidUUID           Reason = "InvalidUuid"
	ReasonMissingBraces         Reason = "MissingBraces"
	ReasonMalformedBody         Reason = "MalformedBody"
	ReasonUnknownFamilyPrefix   Reason = "UnknownFamilyPrefix"
	ReasonInvalidIndex          Reason = "InvalidIndex"
	ReasonEmpty                 Reason = "Empty"
	ReasonTooLong               Reason = "TooLong"
	ReasonNonPrintable          Reason = "NonPrintable"
	ReasonInvalidUTF8           Reason = "InvalidUtf8"
	ReasonForbiddenCharacter    Reason = "ForbiddenCharacter"
	ReasonReservedPrefix        Reason = "ReservedPrefix"
	ReasonTooMany               Reason = "TooMany"
	ReasonBareMarkerRejected    Reason = "BareMarkerRejected"
	ReasonMalformed             Reason = "Malformed"
	ReasonOutOfRange            Reason = "OutOfRange"
	ReasonForeignCursor         Reason = "ForeignCursor"
	ReasonWrongKid              Reason = "WrongKid"
	ReasonSignatureMismatch     Reason = "SignatureMismatch"
	ReasonUnknownKid            Reason = "UnknownKid"
	ReasonUnknownGrant          Reason = "UnknownGrant"
)

// ParseError reports a value that is not of the named type. Either the caller's input is wrong, or, if the value was read
// from the database, the row is corrupt.
type ParseError struct {
	Type   string // in words, for example "execution id"
	Reason Reason
	Detail string // the offending part, an index or a length; never a secret; at most 64 bytes of input
}

func (e *ParseError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("invalid %s: %s", e.Type, e.Reason)
	}
	return fmt.Sprintf("invalid %s: %s: %s", e.Type, e.Reason, e.Detail)
}

// refuse builds a ParseError that quotes the start of input.
func refuse(typ string, reason Reason, input string) error {
	return &ParseError{Type: typ, Reason: reason, Detail: strconv.Quote(input[:min(len(input), maxEcho)])}
}

const maxEcho = 64

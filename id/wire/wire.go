// Package wire has the byte formats built from ids, for programs with a shared database or forwarded leases: handles,
// lease triples, grant keys, waitpoint tokens, cursors, partition tags and the names of stream channels. Programs based
// only on this library don't need the package.
//
// Every format is fixed: other programs write and read the same bytes.
package wire

import (
	"strconv"

	"github.com/flowfabric/flowfabric-go/id"
)

// uuidLen is the length of a UUID's hyphenated form.
const uuidLen = 36

// maxEcho bounds the input an error quotes, in bytes.
const maxEcho = 64

func refuse(typ string, reason id.Reason, input string) error {
	return &id.ParseError{Type: typ, Reason: reason, Detail: strconv.Quote(input[:min(len(input), maxEcho)])}
}

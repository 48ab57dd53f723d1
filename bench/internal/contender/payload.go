package contender

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strconv"
)

// args is the payload of a job. Every contender stores the bytes, and passes all to the handler.
type args struct {
	Num int    `json:"num"`
	Pad string `json:"pad,omitempty"`
}

const (
	numField = `{"num":`
	padField = `,"pad":"`
)

// padding is text no server can compress. Each job has a part.
var padding = func() string {
	letters := make([]byte, 48<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(letters) // never fails
	return base64.RawURLEncoding.EncodeToString(letters)
}()

// maxPad is the longest padding. The rest of padding decides how many jobs have a different one.
const maxPad = 32 << 10

// args returns the job's payload.
func (j Job) args() args {
	a := args{Num: j.Num}
	if n := min(j.Size-len(a.encode())-len(padField)-1, maxPad); n > 0 {
		at := j.Num * 7919 % (len(padding) - maxPad)
		a.Pad = padding[at : at+n]
	}
	return a
}

// encode is a faster json.Marshal.
func (a args) encode() []byte {
	b := append(make([]byte, 0, 32+len(a.Pad)), numField...)
	b = strconv.AppendInt(b, int64(a.Num), 10)
	if a.Pad != "" {
		b = append(append(append(b, padField...), a.Pad...), '"')
	}
	return append(b, '}')
}

// num returns the number in the output of encode.
func num(payload []byte) int {
	digits := bytes.TrimPrefix(payload, []byte(numField))
	if end := bytes.IndexAny(digits, ",}"); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		return -1
	}
	return n
}

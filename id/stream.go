package id

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// StreamChannel is the notification channel of an attempt's output stream.
func StreamChannel(e ExecutionUUID, attemptIndex int32) string {
	return "ff_stream_" + e.String() + "_" + strconv.FormatInt(int64(attemptIndex), 10)
}

// StreamLockKey is the key of the advisory lock under which every program on the database
// appends to an attempt's output stream.
func StreamLockKey(e ExecutionUUID, attemptIndex int32) int64 {
	message := make([]byte, 0, 8+len(e)+4)
	message = binary.LittleEndian.AppendUint64(message, uint64(len(e)))
	message = append(message, e[:]...)
	message = binary.LittleEndian.AppendUint32(message, uint32(attemptIndex))
	return int64(SipHash13(message))
}

// SipHash13 is SipHash with 1 compression and 3 finalization rounds under the zero key: what [StreamLockKey] hashes with.
func SipHash13(message []byte) uint64 {
	s := sipState{0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261, 0x7465646279746573}
	rest := message
	for ; len(rest) >= 8; rest = rest[8:] {
		s.compress(binary.LittleEndian.Uint64(rest))
	}
	var last [8]byte
	copy(last[:], rest)
	last[7] = byte(len(message))
	s.compress(binary.LittleEndian.Uint64(last[:]))
	s[2] ^= 0xff
	for range 3 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) compress(word uint64) {
	s[3] ^= word
	s.round()
	s[0] ^= word
}

func (s *sipState) round() {
	s[0] += s[1]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[3]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] += s[3]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] += s[1]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[2] = bits.RotateLeft64(s[2], 32)
}

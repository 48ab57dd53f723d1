// Package hash has the hashes by which every program on a database computes partitions and lock keys. They are fixed
// by the stored data, so they never change.
package hash

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// CRC16 is CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected. Modulo the partition count it is the
// partition of an id: of the raw bytes of a flow's, a budget's or a quota's, or of a lane's name.
func CRC16(b []byte) uint16 {
	var crc uint16
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// FNV1a is the 64-bit FNV-1a hash. Package hash/fnv would allocate for a string.
func FNV1a(s string) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		hash = (hash ^ uint64(s[i])) * 0x100000001b3
	}
	return hash
}

// Digest8 is a short digest of s for logs: 8 hex digits.
func Digest8(s string) string {
	hash := FNV1a(s)
	return fmt.Sprintf("%08x", uint32(hash)^uint32(hash>>32))
}

// SipHash13 is SipHash with 1 compression and 3 finalization rounds under the zero key.
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

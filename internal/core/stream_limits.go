package core

import "time"

// MaxFramePayload is the largest payload of a frame in bytes.
const MaxFramePayload = 64 << 10

// StreamLimits is the checked engine.StreamConfig of an engine.
type StreamLimits struct {
	MaxPayload    int // of a frame, in bytes
	DurableMaxlen int // durable frames kept by an attempt; 0: all
	BestEffort    BestEffort
}

// BestEffort is engine.BestEffort.
type BestEffort struct {
	TTL         time.Duration
	Least, Most int
}

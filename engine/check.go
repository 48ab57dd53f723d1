package engine

import (
	"math"
	"time"
)

// MaxLeaseTTL is the longest lease: 2^32-1 milliseconds. The shortest is one millisecond.
const MaxLeaseTTL = math.MaxUint32 * time.Millisecond

package fftest

// Trips returns the number of round trips of all drains so far.
func (k *Kit) Trips() int {
	k.process.mu.Lock()
	defer k.process.mu.Unlock()
	return k.process.trips
}

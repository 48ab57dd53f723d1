package streams

// Page sizes: a reader holds one page, so pages of large frames have few.
const (
	FirstSize = 16
	mostSize  = 128

	smallPage = 64 << 10  // bytes; behind a full page of at most so many the next one may have twice as many frames
	largePage = 256 << 10 // the page after a larger one has half as many
)

// NextSize returns the size of the page after one with the given requested size, frames and bytes.
func NextSize(size, frames, bytes int) int {
	switch {
	case bytes > largePage:
		return max(1, size/2)
	case frames >= size && bytes <= smallPage:
		return min(2*size, mostSize)
	case frames < size:
		return min(size, FirstSize)
	}
	return size
}

package schedules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/internal/cron"
)

// field draws a field of an expression.
func field(t *rapid.T, name string, low, high int) string {
	part := rapid.Custom(func(t *rapid.T) string {
		from := rapid.IntRange(low, high).Draw(t, "from")
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			return fmt.Sprintf("%d-%d", from, rapid.IntRange(from, high).Draw(t, "to"))
		case 1:
			if from == high { // a step as long as the range is refused
				return fmt.Sprint(from)
			}
			to := rapid.IntRange(from+1, high).Draw(t, "to")
			return fmt.Sprintf("%d-%d/%d", from, to, rapid.IntRange(1, to-from).Draw(t, "step"))
		default:
			return fmt.Sprint(from)
		}
	})
	switch rapid.IntRange(0, 3).Draw(t, name) {
	case 0:
		return "*"
	case 1:
		return fmt.Sprintf("*/%d", rapid.IntRange(1, high-low).Draw(t, "step"))
	}
	return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), ",")
}

// Another implementation computes the same times, where the clocks don't change. It searches five years ahead.
func TestTimesOfAnotherImplementation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		expression := strings.Join([]string{
			field(t, "minute", 0, 59), field(t, "hour", 0, 23), field(t, "day", 1, 28), field(t, "month", 1, 12), field(t, "weekday", 0, 6),
		}, " ")
		zone := rapid.SampledFrom([]string{"UTC", "Asia/Kolkata", "Asia/Tokyo", "Africa/Lagos"}).Draw(t, "zone")
		location, err := cron.Location(zone)
		if err != nil {
			t.Fatal(err)
		}
		mine, err := cron.Parse(expression, zone)
		if err != nil {
			t.Fatalf("%q: %v", expression, err)
		}
		others, err := robfig.ParseStandard(expression)
		if err != nil {
			t.Fatalf("%q: %v", expression, err)
		}
		at := time.Unix(rapid.Int64Range(1_500_000_000, 2_500_000_000).Draw(t, "from"), 0).In(location)
		for range 20 {
			got, want := mine.Next(at), others.Next(at)
			if !got.Equal(want) {
				t.Fatalf("%q in %s after %v: %v, want %v", expression, zone, at, got.In(location), want)
			}
			at = want
		}
	})
}

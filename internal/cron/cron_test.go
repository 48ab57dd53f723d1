package cron

import (
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, expression, zone string) Schedule {
	t.Helper()
	s, err := Parse(expression, zone)
	if err != nil {
		t.Fatalf("%q in %q: %v", expression, zone, err)
	}
	return s
}

// ticks returns the first n times after an instant, as the clocks of the zone show them.
func ticks(s Schedule, location *time.Location, after time.Time, n int) string {
	var shown []string
	for range n {
		if after = s.Next(after); after.IsZero() {
			break
		}
		shown = append(shown, after.In(location).Format("02T15:04:05-07"))
	}
	return strings.Join(shown, " ")
}

// In Berlin the clocks go from 02:00 to 03:00 on 29 March 2026, and from 03:00 back to 02:00 on 25 October.
func TestNextWhenTheClocksChange(t *testing.T) {
	t.Parallel()
	berlin, err := Location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	spring := time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC) // 23:00
	autumn := time.Date(2026, 10, 24, 21, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, expression string
		after            time.Time
		n                int
		want             string
	}{
		{"a skipped time runs when the clocks go forward", "30 2 * * *", spring, 2, "29T03:00:00+02 30T02:30:00+02"},
		{"skipped times are one", "0,15,30 2 * * *", spring, 2, "29T03:00:00+02 30T02:00:00+02"},
		{"and none beside a time of that moment", "0 2,3 * * *", spring, 3, "29T03:00:00+02 30T02:00:00+02 30T03:00:00+02"},
		{"a time at the change", "0 3 * * *", spring, 2, "29T03:00:00+02 30T03:00:00+02"},
		{"a doubled time runs once", "30 2 * * *", autumn, 2, "25T02:30:00+02 26T02:30:00+01"},
		{"doubled times too", "0,30 2 * * *", autumn, 3, "25T02:00:00+02 25T02:30:00+02 26T02:00:00+01"},
		{"the end of the doubled hour", "0 3 * * *", autumn, 2, "25T03:00:00+01 26T03:00:00+01"},
		{"within the doubled hour", "30 2 * * *", time.Date(2026, 10, 25, 1, 10, 0, 0, time.UTC), 1, "26T02:30:00+01"},
		{"every hour passes a gap", "0 * * * *", spring, 4, "29T00:00:00+01 29T01:00:00+01 29T03:00:00+02 29T04:00:00+02"},
		{"every hour passes a doubled one", "0 * * * *", autumn, 5, "25T00:00:00+02 25T01:00:00+02 25T02:00:00+02 25T02:00:00+01 25T03:00:00+01"},
		{"every half hour passes a gap", "*/30 * * * *", spring.Add(2 * time.Hour), 4, "29T01:30:00+01 29T03:00:00+02 29T03:30:00+02 29T04:00:00+02"},
	} {
		if got := ticks(parse(t, test.expression, "Europe/Berlin"), berlin, test.after, test.n); got != test.want {
			t.Errorf("%s: %q\n%s\nwant\n%s", test.name, test.expression, got, test.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expression, zone string }{
		{"", ""}, {" ", ""}, {"TZ=", ""}, {"CRON_TZ=", ""}, {"TZ=UTC", ""}, {"TZ=Europe/Berlin 0 0 * * *", ""}, {"CRON_TZ=UTC @daily", ""},
		{"* * * *", ""}, {"* * * * * * *", ""}, {"60 * * * *", ""}, {"* 24 * * *", ""}, {"0 0 31 2 *", ""}, {"@every 1h", ""}, {"@reboot", ""},
		{"@", ""}, {"0 0 * * *", "Nowhere"}, {"0 0 * * *", "Local"}, {"0 0 * * *", "../etc/passwd"}, {"0 0 * * MON#6", ""},
		{strings.Repeat("*", 300), ""}, {strings.Repeat("0,", 100_000) + " * * * *", ""},
	} {
		if s, err := Parse(test.expression, test.zone); err == nil {
			t.Errorf("%.40q in %q: %v, want an error", test.expression, test.zone, s)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) // a Saturday
	for _, test := range []struct{ expression, want string }{
		{"* * * * *", "31T12:01:00+00 31T12:02:00+00"},
		{"*/20 * * * * *", "31T12:00:20+00 31T12:00:40+00"},
		{"0 9 * * MON-FRI", "02T09:00:00+00 03T09:00:00+00"},
		{"0 0 13 * FRI", "06T00:00:00+00 13T00:00:00+00"}, // either day
		{"0 0 L * *", "28T00:00:00+00 31T00:00:00+00"},
		{"0 0 * * FRI#L", "27T00:00:00+00 27T00:00:00+00"},
		{"0 0 29 2 *", "29T00:00:00+00 29T00:00:00+00"},
		{"@weekly", "01T00:00:00+00 08T00:00:00+00"},
	} {
		if got := ticks(parse(t, test.expression, ""), time.UTC, from, 2); got != test.want {
			t.Errorf("%q: %s, want %s", test.expression, got, test.want)
		}
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	anchor := time.UnixMilli(1_000)
	s := Every(1500*time.Millisecond, anchor)
	for _, test := range []struct{ after, want int64 }{{999, 1000}, {1000, 2500}, {2499, 2500}, {-501, -500}, {-500, 1000}} {
		if got := s.Next(time.UnixMilli(test.after)).UnixMilli(); got != test.want {
			t.Errorf("after %d: %d, want %d", test.after, got, test.want)
		}
	}
}

// Last is what going through all times finds.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, s := range []Schedule{
		parse(t, "*/7 3,4 * * *", "Europe/Berlin"), parse(t, "0 * * * *", "Australia/Lord_Howe"), Every(17*time.Minute, time.UnixMilli(3)),
	} {
		from := time.Date(2026, 3, 27, 1, 0, 0, 0, time.UTC)
		for to := from; to.Before(from.Add(72 * time.Hour)); to = to.Add(37 * time.Minute) {
			var want time.Time
			for at := s.Next(from); !at.IsZero() && !at.After(to); at = s.Next(at) {
				want = at
			}
			if got := s.Last(from, to); !got.Equal(want) {
				t.Fatalf("%v: %v, want %v", to, got, want)
			}
		}
	}
}

// No input makes the parser, or the times of what it accepts, panic or run backwards.
func FuzzParse(f *testing.F) {
	for _, expression := range []string{"", "TZ=", "CRON_TZ=", "TZ=UTC ", "* * * * *", "@daily", "@every 1s", "0 0 L-3 * FRI#2", "H H * * *", "22-2 23-1 * NOV-FEB 7", "\x00", "1/0 * * * *", "@every -1s", "15W * * * *"} {
		f.Add(expression, "Europe/Berlin", int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, expression, zone string, seconds int64) {
		s, err := Parse(expression, zone)
		if err != nil {
			return
		}
		after := time.Unix(seconds%(1<<34), 0)
		for range 3 {
			next := s.Next(after)
			if next.IsZero() {
				return
			}
			if !next.After(after) {
				t.Fatalf("%q in %q: %v after %v", expression, zone, next, after)
			}
			after = next
		}
	})
}

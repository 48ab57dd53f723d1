package cron

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// All names of days and months count in both cases, alone, in lists and in ranges. L1
func TestNamesInBothCases(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	names := func(expression string, all []string, first int) {
		t.Helper()
		for i, name := range all {
			next := all[min(i+1, len(all)-1)]
			for _, form := range [][2]string{
				{name, fmt.Sprint(i + first)}, {name + "," + next, fmt.Sprintf("%d,%d", i+first, min(i+1, len(all)-1)+first)},
				{name + "-" + next, fmt.Sprintf("%d-%d", i+first, min(i+1, len(all)-1)+first)},
			} {
				want := ticks(parse(t, fmt.Sprintf(expression, form[1]), ""), time.UTC, from, 5)
				for _, text := range []string{strings.ToUpper(form[0]), strings.ToLower(form[0]), strings.ToUpper(form[0][:1]) + form[0][1:]} {
					if got := ticks(parse(t, fmt.Sprintf(expression, text), ""), time.UTC, from, 5); got != want {
						t.Errorf("%s: %s, want %s", text, got, want)
					}
				}
			}
		}
	}
	names("0 9 * * %s", []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, 0)
	names("0 9 1 %s *", []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}, 1)
	for _, expression := range []string{"0 0 * * THU#2", "0 0 * * THU#L", "0 0 L-3 MAR THU"} {
		if got, want := ticks(parse(t, expression, ""), time.UTC, from, 5), ticks(parse(t, strings.NewReplacer("THU", "4", "MAR", "3").Replace(expression), ""), time.UTC, from, 5); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

// The search ends, and finds the times of each day, around the last day of leap years from 2040 on, for which Go returns bounds
// of the zone that are over. L2
func TestLastDayOfLeapYears(t *testing.T) {
	t.Parallel()
	for _, zone := range zones {
		location, err := Location(zone)
		if err != nil {
			t.Fatal(err)
		}
		once, passing := parse(t, "0 3 * * *", zone), parse(t, "0 * * * *", zone)
		for _, year := range []int{2040, 2044, 2048} {
			for _, at := range []time.Time{time.Date(year, 12, 30, 12, 0, 0, 0, location), time.Date(year, 12, 31, 1, 0, 0, 0, location), time.Date(year, 12, 31, 23, 30, 0, 0, location)} {
				day := at
				if at.Hour() >= 3 {
					day = at.AddDate(0, 0, 1)
				}
				if got, want := once.Next(at), time.Date(day.Year(), day.Month(), day.Day(), 3, 0, 0, 0, location); !got.Equal(want) {
					t.Errorf("%s: %v after %v, want %v", zone, got.In(location), at, want)
				}
				if got := passing.Next(at); got.Sub(at) > time.Hour || !got.After(at) {
					t.Errorf("%s: %v after %v", zone, got.In(location), at)
				}
			}
		}
	}
	berlin, err := Location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// A fifth Monday in February: in 2044 and 2072, from 2026 on beyond the first such day.
	found := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		found <- parse(t, "0 3 * 2 MON#5", "Europe/Berlin").Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}()
	select {
	case <-ctx.Done():
	case got := <-found:
		if want := time.Date(2044, 2, 29, 3, 0, 0, 0, berlin); !got.Equal(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

package cron

import (
	"fmt"
	"testing"
	"time"
)

// zones change their clocks in different ways: by an hour or half of one, at midnight, twice around Ramadan, over a whole day,
// or never.
var zones = []string{
	"UTC", "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Johannesburg", "Africa/Juba", "Africa/Windhoek",
	"America/Anchorage", "America/Argentina/Buenos_Aires", "America/Asuncion", "America/Caracas", "America/Chicago", "America/Godthab",
	"America/Havana", "America/Los_Angeles", "America/New_York", "America/Santiago", "America/Sao_Paulo", "America/St_Johns",
	"Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Dhaka", "Asia/Gaza", "Asia/Kathmandu", "Asia/Kolkata",
	"Asia/Pyongyang", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
	"Europe/Dublin", "Europe/Istanbul", "Europe/London", "Europe/Moscow", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham",
	"Pacific/Fiji", "Pacific/Kiritimati",
}

// In twenty years each day has one tick of an expression of one time, at that time, or at the change of the clocks that skips it.
// A day that a zone has left out altogether has it at the change too.
func TestOneTickADay(t *testing.T) {
	t.Parallel()
	from, to := time.Date(2007, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range zones {
		location, err := Location(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Duration{0, 2*time.Hour + 30*time.Minute} {
			hour, minute := int(at.Hours()), int(at.Minutes())%60
			s := parse(t, fmt.Sprintf("%d %d * * *", minute, hour), zone)
			day := from // as if the clocks showed UTC
			tick := s.Next(instant(day.Add(at-time.Minute), offsetAt(from, location)))
			for ; day.Before(to); tick = s.Next(tick) {
				want := day.Add(at)
				if got := wall(tick.In(location)); !got.Equal(want) {
					// The clocks jump over the time at this very moment.
					before := wall(tick.Add(-time.Millisecond).In(location))
					if before.After(want) || !got.After(want) {
						t.Fatalf("%s: %v, want %v", zone, tick.In(location), want)
					}
					for !day.AddDate(0, 0, 1).Add(at).After(got) { // all that it jumps over are one tick
						day = day.AddDate(0, 0, 1)
					}
				}
				day = day.AddDate(0, 0, 1)
			}
		}
	}
}

// In twenty years an expression of all hours has ticks at all of its times that the clocks show, twice if they do, and at no
// others: those that a walk along the quarters of an hour finds.
func TestEveryQuarterPasses(t *testing.T) {
	t.Parallel()
	for _, zone := range zones {
		location, err := Location(zone)
		if err != nil {
			t.Fatal(err)
		}
		s := parse(t, "0,45 * * * *", zone)
		for at := time.Date(2007, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2027; {
			_, end := at.In(location).ZoneBounds()
			if end.IsZero() || end.Year() >= 2027 {
				break
			}
			// Two days around each change.
			tick := s.Next(end.Add(-25 * time.Hour))
			for walk := end.Add(-25 * time.Hour).Add(time.Minute); walk.Before(end.Add(25 * time.Hour)); walk = walk.Add(time.Minute) {
				if minute := wall(walk.In(location)).Minute(); minute != 0 && minute != 45 {
					continue
				}
				if !tick.Equal(walk) {
					t.Fatalf("%s: %v, want %v", zone, tick.In(location), walk.In(location))
				}
				tick = s.Next(tick)
			}
			at = end
		}
	}
}

func offsetAt(at time.Time, location *time.Location) int {
	_, offset := at.In(location).Zone()
	return offset
}

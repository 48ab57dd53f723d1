// Package cron computes the times of schedules: from cron expressions in a time zone, and from intervals. The package
// keeps no state, reads no clock and starts nothing.
//
// An expression is read as wall-clock times, converted to instants. The hours decide about changes of the clocks. An
// expression of all 24 hours runs as time passes: every 15 minutes means every 15 minutes. Any other expression names
// wall-clock times, and each runs once: a time that occurs twice at the first occurrence, and a time that doesn't occur
// at the moment when the clocks are put forward.
package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a machine without time zones must compute the same times

	"github.com/netresearch/go-cron"
)

// MaxExpression is the longest expression in bytes.
const MaxExpression = 255

// searchYears is how far ahead the next time is searched. The rarest one is a fifth weekday in February.
const searchYears = 50

const allHours = 1<<24 - 1

// Schedule is an expression in a time zone, or an interval. The zero value has no times.
type Schedule struct {
	spec      *cron.SpecSchedule // in wall-clock time, as if in UTC
	location  *time.Location
	everyHour bool

	every  time.Duration
	anchor time.Time
}

// Every returns a schedule of an interval of whole milliseconds: the times at multiples of the interval from anchor,
// before and after.
func Every(every time.Duration, anchor time.Time) Schedule {
	return Schedule{every: every.Truncate(time.Millisecond), anchor: anchor}
}

// Parse reads an expression of five fields (minute, hour, day of the month, month, day of the week), of six with
// seconds first, or a name such as @daily. If both days are given, either suffices, as in crontab. A day of the month may
// be L (the last), L-3 or 15W (the weekday nearest to it), a day of the week FRI#3 or FRI#L.
//
// Parse returns an error for a malformed expression, one without times or with a zone of its own, and an unknown zone.
// It never panics.
func Parse(expression, zone string) (s Schedule, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			s, err = Schedule{}, errors.New("is malformed")
		}
	}()
	switch {
	case strings.TrimSpace(expression) == "":
		return s, errors.New("is empty")
	case len(expression) > MaxExpression:
		return s, fmt.Errorf("%d bytes, limit %d", len(expression), MaxExpression)
	case strings.ContainsRune(expression, '='):
		return s, errors.New("names a time zone: it has a field of its own")
	case strings.HasPrefix(strings.TrimSpace(expression), "@every"):
		return s, errors.New("is an interval: it has a field of its own")
	}
	location, err := Location(zone)
	if err != nil {
		return s, err
	}
	parsed, err := parser.Parse(names.ReplaceAllStringFunc(expression, strings.ToLower))
	if err != nil {
		return s, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return s, errors.New("is not an expression of times")
	}
	s = Schedule{spec: spec, location: location, everyHour: spec.Hour&allHours == allHours}
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return Schedule{}, errors.New("has no times")
	}
	return s, nil
}

// names are the names of days and months. The parser takes the H of an upper-case THU for its random values.
var names = regexp.MustCompile(`(?i)\b(sun|mon|tue|wed|thu|fri|sat|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\b`)

var parser = cron.MustNewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.Extended | cron.DowOrDom,
).WithMaxSearchYears(searchYears)

// Location returns a time zone by name in the IANA database; "" is UTC. The zone of the machine is refused, since other
// machines have another.
func Location(zone string) (*time.Location, error) {
	switch zone {
	case "":
		return time.UTC, nil
	case "Local":
		return nil, errors.New("the zone of the machine differs among machines: name a zone such as Europe/Berlin")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q", zone)
	}
	return location, nil
}

// Next returns the first time after an instant, or the zero time if there is none.
func (s Schedule) Next(after time.Time) time.Time {
	switch {
	case s.every > 0:
		return s.nextMultiple(after)
	case s.spec == nil:
		return time.Time{}
	case s.everyHour:
		return s.nextPassing(after)
	}
	return s.nextOnce(after)
}

func (s Schedule) nextMultiple(after time.Time) time.Time {
	every, since := s.every.Milliseconds(), after.UnixMilli()-s.anchor.UnixMilli()
	n := since / every
	if since%every < 0 {
		n--
	}
	return time.UnixMilli(s.anchor.UnixMilli() + (n+1)*every)
}

// nextPassing goes from one change of the clocks to the next. In between all days have 24 hours.
func (s Schedule) nextPassing(after time.Time) time.Time {
	at := after.In(s.location)
	from := wall(at)
	for {
		_, offset := at.Zone()
		_, end := bounds(at)
		next := s.spec.Next(from)
		if next.IsZero() {
			return time.Time{}
		}
		found := instant(next, offset)
		if end.IsZero() || found.Before(end) {
			return found
		}
		at = end.In(s.location)
		from = wall(at).Add(-time.Nanosecond)
	}
}

// nextOnce finds the next wall-clock time no instant up to after has had, and then its first instant.
func (s Schedule) nextOnce(after time.Time) time.Time {
	at := after.In(s.location)
	from := wall(at)
	if start, _ := bounds(at); !start.IsZero() {
		// The clocks were put back at start, and repeat earlier times until the clocks have caught up.
		_, before := start.Add(-time.Nanosecond).In(s.location).Zone()
		if been := start.UTC().Add(time.Duration(before)*time.Second - time.Nanosecond); from.Before(been) {
			from = been
		}
	}
	next := s.spec.Next(from)
	if next.IsZero() {
		return time.Time{}
	}
	for {
		_, offset := at.Zone()
		start, end := bounds(at)
		found := instant(next, offset)
		switch {
		case !start.IsZero() && found.Before(start):
			return start.UTC() // not shown by the clocks
		case end.IsZero() || found.Before(end):
			return found
		}
		at = end.In(s.location)
	}
}

// farthestChange is how far from a time a change of the clocks is searched. Zones with changes have one each year.
const farthestChange = 2 * 366 * 24 * time.Hour

// bounds returns the last and the next change of the clocks, or zero times.
//
// [time.Time.ZoneBounds] alone does not do. From the year in which the listed changes of a zone end, ZoneBounds returns the limits of
// years too, and for a leap year 31 December, so a past end on 31 December.
func bounds(at time.Time) (start, end time.Time) {
	_, offset := at.Zone()
	for t := at; t.Sub(at) < farthestChange; t = end.In(at.Location()) {
		if _, here := t.Zone(); here != offset {
			break
		}
		if _, end = t.ZoneBounds(); end.IsZero() {
			break
		} else if !end.After(t) {
			end = t.AddDate(0, 0, 1)
		}
	}
	for t := at; at.Sub(t) < farthestChange; t = start.Add(-time.Nanosecond).In(at.Location()) {
		if _, here := t.Zone(); here != offset {
			break
		}
		if start, _ = t.ZoneBounds(); start.IsZero() {
			break
		} else if start.After(t) {
			start = t.AddDate(0, 0, -1)
		}
	}
	return start, end
}

// wall returns the date and time the clocks show at an instant, as if in UTC.
func wall(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// instant is the reverse of wall for an offset.
func instant(wall time.Time, offset int) time.Time {
	return wall.Add(-time.Duration(offset) * time.Second)
}

// Last returns the last time in (after, upTo], or the zero time if there is none.
func (s Schedule) Last(after, upTo time.Time) time.Time {
	last := s.Next(after)
	if last.IsZero() || last.After(upTo) {
		return time.Time{}
	}
	// There is a time in (low, upTo], and none in (high, upTo].
	for low, high := after, upTo; ; {
		if high.Sub(low) <= time.Millisecond {
			return last
		}
		middle := low.Add(high.Sub(low) / 2)
		if next := s.Next(middle); next.IsZero() || next.After(upTo) {
			high = middle
		} else {
			low, last = middle, next
		}
	}
}

package batch

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Schedule is a cron expression: the minutes of the calendar that it names, or
// a fixed time between two runs.
type Schedule struct {
	minute, hour, day, month, weekday uint64 // sets of numbers, one bit each
	anyDay, anyWeekday                bool   // written as "*"
	every                             time.Duration
	zone                              *time.Location // nil: that of the time asked about
}

// bounds of a field, and names for its numbers.
type bounds struct {
	min, max int
	names    []string // of min, min+1 ...
}

var (
	minutes  = bounds{min: 0, max: 59}
	hours    = bounds{min: 0, max: 23}
	days     = bounds{min: 1, max: 31}
	months   = bounds{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}}
	weekdays = bounds{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}
)

// descriptors stand for whole expressions.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// ParseSchedule reads a cron expression of five fields, a descriptor such as
// "@hourly", or "@every 90m"; each may follow "TZ=Europe/Berlin " or "CRON_TZ=...".
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
	if text == "" {
		return s, errors.New("empty spec string")
	}
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		setting, rest, _ := strings.Cut(text, " ")
		_, name, _ := strings.Cut(setting, "=")
		zone, err := time.LoadLocation(name)
		if err != nil {
			return s, fmt.Errorf("provided bad location %s: %w", name, err)
		}
		s.zone, text = zone, strings.TrimSpace(rest)
	}
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		d, err := time.ParseDuration(every)
		if err != nil {
			return s, fmt.Errorf("failed to parse duration %s: %w", text, err)
		}
		s.every = max(d.Truncate(time.Second), time.Second)
		return s, nil
	}
	if strings.HasPrefix(text, "@") {
		whole, ok := descriptors[text]
		if !ok {
			return s, fmt.Errorf("unrecognized descriptor: %s", text)
		}
		text = whole
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return s, fmt.Errorf("expected exactly 5 fields, found %d: %v", len(fields), fields)
	}
	return s, s.setFields(fields)
}

func (s *Schedule) setFields(fields []string) (err error) {
	sets := []*uint64{&s.minute, &s.hour, &s.day, &s.month, &s.weekday}
	anys := make([]bool, len(sets))
	for i, b := range []bounds{minutes, hours, days, months, weekdays} {
		if *sets[i], anys[i], err = b.set(fields[i]); err != nil {
			return err
		}
	}
	s.anyDay, s.anyWeekday = anys[2], anys[4]
	return nil
}

// set reads a list of ranges. all says that one of them is "*".
func (b bounds) set(text string) (set uint64, all bool, err error) {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		bitsOf, star, err := b.span(part)
		if err != nil {
			return 0, false, err
		}
		set |= bitsOf
		all = all || star
	}
	return set, all, nil
}

// span reads "*", "3", "3-7", "*/5", "3-7/2" or "3/2" (which is "3-max/2").
func (b bounds) span(text string) (set uint64, star bool, err error) {
	ranged, stepped, hasStep := strings.Cut(text, "/")
	if strings.Contains(stepped, "/") {
		return 0, false, fmt.Errorf("too many slashes: %s", text)
	}
	low, high, hasHigh := strings.Cut(ranged, "-")
	if strings.Contains(high, "-") {
		return 0, false, fmt.Errorf("too many hyphens: %s", text)
	}
	first, last, step := b.min, b.max, 1
	if low == "*" || low == "?" {
		star = true
	} else {
		if first, err = b.number(low); err != nil {
			return 0, false, err
		}
		last = first
		if hasStep {
			last = b.max
		}
		if hasHigh {
			if last, err = b.number(high); err != nil {
				return 0, false, err
			}
		}
	}
	if hasStep {
		if step, err = parseNumber(stepped); err != nil {
			return 0, false, err
		}
		star = star && step == 1
	}
	switch {
	case first < b.min:
		err = fmt.Errorf("beginning of range (%d) below minimum (%d): %s", first, b.min, text)
	case last > b.max:
		err = fmt.Errorf("end of range (%d) above maximum (%d): %s", last, b.max, text)
	case first > last:
		err = fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", first, last, text)
	case step == 0:
		err = fmt.Errorf("step of range should be a positive number: %s", text)
	}
	if err != nil {
		return 0, false, err
	}
	for n := first; n <= last; n += step {
		set |= 1 << n
	}
	return set, star, nil
}

func (b bounds) number(text string) (int, error) {
	for i, name := range b.names {
		if strings.EqualFold(text, name) {
			return b.min + i, nil
		}
	}
	return parseNumber(text)
}

func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %w", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}

// Next is the first time after t at which the schedule runs, in t's location; the
// zero time if there is none within five years (30 February).
func (s Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Add(s.every - time.Duration(t.Nanosecond()))
	}
	asked := t.Location()
	if s.zone != nil {
		t = t.In(s.zone)
	}
	t = t.Add(time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
	for limit := t.AddDate(5, 0, 0); t.Before(limit); {
		switch {
		case !has(s.month, int(t.Month())):
			t = midnight(t.Year(), t.Month()+1, 1, t.Location())
		case !s.runsOn(t):
			t = midnight(t.Year(), t.Month(), t.Day()+1, t.Location())
		case !has(s.hour, t.Hour()):
			t = t.Add(time.Hour - time.Duration(t.Minute())*time.Minute)
		case !has(s.minute, t.Minute()):
			t = t.Add(time.Minute)
		default:
			return t.In(asked)
		}
	}
	return time.Time{}
}

// runsOn: where both kinds of day are restricted, one that matches is enough.
func (s Schedule) runsOn(t time.Time) bool {
	day, weekday := has(s.day, t.Day()), has(s.weekday, int(t.Weekday()))
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

func has(set uint64, n int) bool { return bits.OnesCount64(set&(1<<n)) == 1 }

// midnight is the beginning of a day, which is not at 0:00 where the clock is
// put forward at midnight.
func midnight(year int, month time.Month, day int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if h := t.Hour(); h > 12 {
		t = t.Add(time.Duration(24-h) * time.Hour)
	}
	return t
}

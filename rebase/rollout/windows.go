package rollout

import (
	"fmt"
	"strings"
	"time"
)

// Window is a time of the week at which nodes may start.
type Window struct {
	// Days on which it opens.
	Days [7]bool
	// From and To are minutes after midnight; To at or before From is on the next day.
	From, To int
	// Zone of these times.
	Zone *time.Location
}

// Windows are open when one of them is; no windows are always open.
type Windows []Window

const (
	minutesPerDay = 24 * 60
	// maxWindows bounds what an annotation can ask for.
	maxWindows = 20
)

var weekdays = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseWindows reads the value of the annotation dayone.dev/maintenance-windows: windows separated by semicolons, each
// with days, times and optionally a time zone (default UTC), such as "Mon-Fri 22:00-04:00 Europe/Berlin; Sun
// 00:00-24:00". Days are names of three letters, single, as a range, or separated by commas; "daily" is every day.
func ParseWindows(s string) (Windows, error) {
	var out Windows
	for _, part := range strings.Split(s, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		w, err := parseWindow(strings.Fields(part))
		if err != nil {
			return nil, fmt.Errorf("read maintenance window %q: %w: write it like Mon-Fri 22:00-04:00 Europe/Berlin",
				strings.TrimSpace(part), err)
		}
		out = append(out, w)
	}
	if len(out) == 0 || len(out) > maxWindows {
		return nil, fmt.Errorf("read maintenance windows %q: there must be 1 to %d windows", s, maxWindows)
	}
	return out, nil
}

func parseWindow(words []string) (Window, error) {
	w := Window{Zone: time.UTC}
	if len(words) < 2 || len(words) > 3 {
		return w, fmt.Errorf("it needs days, times and at most a time zone")
	}
	if err := w.parseDays(strings.ToLower(words[0])); err != nil {
		return w, err
	}
	from, to, found := strings.Cut(words[1], "-")
	if !found {
		return w, fmt.Errorf("%q is no time span", words[1])
	}
	var err error
	if w.From, err = minutes(from); err != nil {
		return w, err
	}
	if w.To, err = minutes(to); err != nil {
		return w, err
	}
	if w.From == minutesPerDay {
		return w, fmt.Errorf("it cannot open at 24:00")
	}
	if len(words) == 3 {
		if w.Zone, err = time.LoadLocation(words[2]); err != nil {
			return w, fmt.Errorf("%q is no time zone", words[2])
		}
	}
	return w, nil
}

func (w *Window) parseDays(s string) error {
	if s == "daily" {
		s = "sun-sat"
	}
	for _, span := range strings.Split(s, ",") {
		first, end, ranged := strings.Cut(span, "-")
		if !ranged {
			end = first
		}
		i, j := weekday(first), weekday(end)
		if i < 0 || j < 0 {
			return fmt.Errorf("%q names no days", span)
		}
		for w.Days[i] = true; i != j; w.Days[i] = true {
			i = (i + 1) % len(weekdays)
		}
	}
	return nil
}

func weekday(s string) int {
	for i, name := range weekdays {
		if s == name {
			return i
		}
	}
	return -1
}

// minutes reads a time of the day from 00:00 to 24:00.
func minutes(s string) (int, error) {
	if s == "24:00" {
		return minutesPerDay, nil
	}
	t, err := time.Parse("15:04", s)
	if err != nil {
		return 0, fmt.Errorf("%q is no time of the day", s)
	}
	return t.Hour()*60 + t.Minute(), nil
}

// Open tells whether a node may start at this moment and, if not, after which time one may.
func (ws Windows) Open(now time.Time) (bool, time.Duration) {
	if len(ws) == 0 {
		return true, 0
	}
	var wait time.Duration
	for _, w := range ws {
		opens, open := w.next(now)
		if open {
			return true, 0
		}
		if d := opens.Sub(now); wait == 0 || d < wait {
			wait = d
		}
	}
	return false, wait
}

// next gives when the window opens next, or that it is open. It compares the calendar's days so that changes to and
// from daylight saving time move no window.
func (w Window) next(now time.Time) (time.Time, bool) {
	local := now.In(w.Zone)
	for day := -1; day <= len(w.Days); day++ {
		date := local.AddDate(0, 0, day)
		if !w.Days[date.Weekday()] {
			continue
		}
		at := func(minute int) time.Time {
			return time.Date(date.Year(), date.Month(), date.Day(), 0, minute, 0, 0, w.Zone)
		}
		opens, closes := at(w.From), at(w.To)
		if w.To <= w.From {
			closes = at(w.To + minutesPerDay)
		}
		if now.Before(opens) {
			return opens, false
		}
		if now.Before(closes) {
			return opens, true
		}
	}
	return now.AddDate(0, 0, len(w.Days)), false
}

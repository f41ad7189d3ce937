package batch

import (
	"strings"
	"testing"
	"time"
)

func TestSchedulesRunWhenCronWould(t *testing.T) {
	t.Parallel()
	cases := []struct {
		schedule, after, next string
	}{
		{"*/1 * * * *", "2024-05-06T07:08:09Z", "2024-05-06T07:09:00Z"},
		{"*/15 * * * *", "2024-05-06T07:45:00Z", "2024-05-06T08:00:00Z"},
		{"0 * * * *", "2024-05-06T07:00:00Z", "2024-05-06T08:00:00Z"},
		{"30 2 * * *", "2024-05-06T02:30:00Z", "2024-05-07T02:30:00Z"},
		{"0 0 1 1 *", "2024-05-06T07:08:09Z", "2025-01-01T00:00:00Z"},
		{"0 0 31 * *", "2024-04-01T00:00:00Z", "2024-05-31T00:00:00Z"},
		{"0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 30 2 *", "2024-03-01T00:00:00Z", ""},
		{"0 9 * * MON-FRI", "2024-05-03T09:00:00Z", "2024-05-06T09:00:00Z"},
		{"0 9 13 * fri", "2024-05-03T09:00:00Z", "2024-05-10T09:00:00Z"}, // either day
		{"0 9 */2 * fri", "2024-05-03T09:00:00Z", "2024-05-05T09:00:00Z"},
		{"0 9 * * 5", "2024-05-03T09:00:00Z", "2024-05-10T09:00:00Z"},
		{"5,10 3-5 * Jan,jun *", "2024-05-06T00:00:00Z", "2024-06-01T03:05:00Z"},
		{"10/20 * * * ?", "2024-05-06T07:10:00Z", "2024-05-06T07:30:00Z"},
		{"@hourly", "2024-05-06T07:08:09Z", "2024-05-06T08:00:00Z"},
		{"@weekly", "2024-05-06T07:08:09Z", "2024-05-12T00:00:00Z"},
		{"@every 90m", "2024-05-06T07:08:09Z", "2024-05-06T08:38:09Z"},
		{"TZ=Asia/Tokyo 0 6 * * *", "2024-05-06T07:08:09Z", "2024-05-06T21:00:00Z"},
		{"CRON_TZ=America/New_York 30 2 * * *", "2024-03-09T12:00:00Z", "2024-03-11T06:30:00Z"}, // no 2:30 on the 10th
	}
	for _, c := range cases {
		t.Run(c.schedule, func(t *testing.T) {
			s, err := ParseSchedule(c.schedule)
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			got := s.Next(after)
			if c.next == "" && got.IsZero() {
				return
			}
			if got.Format(time.RFC3339) != c.next {
				t.Errorf("after %s: got %s, want %s", c.after, got.Format(time.RFC3339), c.next)
			}
		})
	}
}

func TestNextNeverGoesBack(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here")
	}
	s, err := ParseSchedule("30 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 10, 26, 0, 0, 0, 0, berlin) // the clock goes back on the 27th
	for range 72 {
		next := s.Next(at)
		if d := next.Sub(at); d <= 0 || d > time.Hour {
			t.Fatalf("after %s comes %s", at, next)
		}
		at = next
	}
}

func TestBadSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"":                       "empty spec string",
		"* * * *":                "expected exactly 5 fields, found 4: [* * * *]",
		"60 * * * *":             "end of range (60) above maximum (59): 60",
		"* * 0 * *":              "beginning of range (0) below minimum (1): 0",
		"5-3 * * * *":            "beginning of range (5) beyond end of range (3): 5-3",
		"*/0 * * * *":            "step of range should be a positive number: */0",
		"1-2-3 * * * *":          "too many hyphens: 1-2-3",
		"1/2/3 * * * *":          "too many slashes: 1/2/3",
		"x * * * *":              `failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax`,
		"@fortnightly":           "unrecognized descriptor: @fortnightly",
		"@every day":             "failed to parse duration @every day:",
		"TZ=Mars/Base 0 0 * * *": "provided bad location Mars/Base: unknown time zone Mars/Base",
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			_, err := ParseSchedule(text)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func FuzzParseSchedule(f *testing.F) {
	for _, s := range []string{"*/5 1-3 * jan,feb ?", "@every 5s", "TZ=UTC @daily", "1/2/3 * * * *"} {
		f.Add(s)
	}
	start := time.Date(2024, 2, 29, 23, 59, 59, 1, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil {
			return
		}
		if next := s.Next(start); !next.IsZero() && !next.After(start) {
			t.Errorf("%q: %s comes after %s", text, next, start)
		}
	})
}

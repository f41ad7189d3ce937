package machine

import (
	"testing"
	"time"
)

func TestNodesUsageIsReadFromProc(t *testing.T) {
	const stat = "cpu  100 20 300 90000 500 6 7 8 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nbtime 7\n"
	const meminfo = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:    400 kB\nSwapTotal:  50 kB\nSwapFree: 20 kB\nHugePages_Total:       0\n"
	got, err := parseUsage(stat, meminfo, time.Unix(1, 0))
	if err != nil || got.CPU != 4.41 || got.Memory != 600*1024 {
		t.Errorf("got %+v, %v, want 4.41 s and 600 KiB", got, err)
	}
	if !got.Booted.Equal(time.Unix(7, 0)) || got.Free != 100*1024 || got.Available != 400*1024 || got.SwapTotal != 50*1024 || got.SwapFree != 20*1024 {
		t.Errorf("got %+v", got)
	}
	for what, text := range map[string][2]string{"no cpu": {"", meminfo}, "a word": {"cpu  a 1 1 1 1 1 1 1 1 1\n", meminfo}, "no memory": {stat, ""}} {
		if _, err := parseUsage(text[0], text[1], time.Unix(1, 0)); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if got, err := Used(); err != nil || got.CPU <= 0 || got.Memory <= 0 || got.Booted.IsZero() {
		t.Errorf("this machine: got %+v, %v", got, err)
	}
}

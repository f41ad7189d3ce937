package cloud

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestErrorsHaveTheCloudAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(time.Minute, time.Second, 5*time.Second)
		full, down := errors.New("full"), errors.New("down")
		if left := p.left("a", "x"); left > 0 {
			t.Errorf("got a wait of %s of one that has not asked", left)
		}
		var waits []time.Duration
		var news []bool
		for _, err := range []error{full, full, down, down, down, nil, down} {
			news = append(news, p.asked("a", "x", err))
			waits = append(waits, p.left("a", "x"))
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second, time.Minute, time.Second}; !slices.Equal(waits, want) {
			t.Errorf("got waits %v, want %v", waits, want)
		}
		if want := []bool{true, false, true, false, false, false, true}; !slices.Equal(news, want) {
			t.Errorf("got news %v, want %v", news, want)
		}
		if left := p.left("a", "y"); left > 0 {
			t.Errorf("got a wait of %s of another question", left)
		}
		p.asked("b", "x", nil)
		p.forgetAllBut(map[string]bool{"b": true})
		if a, b := p.left("a", "x"), p.left("b", "x"); a > 0 || b != time.Minute {
			t.Errorf("got waits %s and %s, want none of what is forgotten, and a minute", a, b)
		}
	})
}

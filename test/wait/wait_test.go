package wait

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestTriesUntilItWorksOrPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		Until(t, func() error {
			if calls++; calls < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); calls != 4 || took != 3*least {
			t.Errorf("what comes about: got %d calls in %s, want 4 in %s", calls, took, 3*least)
		}
		began, calls = time.Now(), 0
		err := Try(time.Minute, func() error {
			calls++
			time.Sleep(time.Second) // as long as Try waits, too
			return fmt.Errorf("no %d", calls)
		})
		if took := time.Since(began); fmt.Sprint(err) != fmt.Sprintf("no %d", calls) || calls > 31 || took < time.Minute || took > 62*time.Second {
			t.Errorf("what does not: got %v after %d calls in %s, want the last error, after a minute and 30 calls", err, calls, took)
		}
	})
}
